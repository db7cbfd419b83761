"""The way from the case that was measured to those who were told, and what an incident came with: records to words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dashboard import text
from db.queries import CaseRow, IncidentDetail, RunRow
from harness.model import TriageState
from harness.model.findings import CAME_WITH
from harness.model.traces import span_id, trace_id

_TRACE = re.compile(r"[0-9a-f]{32}-[0-9a-f]{16}")
_GROWTH = re.compile(r"(\w+)\^(-?\d+(?:\.\d+)?) -> \1\^(-?\d+(?:\.\d+)?) (\[.{1,40}\])")
#: Attempts at one case of a run that are looked for.
_ATTEMPTS = 3


def causes(evidence: Mapping[str, Any]) -> list[str]:
    """New compilers that the findings came with: ``triton 3.7.1 -> 3.8.0``."""
    found = [h.rpartition(CAME_WITH)[2] for h in _texts(evidence, "how") if CAME_WITH in h]
    return list(dict.fromkeys(found))


def growths(evidence: Mapping[str, Any]) -> list[str]:
    """How fast numbers grow: ``seq_len: exponent 1.0 -> 2.0, 95 % interval [1.95, 2.04]``; as stored where it reads
    otherwise."""
    out = []
    for told in _texts(evidence, "growth"):
        m = _GROWTH.fullmatch(told)
        out.append(
            f"{m[1]}: exponent {float(m[2]):.1f} -> {float(m[3]):.1f}, 95 % interval {m[4]}" if m is not None else told
        )
    return out


def traces(evidence: Mapping[str, Any]) -> list[str]:
    """The traces of the first findings, without what has not the form of one."""
    return [t for t in _texts(evidence, "traces") if _TRACE.fullmatch(t)]


def measured(detail: IncidentDetail, runs: Iterable[RunRow]) -> list[dict[str, Any]]:
    """A row for each trace: when, at which revision, which case and which attempt; what the runs do not tell is empty.

    ``runs`` are where a trace is looked for.
    """
    where = {trace_id(r.id): r for r in runs}
    told = traces(detail.incident.evidence)
    cases = list({g.case.key: g.case for g in detail.regressions}.values())
    held = [t for t in told if t[:32] in where]
    found = _spans([where[t[:32]] for t in held], cases, held)
    out = []
    for trace in told:
        run = where.get(trace[:32])
        case, attempt = found.get(trace, (None, None))
        out.append({
            "trace": trace, "attempt": attempt, "started": text.when(run.started_at) if run else "",
            "revision": text.short(run.revision) if run else "", "backend": case.backend if case else "",
            "benchmark": case.benchmark if case else "", "case": case.label if case else "",
        })  # fmt: skip
    return out


def _spans(runs: Sequence[RunRow], cases: Sequence[CaseRow], told: Sequence[str]) -> dict[str, tuple[CaseRow, int]]:
    """Trace -> its case and attempt. A span is a hash, so that it is found by trying, first attempts first."""
    wanted, found = set(told), {}
    for trace, case, attempt in _every({r.id for r in runs}, cases):
        if trace in wanted:
            found[trace] = case, attempt
            if len(found) == len(wanted):
                break
    return found


def _every(runs: Iterable[str], cases: Sequence[CaseRow]) -> Iterator[tuple[str, CaseRow, int]]:
    names = {run: trace_id(run) for run in runs}
    for attempt in range(1, _ATTEMPTS + 1):
        for run, name in names.items():
            for case in cases:
                yield f"{name}-{span_id(run, case.key, attempt)}", case, attempt


def steps(detail: IncidentDetail, head: RunRow | None) -> list[tuple[str, str]]:
    """The stations after measuring, in order: what happened there, as (word, sentence)."""
    i, evidence = detail.incident, detail.incident.evidence
    total = len(detail.regressions)
    confirmed = sum(g.state == TriageState.CONFIRMED for g in detail.regressions)
    run = f"with the run of {text.when(head.started_at)} UTC" if head is not None else "with a run that is not stored"
    judged = f"{run}; {confirmed:,} of {text.count(total, 'combination')} confirmed"
    return [("Judged", judged), ("Let through", _policy(evidence)), ("Told", _told(detail)), _last(detail, i.opened_at)]


def _policy(evidence: Mapping[str, Any]) -> str:
    version = evidence.get("policy")
    severity = evidence.get("severity")
    as_what = f", with severity {severity}" if isinstance(severity, str) and severity else ""
    if not isinstance(version, str):
        return f"by which policy is not recorded{as_what}"
    return (f"by the policy of version {version}" if version else "with no policy file named") + as_what


def _told(detail: IncidentDetail) -> str:
    i, new = detail.incident, TriageState.NEW.value
    if i.evidence.get("shadow"):
        return "nobody: it was found in shadow"
    if i.state != new and not any(new in (e.from_state, e.to_state) for e in detail.events):
        return "nobody: it was never new, and only what is new and confirmed is told"
    named = next(iter(traces(i.evidence)), None)
    what = f"the trace {named}" if named else "no trace"
    to = f"those of {i.owner}" if i.owner else "everybody who takes notices"
    when = "" if i.state == new else f", while it was new (it is {text.label(i.state)} now)"
    return (
        f"attnwatch notify tells {to}{when}, and names {what}; what was sent stands in its own file, not in the store"
    )


def _last(detail: IncidentDetail, opened_at: float) -> tuple[str, str]:
    # The first event only opens it, which nobody decides.
    if not detail.events or detail.events[-1].from_state is None:
        return "Looked after", f"by nobody since {text.when(opened_at)} UTC"
    e = detail.events[-1]
    return "Looked after", f"{text.label(e.to_state)} by {e.author}, {text.when(e.at)} UTC: {e.reason}"


def _texts(evidence: Mapping[str, Any], key: str) -> list[str]:
    held = evidence.get(key)
    return [t for t in held if isinstance(t, str)] if isinstance(held, list) else []
