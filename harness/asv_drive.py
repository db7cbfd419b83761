"""Runs asv over one commit, shows how far it is, and can be broken off and taken up again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from .asv_session import SEARCH_VARIABLE, SESSION_VARIABLE, read_session
from .locks import sweep_descriptors
from .model import InfrastructureError
from .model.suite import SUITE_VARIABLE

CONFIG = "asv.conf.json"
_POLL_S = 0.25
#: How long the minder may take to end asv and all that it started, before it is ended itself.
_ENDING_S = 20.0
# Neither the working folder nor an installation decides which minder runs.
_MINDER = "import sys; sys.path.insert(0, sys.argv.pop(1)); from harness.asv_minder import main; main()"


def run_asv(repo: Path, commit: str, session: Path, log: Path, *, done: Callable[[], None] | None = None) -> int:
    """``asv run`` over ``commit`` of the repository at ``repo``; returns asv's exit code.

    asv's own output goes to ``log``. ``done`` is called while it works, to show progress. An interrupt ends asv
    and everything it started, and is raised again; what was measured stays in the session's bundle. So does the death
    of this process, even by SIGKILL; a sweep's lock that it holds is held until nothing is left.
    """
    ensure_machine(repo, log)
    command = [
        sys.executable, "-m", "asv", "run", "--config", str(repo / CONFIG), "--launch-method", "forkserver",
        "--record-samples", "--show-stderr", f"{commit}^!",
    ]  # fmt: skip
    env = {**os.environ, SESSION_VARIABLE: str(session), SUITE_VARIABLE: read_session(session).suite}
    if kept := _without_kernels(os.environ.get("PYTHONPATH", "")):
        env[SEARCH_VARIABLE] = kept
    with log.open("ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        return _minded(command, repo, env, out, done)


def _minded(
    command: list[str], folder: Path, env: dict[str, str], out: IO[bytes], done: Callable[[], None] | None
) -> int:
    """Run ``command`` under the minder; its exit code (128 + signal where one ended it)."""
    theirs, ours = os.pipe()
    locks = sweep_descriptors()
    mind = [sys.executable, "-P", "-c", _MINDER, str(Path(__file__).resolve().parent.parent)]
    try:
        process = subprocess.Popen(
            [*mind, str(theirs), ",".join(map(str, locks)), *command],
            cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            pass_fds=(theirs, *locks),
        )  # fmt: skip
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    try:
        while process.poll() is None:
            time.sleep(_POLL_S)
            if done is not None:
                done()
    finally:
        os.close(ours)  # where asv still runs this is the sign to end it
        try:
            process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()  # asv is bound to die with it
            process.wait()
    return process.returncode


def _without_kernels(search: str) -> str:
    """``PYTHONPATH`` for asv's children: backends of others may come in by it.

    A folder that holds something named ``kernels`` stays out, or it would stand before the commit's own.
    """
    folders = [Path(p).absolute() for p in search.split(os.pathsep) if p]
    return os.pathsep.join(str(p) for p in folders if not ((p / "kernels").exists() or (p / "kernels.py").exists()))


def ensure_machine(repo: Path, log: Path) -> None:
    """Let asv write its description of this machine where it has none, without asking."""
    command = [sys.executable, "-m", "asv", "machine", "--yes", "--config", str(repo / CONFIG)]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        code = subprocess.run(
            command, cwd=repo, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
        ).returncode
    if code:
        raise InfrastructureError(f"asv cannot describe this machine (exit code {code}); see {log}")


def log_tail(log: Path, lines: int = 25) -> str:
    """The end of asv's log, for an error message."""
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    return ""
