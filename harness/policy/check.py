"""What the rules of a policy match in a store: a rule that matches nothing is most often a slip."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from db.engine import Store
from db.queries import cases
from harness.model import METRICS
from harness.model.params import PARAMETERS, SEQ_LEN

from .records import CaseColumns, Policy, Rule, Settings

_COLUMNS = {*PARAMETERS, SEQ_LEN, "backend", "operation", "benchmark"}
_GLOB = set("*?[")


def check(policy: Policy, store: Store | None) -> dict[str, Any]:
    """The policy as plain values: per rule how many stored cases it ``matches`` and how many it ``decides``.

    Both are None without a store. A rule decides a case where no later rule overrides all that it sets. ``warnings``
    name columns, metrics, backends and benchmarks that nothing has.
    """
    held: list[CaseColumns] | None = None if store is None else [c.columns for c in cases(store).values()]
    warnings: list[str] = []
    rows = []
    for number, rule in enumerate(policy.rules):
        matched = None if held is None else [c for c in held if rule.matches_case(c)]
        later = policy.rules[number + 1 :]
        decided = None if matched is None else sum(_decides(rule, later, c) for c in matched)
        rows.append(
            {
                "rule": number + 1, "name": rule.name or None, "line": rule.line, **_matching(rule),
                **_settings(rule.settings), "matches": None if matched is None else len(matched), "decides": decided,
            }
        )  # fmt: skip
        warnings += [f"{policy.path}:{rule.line}: {text}" for text in _doubts(rule, held, matched)]
    return {
        "policy": policy.path, "version": policy.version or None, "defaults": _settings(policy.defaults),
        "shadow": {
            "nights": policy.shadow.nights, "until": str(policy.shadow.until) if policy.shadow.until else None,
            "always": policy.shadow.always,
        },
        "budget": {"night_s": policy.night_budget_s, "confirm_s": policy.confirm_budget_s},
        "store": None if store is None else store.name, "cases": None if held is None else len(held),
        "rules": rows, "warnings": warnings,
    }  # fmt: skip


def _decides(rule: Rule, later: Iterable[Rule], case: CaseColumns) -> bool:
    left = {name for name, value in _settings(rule.settings).items() if value is not None}
    for other in later:
        as_wide = not other.metric or (bool(rule.metric) and set(rule.metric) <= set(other.metric))
        if as_wide and other.matches_case(case):
            left -= {name for name, value in _settings(other.settings).items() if value is not None}
    return bool(left)


def _matching(rule: Rule) -> dict[str, Any]:
    return {
        "benchmark": list(rule.benchmark) or None, "backend": list(rule.backend) or None,
        "metric": list(rule.metric) or None, "where": rule.where.text if rule.where else None,
    }  # fmt: skip


def _settings(s: Settings) -> dict[str, Any]:
    quiet = s.quiet_hours
    hours = None if quiet is None else f"{_clock(quiet.start)}-{_clock(quiet.end)} {quiet.zone}"
    return {"minimum_effect": s.minimum_effect, "severity": s.severity, "owner": s.owner, "quiet_hours": hours}


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


def _doubts(rule: Rule, held: list[CaseColumns] | None, matched: list[CaseColumns] | None) -> list[str]:
    told = [_unknown("metric", m, METRICS) for m in rule.metric]
    names = _COLUMNS if held is None else _COLUMNS.union(*held)
    told += [_unknown("column", n, names) for n in sorted(rule.where.names if rule.where else ())]
    for kind, patterns in (("backend", rule.backend), ("benchmark", rule.benchmark)):
        if held:
            told += [_unknown(kind, p, {str(c.get(kind)) for c in held}) for p in patterns]
    out = [t for t in told if t]
    if matched is not None and held and not matched and not out:
        out.append(f"matches none of the {len(held)} stored cases")
    return out


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    known = sorted(set(known))
    if name in known or _GLOB & set(name):
        return ""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"no {kind} {name!r} is known" + (f"; did you mean {', '.join(near)}?" if near else "")
