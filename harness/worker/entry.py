"""Entry of a worker's process, once ``boot`` has pinned what it imports: load, listen, serve, leave."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.model import AttnwatchError, InfrastructureError, InputError

from . import log
from .boot import record_end
from .log import text_of
from .protocol import Message, clean_text, socket_address
from .server import Server
from .sources import Sources

IDLE_VARIABLE = "ATTNWATCH_WORKER_IDLE_S"


def main(payload: dict[str, Any]) -> None:
    """Load, listen, say so through the descriptor ``ready_fd``, serve, and leave."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    log.keep_own()
    faulthandler.enable(file=log.descriptor())
    ready = payload["ready_fd"]
    os.set_inheritable(ready, False)
    path = Path(payload["socket"])
    try:
        server = _load(payload)
        listener = _listen(path)
    except BaseException as error:
        log.write(traceback.format_exc())
        _say(ready, {"error": clean_text(text_of(error)), "kind": "input" if isinstance(error, InputError) else ""})
        os._exit(3)
    own = path.stat().st_ino

    def stop_listening() -> None:
        with contextlib.suppress(OSError):
            if path.stat().st_ino == own:
                path.unlink()
        listener.close()

    server.stop_listening = stop_listening
    log.write(f"ready: {payload['about']}")
    _say(ready, {"pid": os.getpid()})
    reason = server.serve(listener)
    log.write(f"ends: {reason}")
    stop_listening()
    with contextlib.suppress(Exception):  # a backend may have closed or replaced it
        sys.stdout.flush()
    record_end(Path(payload["exit_folder"]), payload["key"], os.getpid(), {"reason": reason})
    # Backends' threads and exit hooks have no say in whether the worker ends.
    os._exit(0)


def _load(payload: dict[str, Any]) -> Server:
    sources = Sources(payload["pinned"], payload["kernels_hash"])
    kernels = _imported("kernels", lambda: importlib.import_module("kernels"))
    sources.verify(getattr(kernels, "__file__", None))
    bench_class = _imported("what measures (torch is needed)", lambda: _bench_class(payload.get("bench")))
    bench = bench_class(payload["device"])
    environment = bench.environment()
    if environment.kernels_hash != payload["kernels_hash"]:
        raise InfrastructureError(
            f"the bench reports kernels {environment.kernels_hash} at {environment.kernels_path}, "
            f"but {payload['kernels_hash']} was asked for"
        )
    idle = float(os.environ.get(IDLE_VARIABLE, "300"))
    return Server(bench, sources, device=payload["device"], key=payload["key"], idle_s=idle)


def _imported(what: str, load: Callable[[], Any]) -> Any:
    """What ``load`` gives; an error in one line for people, whatever the import raised."""
    try:
        return load()
    except AttnwatchError:
        raise
    except Exception as error:
        log.write(traceback.format_exc())
        raise InfrastructureError(f"{sys.executable} cannot import {what}: {text_of(error)}") from None


def _bench_class(text: str | None) -> Any:
    if not text:
        return importlib.import_module("harness.measuring").Bench
    file, _, name = text.rpartition(":")
    spec = importlib.util.spec_from_file_location("attnwatch_bench", file)
    if spec is None or spec.loader is None:
        raise InputError(f"cannot load a bench from {text}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def _listen(path: Path) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket_address(path) as address:
        listener.bind(address)
    listener.listen(64)
    return listener


def _say(fd: int, message: Message) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, json.dumps(message).encode() + b"\n")
        os.close(fd)
