"""Interleaved A/B: what two processes say is asked of two others where it is little. Workers are real, kernels fake."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness import ab
from harness.detection.ab import ABOptions, ABResult
from harness.model import VerdictKind
from harness.worker import WorkerSpec

from .workers import QUICK, case, private_runtime, tree, workers_listening

#: Kernels of one speed in the first process that is started, and of another in those after it.
FIRST_DIFFERS = """
import pathlib
_seen = pathlib.Path({seen!r})
_seen.touch()
_starts = int(_seen.read_text() or 0)
_seen.write_text(str(_starts + 1))
SPEED = {first} if _starts == 0 else {then}
"""


def spec(folder: Path, first: float, then: float) -> WorkerSpec:
    folder.mkdir()
    text = FIRST_DIFFERS.format(seen=str(folder / "starts"), first=first, then=then)
    return WorkerSpec("cpu", kernels=tree(folder / "tree", text))


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNWATCH_WORKER_IDLE_S", "5")
    return private_runtime(tmp_path, monkeypatch)


def measured(tmp_path: Path, head: WorkerSpec) -> ab.ABCase:
    base = spec(tmp_path / "base", 1.0, 1.0)
    done, left = ab.run_ab([case()], base, head, QUICK, ABOptions())
    assert not left
    return done[0]


def starts(tmp_path: Path, side: str) -> int:
    return int((tmp_path / side / "starts").read_text())


def test_what_one_pair_of_processes_shows_and_another_does_not_is_ambiguous(tmp_path: Path, runtime: Path) -> None:
    done = measured(tmp_path, spec(tmp_path / "head", 1.03, 1.0))
    assert done.result is not None and done.result.verdict is VerdictKind.AMBIGUOUS
    assert done.result.low <= 1 <= done.result.high and done.result.ratio == pytest.approx(1.03)
    assert done.detail == "other processes did not show the same"
    assert starts(tmp_path, "head") == starts(tmp_path, "base") == 2
    assert workers_listening(runtime) <= 2, "the other processes end with the comparison"


def test_what_both_pairs_show_is_told(tmp_path: Path, runtime: Path) -> None:
    done = measured(tmp_path, spec(tmp_path / "head", 1.03, 1.03))
    assert done.result is not None and done.result.verdict is VerdictKind.SLOWER
    assert starts(tmp_path, "head") == 2 and not done.detail


def test_what_is_beyond_doubt_is_not_asked_again(tmp_path: Path, runtime: Path) -> None:
    done = measured(tmp_path, spec(tmp_path / "head", 2.0, 1.0))
    assert done.result is not None and done.result.verdict is VerdictKind.SLOWER
    assert starts(tmp_path, "head") == 1


@pytest.mark.parametrize(
    ("low", "high", "verdict", "doubt"),
    [
        (1.01, 1.2, VerdictKind.SLOWER, True),
        (1.06, 1.2, VerdictKind.SLOWER, False),
        (0.8, 0.99, VerdictKind.FASTER, True),
        (0.7, 0.9, VerdictKind.FASTER, False),
        (0.99, 1.01, VerdictKind.SAME, False),
        (0.9, 1.1, VerdictKind.AMBIGUOUS, False),
    ],
)
def test_doubt(low: float, high: float, verdict: VerdictKind, doubt: bool) -> None:
    assert ab.in_doubt(ABResult((low * high) ** 0.5, low, high, 0.001, verdict, 0.1, 20, 20)) is doubt


def test_who_goes_first_is_drawn(tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    base, head = spec(tmp_path / "base", 1.0, 1.0), spec(tmp_path / "head", 2.0, 2.0)
    taken = ab._Side.sample

    def noted(side: ab._Side) -> bool:
        order.append("base" if side.client.spec == base else "head")
        return taken(side)

    monkeypatch.setattr(ab._Side, "sample", noted)
    ab.run_ab([case(kv_len=n) for n in range(16, 32)], base, head, QUICK, ABOptions())
    firsts, seconds = order[0::2], order[1::2]
    assert all(a != b for a, b in zip(firsts, seconds, strict=True))
    turned = sum(a != b for a, b in itertools.pairwise(firsts)) / (len(firsts) - 1)
    assert 0.2 < turned < 0.8, "neither fixed nor by turns"
    assert len(firsts) >= 128
