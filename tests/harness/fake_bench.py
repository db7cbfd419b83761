"""Stands in for the real Bench where a test is about processes, not about kernels. Needs no torch.

The backend's name says what happens to the case.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

from harness.hashing import content_hash
from harness.model import (
    BackendReport,
    Case,
    Environment,
    Machine,
    Measurement,
    MeasureOptions,
    Status,
    Value,
)

HOSTILE = '\x1b[31m\x00\ud800 \'quoted" [bold]\n{"kind": "end"}\u2028 ü'


class CaseFailed(Exception):
    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class Controls(NamedTuple):
    values: dict[str, Value]
    samples: dict[str, list[float]]


class Prepared:
    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.first_call_s = 0.002

    def sample(self, n: int) -> list[float]:
        if self.backend == "die_in_sample":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.backend.startswith("in_sample:"):
            _happen(self.backend.partition(":")[2])
        return [_speed()] * n

    def release(self) -> None:
        print(f"released {self.backend}", file=sys.stderr, flush=True)


class Bench:
    def __init__(self, device: str = "cpu") -> None:
        if os.environ.get("FAKE_START") == "crash":
            print("cannot live like this", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ.get("FAKE_START") == "raise":
            raise RuntimeError("no device today")
        self.device = device

    def environment(self) -> Environment:
        path = Path(sys.modules["kernels"].__file__ or "").resolve().parent
        return Environment(
            Machine(self.device, "fake"),
            kernels_hash=content_hash(path),
            kernels_path=str(path),
            variables={"FAKE": os.environ.get("FAKE", "")},
        )

    def measure(self, case: Case, options: MeasureOptions) -> Measurement:
        started = time.time()
        warnings.warn("the case begins", stacklevel=1)
        _happen(case.backend)
        if case.backend == "hostile":
            return Measurement(case, Status.CRASHED, started, detail=HOSTILE + "x" * 100_000)
        if case.backend.startswith("wrong"):
            return Measurement(case, Status.WRONG, started, detail="max error 3 > 1")
        latency = float("nan") if case.backend == "nan" else _speed()
        metrics = {"latency_s": Value(latency, latency, latency, 6)}
        return Measurement(
            case,
            Status.OK,
            started,
            time.time() - started,
            metrics=metrics,
            samples={"latency_s": [latency] * 6},
            telemetry={"pid": os.getpid(), "sid": os.getsid(0), "cwd": str(Path.cwd())},
        )

    def prepare(self, case: Case, options: MeasureOptions) -> Prepared:
        if case.backend == "unsupported":
            raise CaseFailed(Status.UNSUPPORTED, "head_dim 7 is odd")
        _happen(case.backend)
        return Prepared(case.backend)

    def controls(self, options: MeasureOptions) -> Controls:
        return Controls({"control_gemm_s": Value(1e-3, 0.9e-3, 1.1e-3, 5)}, {})

    def reports(self) -> list[BackendReport]:
        if os.environ.get("FAKE_REPORTS") == "segfault":
            ctypes.string_at(0)
        if os.environ.get("FAKE_REPORTS") == "none":
            return [BackendReport("two", False, "absent")]
        return [BackendReport("one", True, None, "1.0", ("attention",)), BackendReport("two", False, "absent")]


def _speed() -> float:
    return float(getattr(sys.modules["kernels"], "SPEED", 1e-3))


def _happen(backend: str) -> None:
    if backend == "sigkill":
        print("last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    elif backend == "segfault":
        ctypes.string_at(0)
    elif backend.startswith("state:"):
        _change(backend.partition(":")[2])
    elif backend == "exit0":
        os._exit(0)
    elif backend == "closefds":
        os.closerange(3, 4096)
    elif backend == "closefds_slow":
        os.closerange(3, 4096)
        time.sleep(600)
    elif backend.startswith("print:"):
        for _ in range(int(backend.partition(":")[2])):
            os.write(1, b"x" * 99_999 + b"\n")
    elif backend == "exit":
        os._exit(7)
    elif backend == "hang":
        time.sleep(600)
    elif backend.startswith("multiply:"):
        _multiply(Path(backend.partition(":")[2]))
    elif backend.endswith("slow"):
        time.sleep(0.3)
    elif backend == "raise":
        raise RuntimeError("boom")
    elif backend == "sysexit":
        sys.exit(3)
    elif backend == "memory":
        raise MemoryError("4 GiB")
    elif backend.startswith("children"):
        _children(Path(backend.partition(":")[2]))
    elif backend.startswith("once:"):
        marker = Path(backend.partition(":")[2])
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def _change(what: str) -> None:
    """Leave the process changed."""
    if what == "folder":
        os.chdir("/")
    elif what == "umask":
        os.umask(0o777)
    elif what == "streams":
        sys.stdout.close()
        sys.stderr.close()
        os.closerange(1, 3)
    elif what == "variable":
        os.environ["OMP_NUM_THREADS"] = "7"
    elif what == "own variable":
        os.environ["SOME_LIBRARY_HOME"] = "/secret"
    elif what == "clock":
        time.perf_counter = lambda: 0.0
    elif what == "alarm":
        signal.setitimer(signal.ITIMER_REAL, 500)
    elif what == "warnings":
        warnings.simplefilter("error")
    elif what == "child":
        if os.fork() == 0:
            time.sleep(600)
    elif what == "orphan" and (pid := os.fork()) == 0:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
        os._exit(0)
    elif what == "orphan":
        os.waitpid(pid, 0)


def _multiply(record: Path) -> None:
    """Processes that beget others, each in a session of its own; two thousand in all, then hang."""
    descriptor = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(2000):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(descriptor, f"{os.getpid()} ".encode())
                time.sleep(600)
            os._exit(0)
    time.sleep(600)


def _children(record: Path) -> None:
    """Three kinds of children that might outlive a worker; then hang."""
    pids = []
    for leave in (lambda: None, lambda: os.setpgid(0, 0), lambda: os.setsid()):
        if (pid := os.fork()) == 0:
            leave()
            time.sleep(600)
        pids.append(pid)
    record.write_text(" ".join(map(str, pids)))
    time.sleep(600)
