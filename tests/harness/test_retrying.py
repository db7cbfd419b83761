"""Waiting before a second try: only where time may mend it, longer while trouble lasts, and never for ever."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from harness.model import Status
from harness.retrying import PASSING, Backoff

FAILED = st.sampled_from([s for s in Status if s.failed])


def test_trouble_that_lasts_is_waited_for_longer_and_recovery_shortens_it() -> None:
    held = Backoff(first_s=1.0, most_s=8.0, in_all_s=1000.0)
    waits = []
    for again in [Status.CRASHED] * 5 + [Status.OK] * 5:
        waits.append(held.before(Status.CRASHED))
        held.after(Status.CRASHED, again)
    assert waits == [1, 2, 4, 8, 8, 8, 4, 2, 1, 1]


def test_a_wrong_result_is_asked_for_at_once() -> None:
    held = Backoff(first_s=1.0)
    for status in (Status.WRONG, Status.NON_FINITE):
        assert held.before(status) == 0.0
        held.after(status, status)
    assert held.before(Status.INVALID) == 1.0


@given(st.lists(st.tuples(FAILED, st.sampled_from(list(Status))), max_size=300))
def test_waits_are_bounded_each_and_together(ends: list[tuple[Status, Status]]) -> None:
    held = Backoff()
    waits = []
    for failed, again in ends:
        waits.append(held.before(failed))
        held.after(failed, again)
        assert waits[-1] == 0 or failed in PASSING
    assert all(0 <= w <= held.most_s for w in waits)
    assert sum(waits) <= held.in_all_s + 1e-9


def test_processes_of_a_sweep_hand_it_on(tmp_path: Path) -> None:
    path = tmp_path / "b.waits"
    waits = []
    for again in (Status.CRASHED, Status.CRASHED, Status.OK, Status.OK):
        held = Backoff.read(path)
        waits.append(held.before(Status.TIMED_OUT))
        held.after(Status.TIMED_OUT, again)
        held.write(path)
    assert waits == [0.1, 0.2, 0.4, 0.2]
    path.write_text('{"first_s": ')
    assert Backoff.read(path) == Backoff()
