"""Reports as facts: what `attnwatch compare --json` and `attnwatch nightly --json` print, checked field by field.

A report may come from the code of a stranger's pull request, so nothing of it is taken on trust: kinds, statuses,
ranges and sizes are checked, and an InputError names the file and the field.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from harness.likely import KINDS
from harness.model import InputError, Scalar, Status, VerdictKind
from harness.model.reading import read_text

from .cases import COMMIT, label_of, terms_of
from .facts import Change, Facts, Group, Kind, ranked
from .fields import Fields

LIMIT_BYTES = 64 << 20
_MOST_CASES = 200_000
_MOST_GROUPS = 10_000

#: What a row of `compare` holds beside the columns of its case.
FIGURES = frozenset(
    {
        *("base_status", "head_status", "verdict", "ratio", "ratio_low", "ratio_high"),
        *("p", "smallest_detectable", "detail", "lost_s"),
    }
)
_STATUSES = tuple(s.value for s in Status)
_VERDICTS = tuple(v.value for v in VerdictKind)
_GONE = tuple(s.value for s in Status if s.absent)
Command = Callable[[str, str], str]


def read_report(path: str, command: Command | None = None) -> Facts:
    """Facts of the report in a file (``-`` is standard input). ``command`` makes one from the names of both sides."""
    name = "<stdin>" if path == "-" else path
    return from_json(read_text(path, LIMIT_BYTES), name, command)


def from_json(text: str, name: str, command: Command | None = None) -> Facts:
    """Facts of a report; ``name`` is what messages call it."""
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as err:
        line = f":{err.lineno}" if isinstance(err, json.JSONDecodeError) else ""
        raise InputError(f"{name}{line}: not JSON: {getattr(err, 'msg', None) or err}") from None
    if not isinstance(data, dict):
        raise InputError(f"{name}: holds no object; give what `attnwatch compare --json` printed")
    fields = Fields(data, name)
    if "incidents" in data and "run_id" in data:
        from .nights import from_night

        return from_night(fields)
    if isinstance(data.get("cases"), dict):
        return _from_samples(fields)
    if isinstance(data.get("cases"), list):
        return _from_comparison(fields, command)
    raise InputError(f"{name}: field cases: is missing; give what `attnwatch compare --json` printed")


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _from_comparison(report: Fields, command: Command | None) -> Facts:
    rows = report.objects("cases", _MOST_CASES)
    read = [_row(r) for r in rows]
    base, head = report.text("base", ""), report.text("head", "")
    changes = {_identity(columns): change for columns, change, _, _ in read}
    bad = {_identity(columns): _kind(change, verdict) for columns, change, verdict, _ in read}
    adverse = {key: kind for key, kind in bad.items() if kind is not None}
    groups, covered = _triggered(report, changes, adverse)
    groups += _rest(changes, adverse, covered, len(read))
    groups += _compiled(report)
    judged = [(c, v, least) for _, c, v, least in read if v is not None]
    # What was found is no longer what could have been missed.
    missed = [x for x in judged if x[1] != VerdictKind.SLOWER] or judged
    leasts = [least for _, _, least in missed if least is not None]
    return Facts(
        base=base, head=head, cases=len(read), judged=len(judged), groups=ranked(groups),
        faster=_sorted(c for c, v, _ in judged if v == VerdictKind.FASTER),
        unsettled=_sorted(c for c, v, _ in judged if v == VerdictKind.AMBIGUOUS),
        failed=tuple(c for _, c, v, _ in read if v is None and Status(c.base_status).failed),
        unsupported=sum(v is None and c.base_status in (*_GONE, Status.DESELECTED) for _, c, v, _ in read),
        left_out=len(report.objects("left_out", _MOST_CASES, [])),
        left_out_kinds=_kinds(report), unaffected=report.count("unaffected"),
        brought_by=tuple(c for c in report.texts("brought_by", 64) if COMMIT.fullmatch(c)),
        smallest_detectable=median(leasts) if leasts else None,
        unchanged=report.data.get("unchanged") is True,
        command=command(base, head) if command is not None else "",
    )  # fmt: skip


def _compiled(report: Fields) -> list[Group]:
    """What ``attnwatch static --add-to`` put into the report; its incidents are in no store."""
    if report.data.get("static") is None:
        return []
    from .nights import from_night

    facts = from_night(report.child("static"))
    return [replace(g, incident="", command=facts.command) for g in facts.groups]


def _kinds(report: Fields) -> tuple[tuple[str, int], ...]:
    """(kind, how many) of what was left out; kinds that nobody knows are passed over."""
    if report.data.get("left_out_kinds") is None:
        return ()
    held = report.child("left_out_kinds")
    return tuple((kind, n) for kind in KINDS if (n := held.count(kind)))


def _row(row: Fields) -> tuple[dict[str, Scalar], Change, str | None, float | None]:
    columns = {k: row.scalar(k) for k in row.data if k not in FIGURES}
    verdict = row.choice("verdict", _VERDICTS)
    change = Change(
        label=label_of(columns), metric="status" if verdict is None else "latency_s",
        ratio=row.positive("ratio"), low=row.positive("ratio_low"),
        high=row.positive("ratio_high"), base_status=row.choice("base_status", _STATUSES) or "ok",
        head_status=row.choice("head_status", _STATUSES) or "ok", detail=row.text("detail", ""),
        lost_s=row.number("lost_s") or 0.0, terms=terms_of(columns),
    )  # fmt: skip
    if verdict is not None and change.ratio is None:
        raise row.fail("ratio", "is missing beside a verdict")
    return columns, change, verdict, row.positive("smallest_detectable")


def _kind(change: Change, verdict: str | None) -> Kind | None:
    if verdict == VerdictKind.SLOWER:
        return "slower"
    if verdict is None and change.base_status == Status.OK:
        if Status(change.head_status).broken:
            return "status"
        if change.head_status in _GONE:
            return "gone"
    return None


Key = tuple[tuple[str, str], ...]


def _identity(columns: Mapping[str, Scalar]) -> Key:
    return tuple(sorted((k, repr(v)) for k, v in columns.items()))


def _triggered(report: Fields, changes: dict[Key, Change], adverse: dict[Key, Kind]) -> tuple[list[Group], set[Key]]:
    groups: list[Group] = []
    covered: set[Key] = set()
    for t in report.objects("triggers", _MOST_GROUPS, []):
        combinations = t.objects("combinations", _MOST_CASES, [])
        keys = [_identity({k: c.scalar(k) for k in c.data}) for c in combinations]
        hit = [k for k in keys if k in adverse]
        if not hit:
            continue  # what the cases do not bear out is not told
        covered.update(hit)
        kinds = {adverse[k] for k in hit}
        total, inside = t.count("total"), t.count("inside")
        low, high = t.interval("effect_ci")
        kind: Kind = "slower" if kinds == {"slower"} else "status" if "status" in kinds else "gone"
        groups.append(
            Group(
                kind=kind, metric="latency_s" if kind == "slower" else "status", trigger=t.text("text"),
                changes=_sorted(changes[k] for k in hit), effect=t.positive("effect"), low=low, high=high,
                hit=t.count("regressed_inside"), inside=inside, outside=max(0, total - inside),
                hit_outside=max(0, t.count("regressed_total") - t.count("regressed_inside")),
                alternatives=tuple(t.texts("alternatives", 64)),
            )
        )  # fmt: skip
    return groups, covered


def _rest(changes: dict[Key, Change], adverse: dict[Key, Kind], covered: set[Key], total: int) -> list[Group]:
    """What no trigger covers, by kind."""
    out = []
    for kind in ("slower", "status", "gone"):
        held = _sorted(changes[k] for k, found in adverse.items() if found == kind and k not in covered)
        if held:
            metric = "latency_s" if kind == "slower" else "status"
            out.append(scattered(kind, metric, held, total))
    return out


def scattered(kind: Kind, metric: str, changes: tuple[Change, ...], total: int, *, confirmed: bool = True) -> Group:
    """A group without a trigger: its effect is that of the median case, its interval spans those of all."""
    ratios = sorted(c.ratio for c in changes if c.ratio is not None)
    lows, highs = [c.low for c in changes if c.low is not None], [c.high for c in changes if c.high is not None]
    return Group(
        kind=kind, metric=metric, trigger=None, changes=changes, effect=median(ratios) if ratios else None,
        low=min(lows) if lows else None, high=max(highs) if highs else None, hit=len(changes), inside=total,
        confirmed=confirmed,
    )  # fmt: skip


def _from_samples(report: Fields) -> Facts:
    """What ``compare --csv`` says: verdicts by name, without triggers."""
    changes: dict[str, tuple[Change, str]] = {}
    leasts = []
    for name, row in report.named("cases", _MOST_CASES):
        low, high = row.interval("ratio_ci")
        verdict = row.choice("verdict", _VERDICTS)
        if verdict is None:
            raise row.fail("verdict", "is missing")
        changes[name] = Change(label=name, ratio=row.positive("ratio"), low=low, high=high, metric="value"), verdict
        leasts.append(row.positive("smallest_detectable"))
    by = {v: _sorted(c for c, found in changes.values() if found == v) for v in _VERDICTS}
    groups = [scattered("slower", "value", by["slower"], len(changes))] if by["slower"] else []
    known = [math.inf if x is None else x for x in leasts]
    least = median(known) if known else None
    return Facts(
        cases=len(changes), judged=len(changes), groups=tuple(groups), faster=by["faster"], unsettled=by["ambiguous"],
        smallest_detectable=least if least is not None and math.isfinite(least) else None,
    )  # fmt: skip


def _sorted(changes: Any) -> tuple[Change, ...]:
    """The dearest first, then the largest effect; labels break ties."""
    return tuple(sorted(changes, key=lambda c: (-c.lost_s, -abs(math.log(c.ratio or 1e9)), c.label)))
