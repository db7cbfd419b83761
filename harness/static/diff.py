"""What changed between two sets of static records. Deterministic: no statistics, every difference is told.

What alerts: new spills, lost occupancy, lost matrix instructions, lost wide loads, and what no longer compiles.
The rest is kept as a change. Variants are compared by problem, so that another tile size is a change of the same
variant. What came with another compiler is grouped into one finding per pair of versions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.model import METRICS

from .records import MATRIX, StaticRecord

#: The share of wide loads may fall by this much.
_SHARE_SLACK = METRICS["wide_load_share"].slack

ALERTS = ("does not compile", "new spills", "lost occupancy", "lost matrix instructions", "lost wide loads")


@dataclass(frozen=True)
class Finding:
    """One kind of change with all the variants that it befell.

    ``details`` maps "configuration on target" to what was and what is. ``compiler`` is set where the change came
    with another compiler ("triton A, ptxas B -> ..."); such a finding holds every kind in its details.
    """

    kind: str
    alert: bool
    details: dict[str, str] = field(default_factory=dict)
    compiler: str = ""

    @property
    def text(self) -> str:
        """One line, then one per variant."""
        head = f"{'ALERT ' if self.alert else ''}{self.kind}: {len(self.details)} variant(s)"
        if self.compiler:
            head += f", with the compiler: {self.compiler}"
        return "\n".join([head, *(f"  {name}: {what}" for name, what in sorted(self.details.items()))])


def diff(base: Iterable[StaticRecord], head: Iterable[StaticRecord]) -> list[Finding]:
    """Findings, alerts first. Variants that only one side has are told and never alert."""
    old, new = ({r.key: r for r in side} for side in (base, head))
    ours: dict[str, dict[str, str]] = {}
    compilers: dict[str, tuple[bool, dict[str, str]]] = {}
    for key in sorted(old.keys() | new.keys()):
        name = f"{key[0]} on {key[1]}"
        if key not in new or key not in old:
            kind = "added" if key in new else "removed"
            ours.setdefault(kind, {})[name] = kind
            continue
        a, b = old[key], new[key]
        changes = list(_changes(a, b))
        if a.compiler == b.compiler:
            for kind, what in changes:
                ours.setdefault(kind, {})[name] = what
        elif changes:
            pair = f"{a.compiler} -> {b.compiler}"
            alert, details = compilers.get(pair, (False, {}))
            details[name] = "; ".join(f"{kind}: {what}" for kind, what in changes)
            compilers[pair] = (alert or any(kind in ALERTS for kind, _ in changes), details)
    found = [Finding(kind, kind in ALERTS, details) for kind, details in ours.items()]
    found += [Finding("changed", alert, details, pair) for pair, (alert, details) in compilers.items()]
    return sorted(found, key=lambda f: (not f.alert, bool(f.compiler), f.kind))


def _changes(a: StaticRecord, b: StaticRecord) -> Iterable[tuple[str, str]]:
    """(kind, what) of each way in which ``b`` differs from ``a``."""
    options = _options(a, b)
    if b.error:
        if not a.error:
            yield "does not compile", b.error + options
        return
    if a.error:
        yield "compiles again", f"was: {a.error}{options}"
        return
    local_a, local_b = a.count("ldl", "stl"), b.count("ldl", "stl")
    if b.spill_bytes > a.spill_bytes or (local_b > local_a and b.stack_bytes > a.stack_bytes):
        yield (
            "new spills",
            f"{a.spill_bytes} -> {b.spill_bytes} bytes, {local_a} -> {local_b} local accesses, "
            f"registers {a.registers} -> {b.registers}{options}",
        )
    if b.occupancy < a.occupancy:
        yield (
            "lost occupancy",
            f"{a.occupancy:.0%} -> {b.occupancy:.0%} ({b.limited_by}), registers {a.registers} -> {b.registers}, "
            f"shared {a.shared_bytes} -> {b.shared_bytes}{options}",
        )
    if b.matrix_level < a.matrix_level:
        yield "lost matrix instructions", f"{_matrix_name(a)} -> {_matrix_name(b)}{options}"
    share_a, share_b = a.wide_load_share or 0.0, b.wide_load_share or 0.0
    if share_b < share_a - _SHARE_SLACK:
        yield "lost wide loads", f"{share_a:.0%} -> {share_b:.0%} of the global loads are 128 bits or more{options}"
    parts = [
        f"{name} {x} -> {y}"
        for name, x, y in (
            ("registers", a.registers, b.registers),
            ("spill bytes", a.spill_bytes, b.spill_bytes),
            ("stack", a.stack_bytes, b.stack_bytes),
            ("shared", a.shared_bytes, b.shared_bytes),
            ("occupancy", f"{a.occupancy:.0%}", f"{b.occupancy:.0%}"),
            ("instructions", a.count("total"), b.count("total")),
            ("matrix", _matrix_name(a), _matrix_name(b)),
        )
        if x != y
    ]
    if parts or options:
        yield "changed", ", ".join(parts) + options


def _options(a: StaticRecord, b: StaticRecord) -> str:
    names = sorted(a.options.keys() | b.options.keys())
    parts = [f"{n} {a.options.get(n)} -> {b.options.get(n)}" for n in names if a.options.get(n) != b.options.get(n)]
    return f" [{', '.join(parts)}]" if parts else ""


def _matrix_name(r: StaticRecord) -> str:
    found = [f"{r.count(*kinds)} {name}" for name, _, kinds in MATRIX if r.count(*kinds)]
    return " + ".join(found) or "none"
