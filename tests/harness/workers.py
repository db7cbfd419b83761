"""Helpers of the worker tests: a private runtime folder, small kernels trees, cases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.model import Case, MeasureOptions, Workload
from harness.worker import WorkerClient, WorkerSpec

FAKE = f"{Path(__file__).resolve().parent / 'fake_bench.py'}:Bench"
QUICK = MeasureOptions(timeout_s=20.0)


def case(backend: str = "ok", **params: int | str | bool) -> Case:
    shape: dict[str, bool | int | float | str | None] = {"batch": 1, "q_len": 16, "kv_len": 16, "dtype": "float32"}
    return Case("prefill", Workload("attention", {**shape, **params}), backend)


def tree(folder: Path, text: str = "SPEED = 0.001\n") -> str:
    """A folder with a package ``kernels`` whose ``__init__`` holds ``text``."""
    (folder / "kernels").mkdir(parents=True, exist_ok=True)
    (folder / "kernels" / "__init__.py").write_text(text)
    return str(folder)


@contextmanager
def client(folder: Path, **changes: object) -> Iterator[WorkerClient]:
    """Client of a worker with a fake bench on a tree below ``folder``; the worker is ended after."""
    spec = WorkerSpec(**{"device": "cpu", "kernels": tree(folder / "tree"), **changes})  # type: ignore[arg-type]
    worker = WorkerClient.connect(spec)
    try:
        yield worker
    finally:
        worker.shutdown()


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def eventually(check: Callable[[], bool], limit_s: float = 20.0) -> bool:
    """True as soon as ``check`` holds; False when it did not within a generous limit."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.02)
    return check()


def workers_listening(folder: Path) -> int:
    return len(list(folder.glob("*.sock")))


def private_runtime(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime folder of the test's own, and the fake bench."""
    runtime = folder / "rt"
    monkeypatch.setenv("ATTNWATCH_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("ATTNWATCH_BENCH", FAKE)
    monkeypatch.setenv("ATTNWATCH_WORKER_IDLE_S", "60")
    return runtime
