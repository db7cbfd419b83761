"""A policy and how it is asked. Rules go from the general to the special: the last one that matches decides.

Each setting is decided by itself, so that a later rule that only names an owner leaves the effect of an earlier one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from typing import Any
from zoneinfo import ZoneInfo

from harness.model import PRIMARY, metric
from harness.model.expr import Expression
from harness.model.findings import STATUS

#: Smallest relative change of a timed metric that is told where no policy says otherwise.
DEFAULT_EFFECT = 0.02

#: Weight of a finding for those who send notices, the lightest first.
SEVERITIES = ("low", "normal", "high")

CaseColumns = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Minutes after midnight in ``zone`` between which no notice is sent; ``end`` may lie on the next day."""

    start: int
    end: int
    zone: str = "UTC"

    def hold(self, at: float) -> bool:
        """Whether the time ``at`` (seconds since the epoch) lies in them."""
        # UTC is known to Python itself; other zones come from the system.
        there = datetime.fromtimestamp(at, UTC if self.zone == "UTC" else ZoneInfo(self.zone))
        minute = there.hour * 60 + there.minute
        if self.start <= self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


@dataclass(frozen=True, slots=True)
class Settings:
    """What a rule may set; None where it says nothing. ``minimum_effect`` is a share: 0.02 for 2 %."""

    minimum_effect: float | None = None
    severity: str | None = None
    owner: str | None = None
    quiet_hours: QuietHours | None = None

    def over(self, earlier: Settings) -> Settings:
        """These settings, those of ``earlier`` where they say nothing."""
        said = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}
        return replace(earlier, **said)


@dataclass(frozen=True, slots=True)
class Rule:
    """Settings for the cases that all given patterns match; an empty pattern matches everything.

    ``benchmark``, ``backend``, ``metric`` are globs of which one must match; ``where`` an expression over the case's
    columns. ``line`` is where the rule begins in its file.
    """

    settings: Settings
    benchmark: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()
    metric: tuple[str, ...] = ()
    where: Expression | None = None
    name: str = ""
    line: int = 0

    def matches_case(self, case: CaseColumns) -> bool:
        """Whether the case is meant, whatever the metric. ``case`` as :attr:`harness.model.Case.columns`."""
        return (
            _any(self.benchmark, case.get("benchmark"))
            and _any(self.backend, case.get("backend"))
            and (self.where is None or self.where(case))
        )

    def matches(self, case: CaseColumns, metric_name: str) -> bool:
        """Whether this metric of the case is meant."""
        return _any(self.metric, metric_name) and self.matches_case(case)


def _any(patterns: tuple[str, ...], value: Any) -> bool:
    return not patterns or (value is not None and any(fnmatchcase(str(value), p) for p in patterns))


@dataclass(frozen=True, slots=True)
class Shadow:
    """When findings are reported without alerting anyone: for the first ``nights`` of a machine, and before ``until``.

    None of both by default: what alerts was measured again, and that needs no history.
    """

    nights: int = 0
    until: date | None = None
    always: bool = False

    def holds(self, earlier_nights: int, at: float) -> bool:
        """Whether a night is in shadow that has so many before it and began at ``at`` (seconds since the epoch)."""
        before = self.until is not None and datetime.fromtimestamp(at, UTC).date() < self.until
        return self.always or before or earlier_nights < self.nights

    def text(self, earlier_nights: int) -> str:
        """Why and for how long, in a few words."""
        if self.always:
            return "until the policy says otherwise"
        if earlier_nights < self.nights:
            return f"night {earlier_nights + 1} of {self.nights}"
        return f"until {self.until}"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy file, or what holds without one (``path`` None).

    ``night_budget_s`` bounds a night where ``--budget`` is not given, ``confirm_budget_s`` measuring suspects again.
    ``version`` is a hash of the file's text, 12 hex digits.
    """

    defaults: Settings = Settings()
    rules: tuple[Rule, ...] = ()
    shadow: Shadow = Shadow()
    night_budget_s: float | None = None
    confirm_budget_s: float | None = None
    path: str | None = None
    version: str = ""

    def settings(self, case: CaseColumns, metric_name: str = PRIMARY) -> Settings:
        """What holds for one metric of one case; fields that nothing sets are None."""
        # One byte more is a finding: only a rule that names the metric makes an exact one less strict.
        strict = _is_exact(metric_name)
        held = replace(self.defaults, minimum_effect=None) if strict else self.defaults
        for rule in self.rules:
            if rule.matches(case, metric_name):
                said = replace(rule.settings, minimum_effect=None) if strict and not rule.metric else rule.settings
                held = said.over(held)
        return held

    def minimum_effect(self, case_params: CaseColumns, metric: str = PRIMARY) -> float:
        """Smallest relative change of ``metric`` that is worth telling: 0.02 for 2 %, 0 for any change.

        ``case_params`` are the case's columns, as in :attr:`harness.model.Case.columns`: ``backend``, ``operation``,
        ``benchmark`` and the parameters. ``{}`` gives what holds for everything: rules that ask for more than a
        metric do not match it. Exact metrics are 0 unless a rule names them.
        """
        held = self.settings(case_params, metric).minimum_effect
        if held is not None:
            return held
        return 0.0 if _is_exact(metric) else DEFAULT_EFFECT

    def severity(self, case_params: CaseColumns, metric: str = PRIMARY) -> str:
        """``low``, ``normal`` or ``high``."""
        return self.settings(case_params, metric).severity or "normal"

    def quiet(self, case_params: CaseColumns, metric: str = PRIMARY, *, at: float | None = None) -> bool:
        """Whether no notice is to be sent at the time ``at``, now where None."""
        hours = self.settings(case_params, metric).quiet_hours
        return hours is not None and hours.hold(time.time() if at is None else at)


#: What holds where there is no policy file.
NO_POLICY = Policy()


def _is_exact(name: str) -> bool:
    return metric(name).exact or name == STATUS
