"""What an incident amounts to: pure functions from records to rows, texts and commands."""

from __future__ import annotations

import keyword
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard import text, trail
from db.queries import CaseRow, EnvironmentRow, IncidentDetail, RegressionRow, RunRow
from db.screens import Pair
from harness.model import InputError, Status, TriageState
from harness.model.expr import Expression, compile_expr
from harness.model.params import PARAMETERS

#: Held by the case but no axis: they repeat what others say, or are texts of many lengths.
_NO_AXIS = ("q_lens", "kv_lens")
#: From here on a cell that nobody confirmed counts as one that looks slower.
LOOKS_SLOWER = 1.05


@dataclass(frozen=True)
class Axes:
    """How the map of an incident is laid out; ``over`` are the parameters that a cell takes the worst of."""

    x: str
    y: str
    facet: str | None
    choices: list[str]
    over: list[str]


def trigger_of(detail: IncidentDetail) -> Expression | None:
    """The trigger as a predicate, None where there is none or it cannot be read."""
    if not detail.incident.trigger_text:
        return None
    try:
        return compile_expr(detail.incident.trigger_text, "trigger")
    except InputError:
        return None


def runs_of(detail: IncidentDetail) -> tuple[str | None, str | None]:
    """The base and head runs that most regressions were judged with."""
    base = Counter(r.base_run for r in detail.regressions if r.base_run)
    head = Counter(r.head_run for r in detail.regressions if r.head_run)
    return (base.most_common(1)[0][0] if base else None), (head.most_common(1)[0][0] if head else None)


def metric_of(detail: IncidentDetail) -> str:
    """The metric that most regressions are about."""
    found = Counter(r.metric for r in detail.regressions)
    return found.most_common(1)[0][0] if found else "latency_s"


def axes(
    cases: Iterable[CaseRow], trigger: Expression | None, x: str | None = None, y: str | None = None,
    facet: str | None = None,
) -> Axes:  # fmt: skip
    """Axes as asked for where they exist, else those that the trigger reads and that take the most values."""
    return layout([c.columns for c in cases], trigger.names if trigger else frozenset(), x, y, facet)


def layout(
    rows: Iterable[Mapping[str, Any]], named: frozenset[str], x: str | None, y: str | None, facet: str | None
) -> Axes:
    """Axes over rows of parameters; ``named`` come first where nothing was asked for."""
    seen: dict[str, set[Any]] = {}
    for row in rows:
        for name, value in row.items():
            if name not in _NO_AXIS and value is not None:
                seen.setdefault(name, set()).add(value)

    def rank(name: str) -> tuple[bool, bool, int, str]:
        numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in seen[name])
        return (not numeric, name not in named, -len(seen[name]), name)

    varying = sorted((n for n in seen if len(seen[n]) > 1), key=rank)
    known = varying + sorted((n for n in seen if len(seen[n]) == 1), key=_by_parameter)
    if not known:
        return Axes("backend", "benchmark", None, ["backend", "benchmark"], [])
    x = x if x in seen else known[0]
    y = y if y in seen and y != x else next((n for n in known if n != x), x)
    left = [n for n in varying if n not in (x, y)]
    if facet == "none":
        facet = None
    elif facet not in seen or facet in (x, y):
        facet = "backend" if "backend" in left else next(iter(left), None)
    return Axes(x, y, facet, known, [n for n in left if n != facet])


def _by_parameter(name: str) -> tuple[int, str]:
    order = list(PARAMETERS)
    return (order.index(name) if name in order else len(order), name)


def cells(
    pairs: Sequence[Pair], regressions: Sequence[RegressionRow], trigger: Expression | None, layout: Axes
) -> list[dict[str, Any]]:
    """Cells of the map: the worst of the cases in each, and cells of the grid that nobody tested."""
    held = {r.case.key: r for r in regressions}
    at: dict[tuple[Any, Any, Any], list[tuple[float, Pair, RegressionRow | None]]] = {}
    for pair in pairs:
        row = pair.case.columns
        place = (_shown(row.get(layout.x)), _shown(row.get(layout.y)), _shown(row.get(layout.facet or "")))
        known = held.get(pair.case.key)
        at.setdefault(place, []).append((_badness(pair, known), pair, known))
    out = []
    for fx in _facets(at):
        # The grid of one map is what was asked anywhere on it, so that holes show.
        for x in dict.fromkeys(k[0] for k in at):
            for y in dict.fromkeys(k[1] for k in at):
                inside = at.get((x, y, fx))
                out.append({"x": x, "y": y, "facet": fx, **_cell(inside, trigger)})
    return out


def _facets(at: Mapping[tuple[Any, Any, Any], Sequence[tuple[float, Pair, RegressionRow | None]]]) -> list[Any]:
    """Values that get a map of their own: none where nothing ran, and of names those with regressions first."""
    hit: dict[Any, int] = {}
    ran: dict[Any, bool] = {}
    for (_, _, fx), inside in at.items():
        hit[fx] = hit.get(fx, 0) + sum(known is not None for _, _, known in inside)
        ran[fx] = ran.get(fx, False) or any(
            known is not None or pair.ratio is not None or _broken(pair.head_status) for _, pair, known in inside
        )
    shown = [fx for fx in hit if ran[fx]] or list(hit)
    return sorted(shown, key=lambda fx: -hit[fx]) if all(isinstance(fx, str) for fx in shown) else shown


def _cell(inside: list[tuple[float, Pair, RegressionRow | None]] | None, trigger: Expression | None) -> dict[str, Any]:
    if not inside:
        return {
            "ratio": None, "tested": False, "inside": False, "unsure": False, "label": "not tested", "short": "",
            "cases": 0, "note": "no case here",
        }  # fmt: skip
    badness, pair, known = max(inside, key=lambda item: item[0])
    outlined = (
        any(trigger(p.case.columns) for _, p, _ in inside)
        if trigger is not None
        else any(r is not None for _, _, r in inside)
    )
    confirmed = known is not None and known.state == TriageState.CONFIRMED
    ratio = known.ratio if known is not None and known.ratio is not None else pair.ratio
    broken = _broken(pair.head_status)
    if broken or ratio is None:
        ratio = None
        words = text.STATUS_WORDS.get(pair.head_status, pair.head_status) if pair.head_status else "not in this run"
        return {
            "ratio": None, "tested": True, "inside": outlined, "unsure": not confirmed, "label": words,
            "short": "✕" if broken else "–", "cases": len(inside), "note": _note(known, ratio),
        }  # fmt: skip
    low, high = (known.ratio_low, known.ratio_high) if known is not None else (None, None)
    return {
        "ratio": ratio, "tested": True, "inside": outlined, "unsure": not confirmed and badness >= LOOKS_SLOWER,
        "label": text.effect(ratio, low, high), "short": f"{(ratio - 1) * 100:+.0f}", "cases": len(inside),
        "note": _note(known, ratio),
    }  # fmt: skip


def _note(known: RegressionRow | None, ratio: float | None) -> str:
    if known is not None:
        return "confirmed" if known.state == TriageState.CONFIRMED else f"{text.label(known.state)}: not confirmed"
    if ratio is not None and ratio >= LOOKS_SLOWER:
        return "looks slower, not confirmed"
    return "no regression"


def _badness(pair: Pair, known: RegressionRow | None) -> float:
    if _broken(pair.head_status):
        return math.inf
    ratio = known.ratio if known is not None and known.ratio is not None else pair.ratio
    return ratio if ratio is not None else -1.0


def _broken(status: str) -> bool:
    return status in set(Status) and Status(status).broken


def _shown(value: Any) -> Any:
    return "-" if value is None else str(value) if isinstance(value, bool) else value


def where_of(case: CaseRow) -> str:
    """The predicate that holds for this case alone."""
    return " and ".join(
        f"{_column(k)} == {_literal(v)}" for k, v in case.columns.items() if k != "operation" and v is not None
    )


def _literal(value: Any) -> str:
    """A value as the expression language writes it; texts in double quotes, since a shell wants the single ones."""
    written = repr(value)
    simple = isinstance(value, str) and written == f"'{value}'" and '"' not in value
    return f'"{value}"' if simple else written


def _column(name: str) -> str:
    plain = name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and name != "col"
    return name if plain else f"col[{name!r}]"


def reproduce(where: str, suite: str, base: RunRow | None, head: RunRow | None) -> str:
    """A command that measures what satisfies ``where`` again: two commits interleaved where both are known."""
    a, b = (r.commit if r is not None else None for r in (base, head))
    clean = base is not None and head is not None and not (base.dirty or head.dirty)
    command = (
        f"attnwatch compare --base {a[:12]} --head {b[:12]}" if a and b and a != b and clean else "attnwatch measure"
    )
    return f"{command} --suite {shlex.quote(suite)} --where {_quoted(where)}"


def _quoted(where: str) -> str:
    """An argument for a shell; in double quotes where it holds single ones and nothing that those would expand."""
    if "'" in where and not set(where) & set('"$`\\!'):
        return f'"{where}"'
    return shlex.quote(where)


def worst(regressions: Sequence[RegressionRow]) -> RegressionRow | None:
    """The regression with the largest ratio among the surest."""
    sure = [r for r in regressions if r.state == TriageState.CONFIRMED] or list(regressions)
    return max(sure, key=lambda r: r.ratio or math.inf, default=None)


def difference(base: EnvironmentRow | None, head: EnvironmentRow | None) -> list[dict[str, str]]:
    """What differs between two environments, kernels first."""
    if base is None or head is None:
        return []
    old = {"kernels": base.kernels_hash, **base.without_kernels()}
    new = {"kernels": head.kernels_hash, **head.without_kernels()}
    names = [n for n in dict.fromkeys([*old, *new]) if old.get(n) != new.get(n)]
    return [{"what": n, "last good": old.get(n, "absent"), "first bad": new.get(n, "absent")} for n in names]


def operator_changes(base: Sequence[str], head: Sequence[str]) -> list[dict[str, str]]:
    """Operators or kernels that one side dispatched and the other did not."""
    gone = [{"operator": n, "change": "no longer dispatched"} for n in dict.fromkeys(base) if n not in set(head)]
    return [{"operator": n, "change": "new"} for n in dict.fromkeys(head) if n not in set(base)] + gone


def evidence(
    detail: IncidentDetail, pairs: Sequence[Pair], trigger: Expression | None, controls: Mapping[str, float]
) -> tuple[list[str], list[str]]:
    """Sentences for and against the trigger. ``controls`` are head / base of the frozen control kernels."""
    keys = {r.case.key for r in detail.regressions}
    confirmed = sum(r.state == TriageState.CONFIRMED for r in detail.regressions)
    total = len(detail.regressions)
    good, bad = [], []
    if confirmed:
        how = [h for h in detail.incident.evidence.get("how", []) if isinstance(h, str)]
        good.append(f"{confirmed} of {total} combinations were confirmed" + (f": {'; '.join(how)}" if how else ""))
    if confirmed < total:
        bad.append(f"{total - confirmed} of {total} combinations could not be confirmed")
    if trigger is not None:
        inside = [p for p in pairs if trigger(p.case.columns)]
        hit = sum(p.case.key in keys for p in inside)
        outside = sum(not trigger(r.case.columns) for r in detail.regressions)
        told = f"{hit} of {len(inside)} tested combinations inside the trigger regressed"
        (good if hit == len(inside) else bad).append(told)
        free = len(pairs) - len(inside)
        (bad if outside else good).append(
            f"{outside} of {free} outside it regressed" if free else "nothing was outside"
        )
    elif detail.incident.trigger_text:
        bad.append("the trigger's text cannot be read as a predicate")
    elif came_with := trail.causes(detail.incident.evidence):
        good.append(
            f"all of them came with a new compiler ({'; '.join(came_with)}), so that no predicate was looked for"
        )
    else:
        bad.append("no predicate separates the regressed combinations from the others better than chance")
    others = [a for a in detail.incident.evidence.get("alternatives", []) if isinstance(a, str)]
    if others:
        bad.append(f"{text.count(len(others), 'other predicate')} fit these combinations as well")
    crossing = sum(r.ratio_low is not None and r.ratio_low <= 1 for r in detail.regressions)
    if crossing:
        bad.append(f"the interval of {text.count(crossing, 'combination')} reaches no change at all")
    for name, ratio in controls.items():
        words = f"the frozen control {name.removeprefix('control_').removesuffix('_s')} moved by {text.effect(ratio)}"
        (bad if abs(ratio - 1) > 0.05 else good).append(f"{words} between the two runs")
    return good, bad


def table(
    regressions: Sequence[RegressionRow], suite: str, base: RunRow | None, head: RunRow | None
) -> list[dict[str, Any]]:
    """Combinations as flat rows, each with the command that measures it again."""
    varying = {k for k in PARAMETERS if len({str(r.case.params.get(k)) for r in regressions}) > 1}
    out = []
    for r in regressions:
        shapes = {
            k: v for k, v in r.case.params.items() if k in varying or k not in PARAMETERS or len(regressions) == 1
        }
        change = text.effect(r.ratio, r.ratio_low, r.ratio_high) if r.ratio else f"{r.base_status} → {r.head_status}"
        out.append({
            "backend": r.case.backend, "benchmark": r.case.benchmark, **shapes, "metric": r.metric, "effect": change,
            "ratio": r.ratio, "state": text.label(r.state), "p": r.p_value,
            "reproduce": reproduce(where_of(r.case), suite, base, head),
        })  # fmt: skip
    return out
