"""Starting a worker, finding one that listens, and learning how one ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from harness.locks import file_lock
from harness.model import InfrastructureError, InputError
from harness.runtime import runtime_dir

from .identity import BENCH_VARIABLE, BOOT, Identity, describe
from .protocol import Channel, socket_address

_TAIL_LINES = 15
_TAIL_CHARS = 2000
_KEEP_S = 7 * 24 * 3600.0
# Records of deaths that nobody asked for, such as kills at a limit.
_KEEP_EXIT_S = 60.0
_EXIT_RECORD_S = 5.0

# Supervisors that this process started; kept so that they are reaped when they end.
_supervisors: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Files:
    """Places of one worker in the runtime folder."""

    folder: Path
    key: str

    @property
    def socket(self) -> Path:
        return self.folder / f"{self.key}.sock"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.key}.log"

    @property
    def start_lock(self) -> Path:
        return self.folder / f"{self.key}.start"

    def exit(self, pid: int) -> Path:
        return self.folder / f"{self.key}.{pid}.exit"

    def log_size(self) -> int:
        """Bytes in the log now; what a later tail starts from."""
        with contextlib.suppress(OSError):
            return self.log.stat().st_size
        return 0

    def tail(self, offset: int = 0) -> str:
        """Last lines of the log, from byte ``offset`` on."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(offset if offset <= size else 0, size - 8 * _TAIL_CHARS))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-_TAIL_LINES:])[-_TAIL_CHARS:].strip()

    def remove(self) -> None:
        """Delete all files of this worker."""
        for path in self.folder.glob(f"{self.key}.*"):
            with contextlib.suppress(OSError):
                path.unlink()


def open_channel(identity: Identity, key: str, timeout_s: float) -> tuple[Channel, Files]:
    """Connection to the worker of ``key``, which is started when none listens.

    Any number of processes may call this at once; one of them starts the worker. Raises
    :class:`InfrastructureError` with the tail of the log when it cannot start.
    """
    files = Files(runtime_dir(), key)
    if (channel := _connect(files.socket)) is not None:
        return channel, files
    what = f"starting the worker for {identity.spec.device}"
    with file_lock(files.start_lock, what, wait_s=timeout_s, what=what):
        if (channel := _connect(files.socket)) is None:
            _start(identity, files, timeout_s)
            channel = _connect(files.socket)
    if channel is None:
        raise InfrastructureError(f"the worker ended as soon as it had started; log {files.log}:\n{files.tail()}")
    return channel, files


def process_lives(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        pass
    if Path("/proc/self/stat").exists():
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def kill_session(pid: int) -> None:
    """SIGKILL a worker, its process group and what else is in its session; returns when the worker is gone."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    for _ in range(100):
        members = _session(pid)
        for member in members:
            with contextlib.suppress(OSError):
                os.kill(member, signal.SIGKILL)
        if not members:
            return
        time.sleep(0.02)


def how_it_ended(files: Files, pid: int) -> str:
    """Words for the end of worker ``pid``, from its own or its supervisor's record."""
    path = files.exit(pid)
    deadline = time.monotonic() + _EXIT_RECORD_S
    while True:
        try:
            record = json.loads(path.read_text())
            break
        except (OSError, ValueError):
            if time.monotonic() > deadline:
                return "ended, and nobody recorded how"
            time.sleep(0.005)
    with contextlib.suppress(OSError):
        path.unlink()
    if (reason := record.get("reason")) is not None:
        return f"ended: {reason}"
    if (number := record.get("signal")) is None:
        return f"exited by itself with code {record.get('code')}"
    return _SIGNALS.get(number) or f"killed by {_signal_name(number)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_SIGNALS: dict[int, str] = {
    int(signal.SIGKILL): "killed by SIGKILL; the kernel's out-of-memory killer does this too",
    int(signal.SIGSEGV): "killed by SIGSEGV (segmentation fault)",
    int(signal.SIGABRT): "killed by SIGABRT (a library gave up)",
    int(signal.SIGILL): "killed by SIGILL (an instruction this processor lacks)",
    int(signal.SIGFPE): "killed by SIGFPE (integer division by zero or overflow)",
}


def _connect(path: Path) -> Channel | None:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_address(path) as address:
            sock.connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        sock.close()
        return None
    except OSError as error:
        sock.close()
        raise InfrastructureError(f"cannot connect to the worker at {path}: {error.strerror or error}") from None
    return Channel(sock)


def _start(identity: Identity, files: Files, timeout_s: float) -> None:
    _tidy(files)
    offset = files.log_size()
    read_fd, write_fd = os.pipe()
    payload = {
        "key": files.key,
        "device": identity.spec.device,
        "socket": str(files.socket),
        "exit_folder": str(files.folder),
        "ready_fd": write_fd,
        "pinned": identity.pinned,
        "kernels_hash": identity.kernels_hash,
        "about": describe(identity),
        "bench": identity.environment.get(BENCH_VARIABLE),
    }
    try:
        with files.log.open("ab") as log:
            process = subprocess.Popen(
                [identity.spec.python, "-P", str(BOOT), json.dumps(payload)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(write_fd,),
                start_new_session=True,
                cwd=files.folder,
                env=identity.environment,
            )
    except OSError as error:
        os.close(read_fd)
        raise InfrastructureError(f"cannot run {identity.spec.python}: {error.strerror}") from None
    finally:
        os.close(write_fd)
    _supervisors[:] = [p for p in _supervisors if p.poll() is None]
    _supervisors.append(process)
    try:
        answer = _ready(read_fd, timeout_s)
    except BaseException:
        process.kill()  # the worker is bound to die with its supervisor
        raise
    finally:
        os.close(read_fd)
    if "pid" in answer:
        return
    if answer.get("late"):
        process.terminate()  # the supervisor kills the worker and writes down its last words
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_EXIT_RECORD_S)
    if process.poll() is None:
        process.kill()
    if answer.get("kind") == "input":
        raise InputError(str(answer["error"]))
    if said := answer.get("error"):
        raise InfrastructureError(f"the worker did not start: {said}; more in {files.log}")
    reason = f"not ready after {timeout_s:g} s" if answer else "it ended"
    raise InfrastructureError(f"the worker did not start: {reason}; log {files.log}:\n{files.tail(offset)}")


def _ready(fd: int, timeout_s: float) -> dict[str, object]:
    """What the worker says of itself; empty when it ended first, ``late`` when time is up."""
    deadline = time.monotonic() + timeout_s
    data = b""
    while not data.endswith(b"\n"):
        if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return {"late": True}
        if not (more := os.read(fd, 65536)):
            return {}
        data += more
    answer: dict[str, object] = json.loads(data)
    return answer


def _tidy(files: Files) -> None:
    """Delete what workers of last week left."""
    now = time.time()
    for path in files.folder.iterdir():
        with contextlib.suppress(OSError):
            keep = _KEEP_EXIT_S if path.suffix == ".exit" else _KEEP_S
            known = path.suffix in (".log", ".old", ".exit", ".tmp", ".start", ".sock")
            if known and path.stat().st_mtime < now - keep:
                # A socket's time is that of its worker's start; a worker so old but alive answers.
                if path.suffix == ".sock" and (channel := _connect(path)) is not None:
                    channel.close()
                    continue
                path.unlink()


def _session(leader: int) -> list[int]:
    """Living processes of a session (Linux; elsewhere only the process group is known)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The command in parentheses may hold anything; fields after the last one: state ppid pgrp session
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found.append(int(entry.parent.name))
    return found
