"""Facts of a judged run: from the report that ``nightly --json`` prints, or from the store."""

from __future__ import annotations

from statistics import median

from db.engine import Store
from db.queries import IncidentDetail, RunRow, counts_by_status, incident, incidents, latest_run, run
from db.screens import pairs
from harness.model import InputError, Status, TriageState
from harness.model.findings import CAME_WITH, STATUS
from harness.model.metrics import metric as metric_of
from harness.static.bundle import SUITES

from .cases import compare_command, label_of, static_command, suite_option, terms_of
from .facts import Change, Facts, Group, Kind, ranked
from .fields import Fields

_MOST = 100_000
_STATUSES = tuple(s.value for s in Status)
#: People have seen these; what nobody has seen yet is what turns a run red.
_KNOWN = frozenset({TriageState.CONFIRMED.value, TriageState.ACKNOWLEDGED.value})
_NOTHING = (None, None)
_TOLD = frozenset({TriageState.NEW.value, TriageState.SUSPECT.value})


def from_night(report: Fields) -> Facts:
    """Facts of a night's report; incidents in shadow count as suspects."""
    groups = []
    known = list(report.texts("still_open", 1000))
    for i in report.objects("incidents", _MOST):
        state = i.text("state")
        if state in _KNOWN or i.data.get("is_new") is False:
            known.append(i.text("id"))
            continue
        if state not in _TOLD:
            continue
        changes = tuple(_finding(f) for f in i.objects("findings", _MOST))
        confirmed = state == TriageState.NEW and not i.data.get("shadow")
        groups.append(
            _group(
                changes, i.text("trigger", ""), i.text("evidence", ""), i.count("tested"), confirmed, i.text("id"),
                (i.positive("effect"), i.positive("effect_low"), i.positive("effect_high")),
                tuple(i.texts("alternatives", 64)), changes[0].detail if changes else "",
            )
        )  # fmt: skip
    counts = {k: report.child("counts").count(k) for k in report.child("counts").data}
    base = report.child("base_revision").text("id", "") if report.data.get("base_revision") else ""
    return Facts(
        base=base, head=report.child("revision").text("id", ""), cases=sum(counts.values()),
        judged=counts.get("ok", 0), groups=ranked(groups),
        failed=tuple(_failure(f) for f in _rows(report, "failures", 3)) if not counts.get("ok") else (),
        unsupported=counts.get("unsupported", 0), smallest_detectable=report.positive("smallest_detectable"),
        notes=tuple(report.texts("notes", 64)), command=_again(report),
        known=tuple(known),
    )  # fmt: skip


def from_store(store: Store, run_id: str | None = None) -> Facts:
    """Facts of a stored run, the latest by default: incidents that it shows and that nobody has settled.

    InputError where there is no such run.
    """
    found = run(store, run_id) if run_id is not None else latest_run(store)
    if found is None:
        what = f"no run {run_id!r}" if run_id else "no run yet"
        raise InputError(f"{store.name}: {what}; `attnwatch ingest` stores one")
    counts = counts_by_status(store, [found.id])[found.id]
    held = incidents(store, states=_TOLD | _KNOWN, machine=found.machine)
    details = [d for i in held if (d := incident(store, i.id))]
    here = [d for d in details if any(r.head_run == found.id for r in d.regressions)]
    shown = [d for d in here if d.incident.state in _TOLD]
    known = tuple(d.incident.id for d in here if d.incident.state in _KNOWN)
    bases = sorted({d.incident.last_good_revision for d in shown if d.incident.last_good_revision})
    leasts = [x for d in shown for r in d.regressions if (x := r.smallest_detectable) is not None]
    return Facts(
        base=", ".join(bases), head=found.revision, cases=sum(counts.values()), judged=counts.get("ok", 0),
        groups=ranked([_stored(d, _values(store, d)) for d in shown]), unsupported=counts.get("unsupported", 0),
        smallest_detectable=median(leasts) if leasts else None, command=_again_stored(store, found, shown),
        known=known,
    )  # fmt: skip


def _again(report: Fields) -> str:
    if not report.data.get("base_revision"):
        return ""
    base, head = report.child("base_revision").text("commit", ""), report.child("revision").text("commit", "")
    if report.text("suite", "") in SUITES.values():
        return static_command(base, head)
    suite = suite_option(report.text("suite", ""))
    return compare_command(base, head, suite, trusted=False) if base != head else ""


def _again_stored(store: Store, head: RunRow, shown: list[IncidentDetail]) -> str:
    bases = {r.base_run for d in shown for r in d.regressions if r.base_run is not None}
    base = run(store, min(bases)) if len(bases) == 1 else None
    if base is None or base.commit == head.commit:
        return ""
    if head.suite in SUITES.values():
        return static_command(base.commit or "", head.commit or "")
    return compare_command(base.commit or "", head.commit or "", suite_option(head.suite), trusted=False)


#: (case key, metric) -> values of base and head.
Values = dict[tuple[str, str], tuple[float, float]]


def _values(store: Store, detail: IncidentDetail) -> Values:
    """Values of exact metrics that grew from 0, which no ratio tells."""
    asked = {(r.metric, r.base_run, r.head_run) for r in detail.regressions if r.ratio is None and r.metric != STATUS}
    return {
        (p.case.key, metric): (p.base.value, p.head.value)
        for metric, base, head in asked
        if base is not None and head is not None
        for p in pairs(store, metric, base, head)
        if p.base is not None and p.head is not None
    }


def _stored(detail: IncidentDetail, values: Values) -> Group:
    i = detail.incident
    changes = tuple(
        Change(
            label=label_of(r.case.columns), metric=r.metric, ratio=r.ratio, low=r.ratio_low,
            high=r.ratio_high, base_status=r.base_status, head_status=r.head_status,
            terms=terms_of(r.case.columns), before=values.get((r.case.key, r.metric), _NOTHING)[0],
            after=values.get((r.case.key, r.metric), _NOTHING)[1],
        )
        for r in detail.regressions
    )  # fmt: skip
    evidence = i.evidence
    tested = evidence.get("tested")
    confirmed = i.state == TriageState.NEW and not evidence.get("shadow")
    others = tuple(str(a) for a in evidence.get("alternatives", ()))
    numbers = (i.effect, i.effect_low, i.effect_high)
    how = evidence.get("how")
    return _group(
        changes, i.trigger_text, str(evidence.get("counts") or ""), tested if isinstance(tested, int) else 0, confirmed,
        i.id, numbers, others, str(how[0]) if isinstance(how, list) and how else "",
    )  # fmt: skip


def _group(
    changes: tuple[Change, ...],
    trigger: str,
    evidence: str,
    tested: int,
    confirmed: bool,
    name: str,
    effect: tuple[float | None, float | None, float | None],
    alternatives: tuple[str, ...],
    how: str = "",
) -> Group:
    lead = changes[0].metric if changes else "latency_s"
    kind: Kind = "status" if lead == STATUS else "more" if metric_of(lead).exact or lead != "latency_s" else "slower"
    same = [c for c in changes if c.metric == lead]
    hit, inside, hit_outside, outside = _counted(evidence) or (len(same), max(tested, len(same)), 0, 0)
    return Group(
        kind=kind, metric=lead, trigger=trigger or None, changes=changes, effect=effect[0], low=effect[1],
        high=effect[2], hit=hit, inside=inside, hit_outside=hit_outside, outside=outside, confirmed=confirmed,
        alternatives=alternatives, incident=name, cause=how.partition(CAME_WITH)[2],
    )  # fmt: skip


def _counted(evidence: str) -> tuple[int, int, int, int] | None:
    """The four counts of "12 of 12 regressed inside, 0 of 132 outside"."""
    words = evidence.replace(",", "").split()
    numbers = [int(w) for w in words if w.isdigit() and len(w) < 10]
    return (numbers[0], numbers[1], numbers[2], numbers[3]) if len(numbers) == 4 else None


def _finding(f: Fields) -> Change:
    case = f.child("case")
    workload = case.child("workload")
    params = workload.child("params")
    columns = {"backend": case.text("backend"), "benchmark": case.text("benchmark", "")}
    held = {**columns, **{k: params.scalar(k) for k in params.data}}
    return Change(
        label=label_of(held), metric=f.text("metric"), ratio=f.positive("ratio"),
        low=f.positive("low"), high=f.positive("high"), base_status=f.choice("base_status", _STATUSES) or "ok",
        head_status=f.choice("head_status", _STATUSES) or "ok", detail=f.text("how", ""), terms=terms_of(held),
        before=f.number("level"), after=f.number("value"),
    )  # fmt: skip


def _rows(report: Fields, key: str, width: int) -> list[list[str]]:
    held = report.data.get(key, [])
    if not isinstance(held, list) or not all(isinstance(r, list) and len(r) == width for r in held):
        raise report.fail(key, f"must be a list of {width} texts each")
    return [[str(x)[:2000] for x in r] for r in held[:_MOST]]


def _failure(row: list[str]) -> Change:
    return Change(label=f"{row[0]} {row[1]}", metric=STATUS, base_status="failed", head_status="failed", detail=row[2])
