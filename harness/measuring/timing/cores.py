"""Where a process runs while two of them are compared: both on the same cores, turn by turn.

Cores of one machine differ (a busy neighbour on the same physical core, boost, caches), and the scheduler leaves
each of two processes where it is. Left alone, the same code in two processes of one thread on two virtual cores
differed by 22 to 30 % (standard deviation over cases) for as long as the case lasted.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Set
from pathlib import Path

import torch

from .cpu import CPUS


def chosen(threads: int, usable: Set[int], folder: Path = CPUS) -> set[int]:
    """The last ``threads`` of the ``usable`` processors, one to a physical core; empty where there is no choice.

    The last, since interrupts go to the first. The same for every process that asks for as many.
    """
    cores = sorted(cpu for cpu in usable if cpu == _eldest(cpu, usable, folder))
    return set(cores[-threads:]) if 0 < threads < len(cores) else set()


def _eldest(cpu: int, usable: Set[int], folder: Path) -> int:
    """The first usable processor on the same physical core; the processor itself where the system does not tell."""
    try:
        text = (folder / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
        spans = [[int(n) for n in part.split("-")] for part in text.strip().split(",")]
    except (OSError, ValueError):
        return cpu
    return min({n for span in spans for n in range(span[0], span[-1] + 1)} & usable | {cpu})


#: Asked before every sample, and a machine of many processors has as many files to read.
_known = functools.cache(chosen)


@contextlib.contextmanager
def on_same_cores() -> Iterator[None]:
    """Holds all threads of this process on :func:`chosen` cores, as many as torch computes with."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    usable = frozenset(os.sched_getaffinity(0))
    cores = _known(torch.get_num_threads(), usable)
    if not cores:
        yield
        return
    _move(cores)
    try:
        yield
    finally:
        _move(usable)


def _move(cores: Set[int]) -> None:
    try:
        threads = os.listdir("/proc/self/task")  # noqa: PTH208
    except OSError:
        threads = ["0"]  # the calling thread
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended, or the system forbids it
            os.sched_setaffinity(int(thread), cores)
