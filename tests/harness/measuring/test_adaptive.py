from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measuring.timing.adaptive import CONFIDENCE, Sampling, StopRule, interval_rank, median_interval, median_of
from harness.measuring.timing.clock import PREEMPTED, Account, collect
from harness.model import Scalar


def script() -> ModuleType:
    """``scripts/bench_adaptive.py`` as a module."""
    import sys

    path = Path(__file__).resolve().parents[3] / "scripts" / "bench_adaptive.py"
    spec = importlib.util.spec_from_file_location("bench_adaptive", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@given(st.integers(1, 300), st.sampled_from([0.9, 0.95, CONFIDENCE, 0.99]))
def test_rank_is_the_largest_with_the_confidence(n: int, confidence: float) -> None:
    def coverage(k: int) -> float:
        return 1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2**n

    k = interval_rank(n, confidence)
    assert k == 0 or coverage(k) >= confidence - 1e-9
    assert coverage(k + 1) < confidence + 1e-9


def test_rank_goes_on_smoothly_where_it_is_approximate() -> None:
    assert abs(interval_rank(4001) - interval_rank(4000)) <= 2
    assert interval_rank(100_000) < 50_000


def test_six_samples_are_the_fewest_with_an_interval() -> None:
    assert median_interval([1.0] * 5) is None
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)


@given(st.lists(st.floats(0.1, 10), min_size=6, max_size=60))
def test_interval_holds_the_sample_median(values: list[float]) -> None:
    ordered = sorted(values)
    interval = median_interval(ordered)
    assert interval is not None
    assert interval[0] <= median_of(ordered) <= interval[1]


def feed(rule: StopRule, values: list[float], step_s: float = 0.0) -> tuple[str | None, int]:
    state = Sampling(rule)
    for i, value in enumerate(values, 1):
        state.add(value)
        if (reason := state.stop(i * step_s)) is not None:
            return reason, i
    return None, len(values)


def test_quiet_samples_stop_at_the_minimum() -> None:
    assert feed(StopRule(0.05), [1.0] * 50) == ("interval", 6)
    assert feed(StopRule(0.05, min_samples=9), [1.0] * 50) == ("interval", 9)


def test_noisy_samples_stop_at_a_cap() -> None:
    noisy = [1.0, 2.0] * 100
    assert feed(StopRule(0.05, max_samples=40), noisy) == ("count", 40)
    assert feed(StopRule(0.05, max_seconds=1.0), noisy, step_s=0.1) == ("time", 10)


def test_time_stops_below_the_minimum_only_when_it_is_hard() -> None:
    assert feed(StopRule(0.05, max_seconds=1.0, hard_seconds=100.0), [1.0] * 9, step_s=2.0) == ("interval", 6)
    assert feed(StopRule(0.05, max_seconds=1.0, hard_seconds=7.0), [1.0] * 9, step_s=2.0) == ("time", 4)


@pytest.mark.parametrize("noise", ["normal 5 %", "one-sided (exponential 20 %)", "bimodal (35 % at +20 %)"])
def test_reported_interval_covers_and_samples_are_few(noise: str) -> None:
    # 400 runs: three standard errors below 95 % are 0.917.
    got = script().simulate(noise, 0.05, 400, limit=400)
    assert got.coverage >= 0.917
    assert got.ratio <= 1.5


def test_a_rule_that_looks_each_time_at_luck_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation can fail: at 80 % ranks the coverage is far below the bar."""
    module = script()
    from harness.measuring.timing import adaptive

    monkeypatch.setattr(
        adaptive,
        "median_interval",
        lambda o: (o[max(0, interval_rank(len(o), 0.8) - 1)], o[-max(1, interval_rank(len(o), 0.8))]),
    )
    monkeypatch.setattr(module, "median_interval", adaptive.median_interval)
    assert module.simulate("normal 15 %", 0.05, 300, limit=400).coverage < 0.917


class _Scripted:
    """A clock that gives what it is told; preempted samples are ten times as long."""

    flush_bytes = 0

    def __init__(self, clean_every: int) -> None:
        self.clean_every, self.calls = clean_every, 0

    def sample(self, call: object, account: object, *, cold: bool) -> tuple[float, str]:
        self.calls += 1
        if self.clean_every and self.calls % self.clean_every == 0:
            return 1.0 + 0.001 * (self.calls % 7), ""
        return 10.0, PREEMPTED

    def take(self) -> object:
        return None

    def once(self, call: object, account: object) -> tuple[object, float]:
        raise AssertionError

    def telemetry(self) -> dict[str, Scalar]:
        return {}


def test_preempted_samples_do_not_count_while_others_can_be_had() -> None:
    got = collect(_Scripted(3), lambda: None, StopRule(0.05, max_seconds=60), Account(), cold=True)
    assert max(got.values) < 1.1
    assert not got.fell_back
    assert got.discarded[PREEMPTED] >= 2 * len(got.values) - 2
    assert 0.5 < got.disturbed < 0.8


def test_a_machine_that_always_interferes_still_gives_an_answer_and_says_so() -> None:
    got = collect(_Scripted(0), lambda: None, StopRule(0.05, max_seconds=0.0), Account(), cold=True)
    assert got.fell_back
    assert got.values == [10.0] * 6
    assert got.disturbed == 1.0
    assert got.discarded == {}
