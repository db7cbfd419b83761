"""Points of series as rows of a chart: units of the screen, times in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.text import number, scale, short
from db.queries import CaseRow, Point
from db.screens import EnvironmentStep

Rows = list[dict[str, Any]]


def rows_of(
    series: Mapping[str, Sequence[Point]], cases: Mapping[str, CaseRow], metric: str,
    names: Mapping[str, str], *, relative: bool = False,
    suffix: str = "",
) -> Rows:  # fmt: skip
    """One row per point; ``names`` tell cases apart; ``relative`` gives each as a share of its series' median."""
    unit_factor = scale(metric)[1]
    out = []
    for key, points in series.items():
        case = cases[key]
        known = sorted(p.value for p in points if p.value is not None)
        factor = 1 / known[len(known) // 2] if relative and known and known[len(known) // 2] else unit_factor
        for p in points:
            low, high = (None if x is None else x * factor for x in (p.low, p.high))
            value = None if p.value is None else p.value * factor
            out.append({
                "at": p.started_at * 1e3, "value": value, "low": value if low is None else low,
                "high": value if high is None else high, "name": f"{case.backend} {names[key]}{suffix}",
                "backend": case.backend, "run": p.run_id, "revision": short(p.revision), "full": p.revision,
                "status": p.status, "shown": number(p.value, metric), "measurement": p.measurement_id,
                "interval": f"{number(p.low, metric)} to {number(p.high, metric)}" if p.low is not None else "none",
            })  # fmt: skip
    return out


def flags(rows: Rows, good: str | None, bad: str | None) -> tuple[float | None, float | None]:
    """When the last run of the last good revision and the first run of the first bad one began, ms."""
    bads = [r["at"] for r in rows if r["full"] == bad]
    first = min(bads, default=None)
    goods = [r["at"] for r in rows if r["full"] == good and (first is None or r["at"] < first)]
    return max(goods, default=None), first


def upgrades(steps: Sequence[EnvironmentStep]) -> Rows:
    """Changes of the environment as marks."""
    return [
        {"at": s.started_at * 1e3, "text": "; ".join(s.changes), "short": s.changes[0].removeprefix("package ")[:40]}
        for s in steps
    ]
