"""Runs asv over one commit, shows how far it is, and can be broken off and taken up again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .asv_session import SESSION_VARIABLE, read_session
from .model import InfrastructureError
from .model.suite import SUITE_VARIABLE

CONFIG = "asv.conf.json"
_POLL_S = 0.25


def run_asv(repo: Path, commit: str, session: Path, log: Path, *, done: Callable[[], None] | None = None) -> int:
    """``asv run`` over ``commit`` of the repository at ``repo``; returns asv's exit code.

    asv's own output goes to ``log``. ``done`` is called while it works, to show progress. An interrupt ends asv
    and everything it started, and is raised again; what was measured stays in the session's bundle.
    """
    ensure_machine(repo, log)
    command = [
        sys.executable, "-m", "asv", "run", "--config", str(repo / CONFIG), "--launch-method", "forkserver",
        "--record-samples", "--show-stderr", f"{commit}^!",
    ]  # fmt: skip
    env = {**os.environ, SESSION_VARIABLE: str(session), SUITE_VARIABLE: read_session(session).suite}
    with log.open("ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        process = subprocess.Popen(
            command, cwd=repo, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        try:
            while process.poll() is None:
                time.sleep(_POLL_S)
                if done is not None:
                    done()
        finally:
            if process.poll() is None:
                _end(process)
    return process.returncode


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


def _end(process: subprocess.Popen[bytes]) -> None:
    """End asv and its children: politely, then not."""
    for sig, wait_s in ((signal.SIGINT, 5), (signal.SIGTERM, 5), (signal.SIGKILL, 10)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sig)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
            return
