"""How work is handed out and taken back, with a stand-in for Ray; tests/scale does it on a real cluster."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.fleet import crew, host
from harness.fleet.crew import LOSSES, Device, Work, carry_out
from harness.model import Case, InfrastructureError
from harness.rotation import Costs
from tests.db.factory import make_case

CASES = [make_case(i) for i in range(10)]


class ActorGone(Exception):
    """What Ray raises where a process or its host is gone."""


class Ray:
    """Streams that are plain iterators; the one that moved longest ago is ready."""

    exceptions = SimpleNamespace(RayActorError=ActorGone, ObjectLostError=ActorGone)

    @staticmethod
    def wait(streams: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return streams[:1], streams[1:]

    @staticmethod
    def get(record: Any) -> Any:
        if isinstance(record, Exception):
            raise record
        return record


class Crew:
    """Devices by name, each with the cases (by number) that kill it; ``told`` is what was measured, by whom."""

    def __init__(self, deadly: dict[str, Sequence[int]], error: Exception | None = None) -> None:
        about: Any = None
        self.devices = [Device(None, about, name) for name in deadly]
        self.deadly, self.error = deadly, error or ActorGone("gone")
        self.told: list[tuple[str, str]] = []
        self.crashed: list[str] = []
        self.said: list[str] = []

    def ask(self, device: Device, cases: Sequence[Case]) -> Iterator[Any]:
        fatal = {CASES[i].key for i in self.deadly[device.name]}
        for case in cases:
            yield self.error if case.key in fatal else ("done", case)

    def take(self, device: Device, _what: str, case: Case) -> Case:
        self.told.append((device.name, case.key))
        return case

    def carry_out(self, costs: Costs | None = None) -> None:
        work = Work(
            list(self.devices), CASES, costs or Costs(), self.ask, self.take, lambda c: self.crashed.append(c.key)
        )
        carry_out([work], self.said.append)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "needed", lambda module, extra: Ray)


def test_everything_once_and_shared_by_cost() -> None:
    equal = Crew({"a": (), "b": ()})
    equal.carry_out()
    assert Counter(key for _, key in equal.told) == Counter(c.key for c in CASES)
    assert Counter(name for name, _ in equal.told) == {"a": 5, "b": 5}
    one_dear = Crew({"a": (), "b": ()})
    one_dear.carry_out(Costs({c.key: 90.0 if c is CASES[3] else 10.0 for c in CASES}, overhead_s=0.0))
    assert sorted(Counter(name for name, _ in one_dear.told).values()) == [1, 9]


def test_what_a_lost_device_leaves_goes_to_the_others_once() -> None:
    lossy = Crew({"a": range(10), "b": (), "c": ()})
    lossy.carry_out()
    assert Counter(key for _, key in lossy.told) == Counter(c.key for c in CASES) and lossy.crashed == []
    assert {name for name, _ in lossy.told} == {"b", "c"}
    assert any("a is lost with 4 cases left" in text or "a is lost with 3 cases left" in text for text in lossy.said)


def test_a_case_that_takes_each_host_with_it_does_not_take_the_fleet() -> None:
    deadly = Crew({name: [4] for name in "abcd"})
    deadly.carry_out()
    assert deadly.crashed == [CASES[4].key]
    assert len([t for t in deadly.said if "is lost with" in t]) == LOSSES
    assert Counter(key for _, key in deadly.told) == Counter(c.key for c in CASES if c is not CASES[4])


def test_an_error_is_no_case_of_its_own_and_the_last_device_ends_it() -> None:
    wrong = Crew({"a": [0], "b": [0]}, InfrastructureError("the worker did not start"))
    with pytest.raises(InfrastructureError, match=r"no device of its kind is left, and \d+ cases"):
        wrong.carry_out()
    assert wrong.crashed == [] and any("the worker did not start" in text for text in wrong.said)


def test_variables_of_ray_give_way_to_those_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "999")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    # Our own start is what this process' environment file shows, whatever was set since.
    began = dict(line.partition("=")[::2] for line in Path("/proc/self/environ").read_text().split("\0"))
    host._as_on_the_host(os.getpid())
    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        assert os.environ.get(name) == began.get(name)


def test_a_gpu_is_counted_as_the_host_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert host._position("3") == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert host._position("3") == 1


def test_what_ray_says_is_cut_to_what_happened() -> None:
    created = (
        "The actor died because of an error raised in its creation task, ray::_Numbered.__init__() (pid=1)\n"
        "  File 'x.py', line 1\nharness.model.terms.InfrastructureError: a sweep on cpu is already going on"
    )
    assert crew._reason(ActorGone(created)) == "a sweep on cpu is already going on"
    assert crew._reason(ActorGone("The node died.\nmore")) == "The node died."
    assert crew._reason(ActorGone()) == "ActorGone"
