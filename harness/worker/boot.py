"""First code of a worker's process: run as a script, before anything of ours can be imported.

It forks. The parent stays small and supervises: it keeps the log, whose size it bounds, it records how the worker
ended, which nobody else could tell since the client that started the worker may be gone, it ends a worker below which
processes multiply, and it kills whatever the worker leaves behind. The child becomes a session of its own, pins where
``harness``, ``kernels`` and backends of others are imported from, so that nothing beside them on disk is visible by
accident, and serves.

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
import threading
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

#: Bytes of log kept, and once more as many in ``.log.old``; a backend may print without end.
MAX_LOG = 4 * 1024 * 1024
_LAST_WORDS_S = 2.0

#: Processes below a worker; compiling in parallel takes some dozens.
MAX_PROCESSES = 512
_LOOK_S = 0.5


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
    adopt_orphans()
    supervisor = os.getpid()
    said, says = os.pipe()
    worker = os.fork()
    if worker:
        os.close(payload["ready_fd"])
        os.close(says)
        folder, key = Path(payload["exit_folder"]), payload["key"]
        keeper = threading.Thread(target=_keep_log, args=(said, folder / f"{key}.log"), daemon=True)
        keeper.start()
        _supervise(worker, folder, key, keeper)
        return
    os.setsid()
    die_with_parent(supervisor)
    os.close(said)
    for standard in (1, 2):
        os.dup2(says, standard)
    os.close(says)
    os.chdir(payload["exit_folder"])
    sys.argv = ["attnwatch-worker"]
    finder: Any = PinnedFinder(payload["pinned"])
    sys.meta_path.insert(0, finder)
    from harness.worker.entry import main as serve

    serve(payload)


def _keep_log(source: int, path: Path) -> None:
    """Append what the worker prints to its log, the last ``MAX_LOG`` to twice that many bytes of it."""
    log, size = _open_log(path)
    while data := os.read(source, 1 << 16):
        if size + len(data) > MAX_LOG:
            os.close(log)
            with contextlib.suppress(OSError):
                path.replace(path.with_suffix(".log.old"))
            log, size = _open_log(path)
        with contextlib.suppress(OSError):  # a full disk costs the log, not the worker
            size += os.write(log, data)


def _open_log(path: Path) -> tuple[int, int]:
    try:
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 0
    return log, os.fstat(log).st_size


def _supervise(worker: int, folder: Path, key: str, keeper: threading.Thread) -> None:
    """Wait for the worker, clean up behind it, record its end as ``KEY.PID.exit``.

    A worker that ends on purpose has written that record itself: one without it and with exit code 0 was ended by
    a backend.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(worker, signal.SIGKILL))
    too_many: list[int] = []
    ended = threading.Event()
    threading.Thread(target=_bound_processes, args=(worker, too_many, ended), daemon=True).start()
    while True:
        pid, status = os.wait()  # reaps orphans of the worker's session too
        if pid == worker:
            break
    ended.set()
    kill_left(worker)
    keeper.join(_LAST_WORDS_S)
    if too_many:
        told = (
            f"{too_many[0]} processes were running below it, more than the {MAX_PROCESSES} allowed, and it was killed"
        )
        record_end(folder, key, worker, {"reason": told})
        return
    code = os.waitstatus_to_exitcode(status)
    if code == 0 and (folder / f"{key}.{worker}.exit").exists():
        return
    record_end(folder, key, worker, {"signal": -code} if code < 0 else {"code": code})


def _bound_processes(worker: int, too_many: list[int], ended: threading.Event) -> None:
    """Kill the worker as soon as too many processes are found below us."""
    while not ended.wait(_LOOK_S):
        if (count := _descendants(MAX_PROCESSES)) > MAX_PROCESSES:
            too_many.append(count)
            with contextlib.suppress(OSError):
                os.kill(worker, signal.SIGKILL)
            return


def _descendants(enough: int) -> int:
    """Processes below this one; counting ends soon after ``enough``."""
    waiting, found = [os.getpid()], 0
    while waiting and found <= enough:
        for listed in Path(f"/proc/{waiting.pop()}/task").glob("[0-9]*/children"):
            with contextlib.suppress(OSError, ValueError):
                below = [int(p) for p in listed.read_text().split()]
                waiting += below
                found += len(below)
    return found


def record_end(folder: Path, key: str, pid: int, how: dict[str, object]) -> None:
    """Write ``KEY.PID.exit``, whole or not at all."""
    temporary = folder / f"{key}.{pid}.exit.tmp"
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps({"pid": pid, **how}))
        temporary.rename(folder / f"{key}.{pid}.exit")


def kill_left(group: int) -> None:
    """Kill a process group, then all children and what was orphaned to us, again and again until none is left."""
    for _ in range(1000):
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
        children = _children()
        if not children:
            return
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.wait()
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def adopt_orphans() -> None:
    """Become the parent of whatever descendants lose theirs, so that :func:`kill_left` finds them."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Bind this process, just forked by the main thread of ``parent``, to that one's life."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _children() -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def prctl(option: int, value: int) -> None:
    """The system call of that name, where there is one."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
