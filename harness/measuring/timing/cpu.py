"""Timing on a CPU: monotonic clock around one call, caches emptied by reading a large buffer."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from time import perf_counter_ns

import torch

from harness.model import Scalar

from .clock import PREEMPTED, Account, Call

#: Taken as the size of the last-level cache where the system does not tell; generous for one socket.
ASSUMED_LLC_BYTES = 64 << 20

#: Share of a sample that our threads may spend waiting for a core; the kernel's own housekeeping takes 1 to 2 %.
_WAIT_SHARE = 0.05

#: Samples after which threads are looked for anew.
_LOOK_ANEW = 32

#: What the system tells of its processors.
CPUS = Path("/sys/devices/system/cpu")


def last_level_cache(cpus_folder: Path = CPUS) -> tuple[int, str]:
    """Bytes of last-level cache that the usable cores reach, and where that is known from.

    Instances are told apart by the cores that share them and added up, since a kernel may run on all of them.
    """
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    sizes: dict[tuple[int, str], int] = {}
    for cpu in usable:
        for index in (cpus_folder / f"cpu{cpu}" / "cache").glob("index*"):
            try:
                kind, level, text, shared = (
                    (index / name).read_text().strip() for name in ("type", "level", "size", "shared_cpu_list")
                )
                if kind != "Instruction":
                    sizes[int(level), shared] = _bytes(text)
            except (OSError, ValueError):
                continue
    if sizes:
        last = max(level for level, _ in sizes)
        return sum(size for (level, _), size in sizes.items() if level == last), "sysfs"
    try:
        size = os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (ValueError, OSError, AttributeError):
        size = 0
    return (size, "sysconf") if size > 0 else (ASSUMED_LLC_BYTES, "assumed")


def _bytes(text: str) -> int:
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 0)
    return int(text[:-1]) * factor if factor else int(text)


#: glibc's name for the size from which blocks are mapped one by one, and what it is fixed at: the largest it takes.
M_MMAP_THRESHOLD, LARGEST = -3, 32 << 20


def steady_allocator() -> bool:
    """Fixes the thresholds of glibc's malloc; True where that worked.

    Left alone they grow with the largest block freed so far, so that the cost of a case's allocations (fresh
    pages or recycled heap) would depend on which cases ran before it in the worker.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    m_trim_threshold = -1
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST)) and bool(mallopt(m_trim_threshold, 4 * LARGEST))


class Waiting:
    """Time that the threads of this process were ready to run and had no core, as the scheduler counts it."""

    def __init__(self, folder: str = "/proc/self/task") -> None:
        self._folder = folder
        self._files: list[int] = []
        self._calls = 0

    def nanoseconds(self) -> int:
        """Sum over all threads; 0 where the system does not tell."""
        if self._calls % _LOOK_ANEW == 0:
            self._look()
        self._calls += 1
        total = 0
        for fd in self._files:
            try:
                total += int(os.pread(fd, 64, 0).split()[1])
            except (OSError, IndexError, ValueError):
                continue  # the thread has ended
        return total

    def _look(self) -> None:
        for fd in self._files:
            os.close(fd)
        self._files = []
        try:
            threads = os.listdir(self._folder)  # noqa: PTH208
        except OSError:
            return
        for thread in threads:
            try:
                self._files.append(os.open(f"{self._folder}/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                continue


class CpuClock:
    """Cold: reads a buffer of twice the last-level cache before each call, with all of torch's threads so that
    private caches go too. Reading, because a written buffer leaves dirty lines whose write-back would be paid
    for by the kernel (seen: a third more for memory-bound calls).

    A sample during which our threads waited for a core for more than a twentieth of it is told as preempted: with
    threads that wait for each other one lost core costs a whole time slice (seen on two cores beside three busy
    processes: median 796 us for samples left alone, 775 us on the idle machine, 8.7 ms for preempted ones)."""

    def __init__(self, llc_bytes: int | None = None) -> None:
        self.llc_bytes, self.llc_source = (llc_bytes, "given") if llc_bytes else last_level_cache()
        self._buffer: torch.Tensor | None = None
        self._waiting = Waiting()
        self._result: object = None

    @property
    def flush_bytes(self) -> int:
        return 2 * self.llc_bytes

    def _flush(self) -> None:
        if self._buffer is None:
            # Written once: untouched pages would all be the one zero page, which flushes nothing.
            self._buffer = torch.ones(self.flush_bytes // 8, dtype=torch.int64)
        self._buffer.sum()

    def sample(self, call: Call, account: Account, *, cold: bool) -> tuple[float, str]:
        first = perf_counter_ns()
        self._result = None
        if cold:
            self._flush()
        flushed = perf_counter_ns()
        waited = self._waiting.nanoseconds()
        start = perf_counter_ns()  # read twice: the flush has put the clock's own code out of the caches
        result = call()
        end = perf_counter_ns()
        preempted = self._waiting.nanoseconds() - waited > _WAIT_SHARE * (end - start)
        self._result = result
        del result
        account.flush_s += (flushed - first) * 1e-9
        account.kernel_s += (perf_counter_ns() - start) * 1e-9
        return (end - start) * 1e-9, PREEMPTED if preempted else ""

    def once(self, call: Call, account: Account) -> tuple[object, float]:
        start = perf_counter_ns()
        result = call()
        seconds = (perf_counter_ns() - start) * 1e-9
        account.kernel_s += seconds
        return result, seconds

    def take(self) -> object:
        result, self._result = self._result, None
        return result

    def telemetry(self) -> dict[str, Scalar]:
        found: dict[str, Scalar] = {}
        millidegrees = _number(Path("/sys/class/thermal/thermal_zone0/temp"))
        if millidegrees is not None:
            found["temperature_c"] = millidegrees / 1000.0
        kilohertz = _number(CPUS / "cpu0/cpufreq/scaling_cur_freq")
        if kilohertz is not None:
            found["clock_hz"] = kilohertz * 1000.0
        if hasattr(os, "getloadavg"):
            found["load_1m"] = os.getloadavg()[0]
        return found


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
