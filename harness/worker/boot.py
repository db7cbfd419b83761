"""First code of a worker's process: run as a script, before anything of ours can be imported.

It forks. The parent stays small and supervises: it records how the worker ended, which nobody else could tell
since the client that started the worker may be gone, and kills whatever the worker leaves behind. The child
becomes a session of its own, pins where ``harness``, ``kernels`` and backends of others are imported from, so that
nothing beside them on disk is visible by accident, and serves.

Standard library only; no import of ours above the pins.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery as machinery
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class FreshLoader(machinery.SourceFileLoader):
    """Compiles from source each time.

    Bytecode caches are checked by second and size only: two commits written within a second would pass for one.
    """

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class PinnedFinder:
    """Finds given top-level names, and what is below them, at given places and nowhere else."""

    def __init__(self, pinned: dict[str, str], cached: Sequence[str] = ("harness",)) -> None:
        self.pinned = pinned
        self.cached = cached

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> machinery.ModuleSpec | None:
        top, _, below = fullname.partition(".")
        if top not in self.pinned or (top in self.cached and below):
            return None
        if below:
            return self._below(fullname, path)
        place = Path(self.pinned[top])
        loader: Any = machinery.SourceFileLoader if top in self.cached else FreshLoader
        if place.is_file():
            return importlib.util.spec_from_file_location(top, place, loader=loader(top, str(place)))
        init = str(place / "__init__.py")
        return importlib.util.spec_from_file_location(
            top, init, loader=loader(top, init), submodule_search_locations=[str(place)]
        )

    def _below(self, fullname: str, path: Sequence[str] | None) -> machinery.ModuleSpec | None:
        for folder in path or ():
            finder = machinery.FileFinder(
                folder,
                (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
                (FreshLoader, machinery.SOURCE_SUFFIXES),
            )
            if (spec := finder.find_spec(fullname)) is not None and spec.loader is not None:
                return spec
        return None


def main() -> None:
    """Fork into supervisor and worker. The payload is JSON in the first argument."""
    payload = json.loads(sys.argv[1])
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    supervisor = os.getpid()
    worker = os.fork()
    if worker:
        os.close(payload["ready_fd"])
        _supervise(worker, Path(payload["exit_folder"]), payload["key"])
        return
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    os.chdir(payload["exit_folder"])
    sys.argv = ["attnwatch-worker"]
    finder: Any = PinnedFinder(payload["pinned"])
    sys.meta_path.insert(0, finder)
    from harness.worker.server import main as serve

    serve(payload)


def _supervise(worker: int, folder: Path, key: str) -> None:
    """Wait for the worker, clean up behind it, record its end as ``KEY.PID.exit``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(worker, signal.SIGKILL))
    while True:
        pid, status = os.wait()  # reaps orphans of the worker's session too
        if pid == worker:
            break
    _kill_left(worker)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return
    record = {"pid": worker, "signal": -code} if code < 0 else {"pid": worker, "code": code}
    temporary = folder / f"{key}.{worker}.exit.tmp"
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps(record))
        temporary.rename(folder / f"{key}.{worker}.exit")


def _kill_left(worker: int) -> None:
    """Kill the worker's process group, then all that was orphaned to us, again and again until none is left."""
    for _ in range(1000):
        with contextlib.suppress(OSError):
            os.killpg(worker, signal.SIGKILL)
        children = _children()
        if not children:
            return
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.wait()


def _children() -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
