"""The worker's side: loads torch once, then measures what its clients ask for, one request at a time."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.locks import device_lock
from harness.model import (
    AttnwatchError,
    Case,
    InfrastructureError,
    InputError,
    Measurement,
    MeasureOptions,
    Status,
)
from harness.model.serde import from_plain, to_plain

from .protocol import Channel, Disconnected, Message, clean_text, socket_address
from .sources import Sources

IDLE_VARIABLE = "ATTNWATCH_WORKER_IDLE_S"
_TICK_S = 2.0


@dataclass
class _Client:
    channel: Channel
    prepared: dict[int, Any] = field(default_factory=dict)
    timeouts: dict[int, float] = field(default_factory=dict)


class _Leave(Exception):
    """The worker ends, for the reason given."""


class Server:
    """Serves one device. ``bench`` does the measuring; see :class:`harness.measuring.Bench`."""

    def __init__(self, bench: Any, sources: Sources, *, device: str, key: str, idle_s: float) -> None:
        self.bench, self.sources, self.device, self.key, self.idle_s = bench, sources, device, key, idle_s
        self._selector = selectors.DefaultSelector()
        self._clients: dict[int, _Client] = {}
        self._handles = 0
        self._last = time.monotonic()
        self._untimed: dict[str, Callable[[_Client, Message], Any]] = {
            "hello": self._hello,
            "environment": lambda _c, _m: to_plain(self.bench.environment()),
            "reports": lambda _c, _m: [to_plain(r) for r in self.bench.reports()],
            "release": self._release,
        }
        self._timed: dict[str, Callable[[_Client, Message], Any]] = {
            "measure": self._measure,
            "prepare": self._prepare,
            "sample": self._sample,
            "controls": self._controls,
        }

    def serve(self, listener: socket.socket) -> str:
        """Serve until idle, stale or told to end; gives the reason."""
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        try:
            while True:
                for key, _ in self._selector.select(min(_TICK_S, self.idle_s)):
                    if key.fileobj is listener:
                        self._accept(listener)
                    else:
                        self._read(self._clients[key.fd])
                self._leave_if_due()
        except _Leave as reason:
            return str(reason)

    def _leave_if_due(self) -> None:
        if self._clients:
            self._last = time.monotonic()
            return
        if time.monotonic() - self._last > self.idle_s:
            raise _Leave(f"idle for {self.idle_s:g} s")
        if changed := self.sources.changed():
            raise _Leave(f"{changed} changed")

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock, _ = listener.accept()
            self._clients[sock.fileno()] = _Client(Channel(sock))
            self._selector.register(sock, selectors.EVENT_READ)

    def _read(self, client: _Client) -> None:
        try:
            client.channel.feed()
            while (message := client.channel.take()) is not None:
                self._answer(client, message)
        except (Disconnected, InputError) as error:
            if isinstance(error, InputError):
                _log(f"dropped a client: {error}")
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        fd = client.channel.sock.fileno()
        self._selector.unregister(fd)
        del self._clients[fd]
        client.channel.close()
        for prepared in client.prepared.values():
            _quietly(prepared.release)
        self._last = time.monotonic()

    def _answer(self, client: _Client, message: Message) -> None:
        number, op = message.get("id"), str(message.get("op"))
        leave = ""
        try:
            if op == "shutdown":
                leave = "told to end"
                reply: Message = {"result": None}
            elif op in self._untimed:
                reply = {"result": self._untimed[op](client, message)}
            elif op in self._timed:
                if changed := self.sources.changed():
                    leave = f"{changed} changed"
                    reply = {"error": {"kind": "stale", "message": leave}}
                else:
                    with self._started(client, message):
                        reply = {"result": self._timed[op](client, message)}
                    leave = self._context_lost()
            else:
                reply = {"error": {"kind": "input", "message": f"no operation {op!r}"}}
        except Disconnected:
            raise
        except BaseException as error:
            reply = {"error": _error(error)}
            if not isinstance(getattr(error, "status", None), Status):
                _log(traceback.format_exc())
        client.channel.send({"id": number, **reply})
        if leave:
            raise _Leave(leave)

    @contextlib.contextmanager
    def _started(self, client: _Client, message: Message) -> Iterator[None]:
        """Hold the device and guard the request against a hang that no client is left to end."""
        limit = float(message.get("limit_s") or 600.0)
        with device_lock(self.device, f"timing in worker {self.key}"):
            client.channel.send({"id": message.get("id"), "event": "started"})
            # The client kills at the limit. This one is for clients that died: it needs no thread of Python.
            faulthandler.dump_traceback_later(limit * 1.5 + 10, exit=True)
            try:
                yield
            finally:
                faulthandler.cancel_dump_traceback_later()

    def _context_lost(self) -> str:
        """Reason to be replaced where a case broke the device's context for all later ones."""
        if not self.device.startswith("cuda") or "torch" not in sys.modules:
            return ""
        try:
            sys.modules["torch"].cuda.synchronize(self.device)
        except Exception as error:
            return f"the CUDA context is lost: {error}"
        return ""

    def _hello(self, client: _Client, message: Message) -> Message:
        return {"pid": os.getpid(), "key": self.key}

    def _measure(self, client: _Client, message: Message) -> Message:
        case = from_plain(Case, message.get("case"))
        options = from_plain(MeasureOptions, message.get("options"))
        started = time.time()
        _log(f"measure {case.backend} {case.benchmark} {case.workload.label}")
        try:
            m: Measurement = self.bench.measure(case, options)
            return to_plain(replace(m, detail=clean_text(m.detail)))
        except BaseException as error:
            _log(traceback.format_exc())
            status = _status(error)
            return to_plain(Measurement(case, status, started, time.time() - started, clean_text(_text(error))))

    def _prepare(self, client: _Client, message: Message) -> int:
        case = from_plain(Case, message.get("case"))
        options = from_plain(MeasureOptions, message.get("options"))
        _log(f"prepare {case.backend} {case.benchmark} {case.workload.label}")
        prepared = self.bench.prepare(case, options)
        self._handles += 1
        client.prepared[self._handles] = prepared
        return self._handles

    def _sample(self, client: _Client, message: Message) -> list[float]:
        handle, n = message.get("handle"), message.get("n")
        if handle not in client.prepared:
            raise InputError(f"no prepared case {handle!r} on this connection")
        if not isinstance(n, int) or n < 0:
            raise InputError(f"cannot take {n!r} samples")
        return [float(s) for s in client.prepared[handle].sample(n)]

    def _release(self, client: _Client, message: Message) -> None:
        handle = message.get("handle")
        if isinstance(handle, int) and (prepared := client.prepared.pop(handle, None)) is not None:
            prepared.release()

    def _controls(self, client: _Client, message: Message) -> Message:
        found = self.bench.controls(from_plain(MeasureOptions, message.get("options")))
        return {name: to_plain(value) for name, value in found.values.items()}


def main(payload: dict[str, Any]) -> None:
    """Load, listen, say so through the descriptor ``ready_fd``, serve, and leave."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.enable()
    ready = payload["ready_fd"]
    os.set_inheritable(ready, False)
    path = Path(payload["socket"])
    try:
        server = _load(payload)
        listener = _listen(path)
    except BaseException as error:
        _log(traceback.format_exc())
        _say(ready, {"error": clean_text(_text(error))})
        os._exit(3)
    own = path.stat().st_ino
    _log(f"ready: {payload['about']}")
    _say(ready, {"pid": os.getpid()})
    reason = server.serve(listener)
    _log(f"ends: {reason}")
    with contextlib.suppress(OSError):
        if path.stat().st_ino == own:
            path.unlink()
    listener.close()
    # Backends' threads and exit hooks have no say in whether the worker ends.
    sys.stdout.flush()
    os._exit(0)


def _load(payload: dict[str, Any]) -> Server:
    sources = Sources(payload["pinned"], payload["kernels_hash"])
    kernels = importlib.import_module("kernels")
    sources.verify(getattr(kernels, "__file__", None))
    bench = _bench_class(payload.get("bench"))(payload["device"])
    environment = bench.environment()
    if environment.kernels_hash != payload["kernels_hash"]:
        raise InfrastructureError(
            f"the bench reports kernels {environment.kernels_hash} at {environment.kernels_path}, "
            f"but {payload['kernels_hash']} was asked for"
        )
    idle = float(os.environ.get(IDLE_VARIABLE, "300"))
    return Server(bench, sources, device=payload["device"], key=payload["key"], idle_s=idle)


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


def _status(error: BaseException) -> Status:
    status = getattr(error, "status", None)
    if isinstance(status, Status):
        return status
    if isinstance(error, MemoryError):
        return Status.OUT_OF_MEMORY
    return Status.INVALID if isinstance(error, AttnwatchError) else Status.CRASHED


def _error(error: BaseException) -> Message:
    if isinstance(error, InputError):
        return {"kind": "input", "message": clean_text(str(error))}
    if isinstance(error, AttnwatchError):
        return {"kind": "infrastructure", "message": clean_text(str(error))}
    detail = getattr(error, "detail", None)
    text = detail if isinstance(detail, str) and detail else _text(error)
    return {"kind": "case", "status": _status(error).value, "message": clean_text(text)}


def _text(error: BaseException) -> str:
    """``Class: message``; an exception whose own text raises is named all the same."""
    try:
        message = str(error)
    except BaseException:
        message = "(its text cannot be had)"
    if isinstance(error, AttnwatchError):
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except BaseException:
        _log(traceback.format_exc())


def _log(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {clean_text(text)}\n")
        sys.stderr.flush()
