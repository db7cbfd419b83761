"""What stopped being measured: each told once, and once more when it is back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from db.coverage import SuiteRun
from db.history import CaseRow, History
from harness.judge.coverage import coverage, overdue, usual_wait
from harness.model.findings import CoverageAlarm

DAY = 86400.0
CODES = ["ok", "unsupported", "deselected", "crashed", "invalid"]
OK, NO, LEFT, BROKEN, DISTURBED, ABSENT = 0, 1, 2, 3, 4, -1


def alarms(
    status: Sequence[Sequence[int]], *, n: Sequence[Sequence[int]] | None = None, backends: str = "",
    starts: Sequence[float] = (), broken_off: Sequence[int] = (),
) -> list[list[CoverageAlarm]]:  # fmt: skip
    """What each night tells; ``status`` [cases, nights]."""
    codes = np.array(status, np.int8)
    cases, nights = codes.shape
    counted = np.full(codes.shape, 10, np.int32) if n is None else np.array(n, np.int32)
    times = np.arange(nights) * DAY if not starts else np.array(starts)
    rows = [CaseRow(f"k{i}", "b", "1", "attention", backends[i] if backends else "a", {}, f"case {i}", 1.0)
            for i in range(cases)]  # fmt: skip
    runs = [SuiteRun(f"r{j}", float(times[j]), j not in broken_off) for j in range(nights)]
    nothing = np.full(codes.shape, np.nan)
    told = []
    for last in range(1, nights + 1):
        part = slice(0, last)
        past = History(
            "latency_s", "m", rows, [r.id for r in runs[part]], ["v"] * last, times[part], nothing[:, part],
            nothing[:, part], nothing[:, part], counted[:, part], codes[:, part], CODES,
            np.zeros((cases, last), np.int64),
        )  # fmt: skip
        told.append(coverage(past, runs[part]))
    return told


def spoken(told: Sequence[Sequence[CoverageAlarm]]) -> list[list[tuple[str, str, str]]]:
    return [[(a.kind, a.subject, a.state) for a in night if a.state != "open"] for night in told]


def test_a_combination_that_stops_is_told_once_and_when_it_is_back() -> None:
    told = alarms([[OK] * 7, [OK, OK, NO, ABSENT, NO, OK, OK]])
    assert spoken(told) == [[], [], [("stopped", "a", "new")], [], [], [("stopped", "a", "recovered")], []]
    assert [a.state for a in told[3]] == ["open"]
    assert told[2][0].cases == ("a case 1",)
    assert "1 combination of a stopped running" in told[2][0].text


def test_a_budget_and_a_broken_sweep_say_nothing() -> None:
    assert not any(alarms([[OK] * 4, [OK, OK, LEFT, LEFT]]))
    assert not any(alarms([[OK] * 4, [OK, OK, ABSENT, OK]], broken_off=[2]))
    assert spoken(alarms([[OK] * 4, [OK, NO, LEFT, OK]]))[2:] == [[], [("stopped", "a", "recovered")]]


def test_a_failure_is_a_finding_and_no_gap() -> None:
    assert not any(alarms([[OK] * 3, [OK, OK, BROKEN]]))


def test_a_backend_that_vanishes_is_one_alarm() -> None:
    told = alarms([[OK] * 5, [OK, OK, NO, NO, OK], [OK, OK, NO, NO, NO]], backends="abb")
    assert spoken(told) == [[], [], [("backend", "b", "new")], [], [("backend", "b", "recovered")]]
    assert "b vanished: none of its 2 combinations ran (unsupported)" in told[2][0].text
    assert "1 of its 2" in told[4][0].text


def test_what_was_removed_long_ago_is_no_longer_expected() -> None:
    told = alarms([[OK] * 20, [OK] + [ABSENT] * 19])
    assert [a.state for a in told[14]] == ["open"]
    assert told[16] == []
    assert sum(len(night) for night in spoken(told)) == 1


def test_valid_samples_that_fall_are_told_for_the_suite_or_for_one_backend() -> None:
    full = [[20] * 6 for _ in range(8)]
    fell = [[20, 20, 20, 20, 5, 20] for _ in range(8)]
    status = [[OK] * 6 for _ in range(8)]
    told = spoken(alarms(status, n=fell))
    assert told[4:] == [[("samples", "suite", "new")], [("samples", "suite", "recovered")]]
    assert not any(alarms(status, n=full))
    half = [*fell[:4], *[[20] * 6] * 5]
    told = spoken(alarms([[OK] * 6] * 9, n=half, backends="aaaabbbbb"))
    assert told[4:] == [[("samples", "a", "new")], [("samples", "a", "recovered")]]


def test_a_night_of_disturbed_cases_is_told() -> None:
    status = [[OK] * 5 for _ in range(9)] + [[OK, OK, OK, DISTURBED, OK]]
    assert spoken(alarms(status))[3:] == [[("invalid", "suite", "new")], [("invalid", "suite", "recovered")]]


def test_missing_nights_are_counted_from_the_usual_wait() -> None:
    days = [0, 1, 2.1, 3, 4, 7, 8]
    told = alarms([[OK] * 7], starts=[d * DAY for d in days])
    assert spoken(told) == [[], [], [], [], [], [("nights", "suite", "new")], []]
    assert "2 nights without a run: 3.0 days between the last two, 1.0 usually" in told[5][0].text


def test_late_is_relative_to_the_suite() -> None:
    weekly = [7 * DAY * k for k in range(6)]
    assert usual_wait(weekly) == 7 * DAY
    assert overdue(weekly, weekly[-1] + 8 * DAY) is None
    assert overdue(weekly, weekly[-1] + 14 * DAY) == 14 * DAY
    assert overdue(weekly[:3], weekly[-1] + 99 * DAY) is None
