"""What there is to tell of a store and of a night's report. An event keeps its key for as long as it lasts."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from db.engine import Store
from db.queries import IncidentDetail, incident, incidents
from harness.judge.following import EVIDENCE
from harness.judge.listing import overdue_suites
from harness.model import InputError, TriageState
from harness.model.reading import read_text
from harness.policy import Policy

_LIMIT_BYTES = 256 << 20


@dataclass(frozen=True)
class Event:
    """One thing to tell: ``kind`` is new, recovered, overdue or coverage; ``quiet`` where nobody is to be woken now."""

    key: str
    kind: str
    text: str
    owner: str = ""
    severity: str = "normal"
    quiet: bool = False
    columns: Mapping[str, Any] = field(default_factory=dict, compare=False)


def events(store: Store, policy: Policy, now: float, told: Collection[str], report: str | None = None) -> list[Event]:
    """Events at the time ``now``, told or not. ``told`` are keys: only what was told can be told to be over.

    ``report`` is the file that ``nightly --json`` wrote; without it there are no coverage alarms. InputError names it.
    """
    found: list[Event | None] = [
        _new(store, policy, now, i.id) for i in incidents(store, states=[TriageState.NEW.value])
    ]
    fixed = [i.id for i in incidents(store, states=[TriageState.FIXED.value]) if f"new:{i.id}" in told]
    found += [_recovered(store, policy, now, i) for i in fixed]
    quiet = policy.quiet({}, at=now)
    owner = policy.settings({}).owner or ""
    for text in overdue_suites(store, now):
        # How late it is changes by the hour; that it is late is one event.
        found.append(Event(f"overdue:{text.partition(' for ')[0]}", "overdue", text, owner, "high", quiet))
    if report is not None:
        found += _coverage(report, owner, quiet)
    return [e for e in found if e is not None]


def over(told: Collection[str], present: Collection[Event]) -> set[str]:
    """Keys of what was late and is not any more: the next time it is late is another event."""
    late = {e.key for e in present if e.kind == "overdue"}
    return {key for key in told if key.startswith("overdue:") and key not in late}


def _new(store: Store, policy: Policy, now: float, name: str) -> Event | None:
    detail = incident(store, name)
    if detail is None or detail.incident.evidence.get("shadow"):
        return None
    i = detail.incident
    effect = "" if i.effect is None else f", {i.effect - 1:+.0%}"
    since = f", since {i.first_bad_revision[:12]}" if i.first_bad_revision else ""
    cases = f"{i.regressions} case" + ("s" if i.regressions != 1 else "")
    trace = next((f", trace {t}" for t in i.evidence.get(EVIDENCE) or ()), "")
    return _event(detail, policy, now, "new", f"{i.id}  {i.title}{effect}, {cases}{since}{trace}")


def _recovered(store: Store, policy: Policy, now: float, name: str) -> Event | None:
    detail = incident(store, name)
    return None if detail is None else _event(detail, policy, now, "recovered", f"{name}  {detail.incident.title}")


def _event(detail: IncidentDetail, policy: Policy, now: float, kind: str, text: str) -> Event:
    i = detail.incident
    worst = detail.regressions[0] if detail.regressions else None
    columns = {} if worst is None else worst.case.columns
    quiet = policy.quiet({}, at=now) if worst is None else policy.quiet(columns, worst.metric, at=now)
    severity = str(i.evidence.get("severity") or "normal")
    return Event(f"{kind}:{i.id}", kind, text, i.owner or "", severity, quiet, columns)


def _coverage(path: str, owner: str, quiet: bool) -> list[Event]:
    try:
        data = json.loads(read_text(path, _LIMIT_BYTES))
    except (ValueError, RecursionError):
        raise InputError(f"{path}: not JSON; give what `attnwatch nightly --json` printed") from None
    alarms = data.get("coverage") if isinstance(data, dict) else None
    if not isinstance(alarms, list) or not isinstance(data.get("run_id"), str):
        raise InputError(f"{path}: field coverage: is missing; give what `attnwatch nightly --json` printed")
    out = []
    for i, alarm in enumerate(alarms):
        fields = {k: alarm.get(k) if isinstance(alarm, dict) else None for k in ("kind", "subject", "state", "text")}
        for name, value in fields.items():
            if not isinstance(value, str):
                raise InputError(f"{path}: field coverage[{i}].{name}: must be text")
        if fields["state"] == "open":
            continue  # told on an earlier night
        since = alarm.get("since") or data["run_id"]
        key = f"coverage:{fields['state']}:{fields['kind']}:{fields['subject']}:{since}"
        out.append(Event(key, "coverage", str(fields["text"]), owner, "normal", quiet))
    return out
