"""The worker's side: loads torch once, then measures what its clients ask for, one request at a time."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import selectors
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from harness.locks import device_lock
from harness.model import AttnwatchError, Case, InputError, Measurement, MeasureOptions, Status
from harness.model.serde import from_plain, to_plain

from . import log
from .log import text_of
from .protocol import CaseError, Channel, Disconnected, Message, clean_text
from .sources import Sources
from .state import Change, changes, read_state

_TICK_S = 2.0
#: Exit code of a worker whose own descriptors a backend has closed.
_DISPOSSESSED = 4
#: Longest list of changes in a measurement's telemetry.
_MAX_CHANGES = 2000


@dataclass
class _Client:
    channel: Channel
    inode: int
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
        self._retire, self._tainted = "", False
        self.stop_listening: Callable[[], None] = lambda: None
        self._untimed: dict[str, Callable[[_Client, Message], Any]] = {
            "hello": self._hello,
            "environment": lambda _c, _m: to_plain(self.bench.environment()),
            "reports": self._reports,
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
        if reason := self._retirement():
            raise _Leave(reason)
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
            self._clients[sock.fileno()] = _Client(Channel(sock), os.fstat(sock.fileno()).st_ino)
            self._selector.register(sock, selectors.EVENT_READ)

    def _read(self, client: _Client) -> None:
        try:
            client.channel.feed()
            while (message := client.channel.take()) is not None:
                self._answer(client, message)
        except (Disconnected, InputError) as error:
            if isinstance(error, InputError):
                log.write(f"dropped a client: {error}")
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
                        try:
                            reply = {"result": self._timed[op](client, message)}
                        finally:
                            self._refuse_to_be_dispossessed(client)
                    leave = self._context_lost()
            else:
                reply = {"error": {"kind": "input", "message": f"no operation {op!r}"}}
        except Disconnected:
            raise
        except BaseException as error:
            reply = {"error": _error(error)}
            if not isinstance(getattr(error, "status", None), Status):
                log.write(traceback.format_exc())
        leave = leave or self._retirement()
        if leave:
            self.stop_listening()
            reply["leaving"] = leave
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
            faulthandler.dump_traceback_later(limit * 1.5 + 10, exit=True, file=log.descriptor())
            try:
                yield
            finally:
                faulthandler.cancel_dump_traceback_later()

    @contextlib.contextmanager
    def _watched(self, found: list[Change]) -> Iterator[None]:
        """Collect in ``found`` what the block changes of the process, and retire the worker after it where need be."""
        before = read_state()
        try:
            yield
        finally:
            found += changes(before, read_state())
            if lasting := [c.text for c in found if c.retire]:
                self._retire = f"a backend changed the process: {_joined(lasting)}"
                self._tainted |= any(c.timing for c in found)

    def _retirement(self) -> str:
        """Reason to be replaced after this request. Prepared cases are still sampled where timing is untouched."""
        return self._retire if self._tainted or not any(c.prepared for c in self._clients.values()) else ""

    def _refuse_to_be_dispossessed(self, client: _Client) -> None:
        """Say what happened where a backend closed our descriptors, while descriptor 2 may still reach the log."""
        try:
            same = os.fstat(client.channel.sock.fileno()).st_ino == client.inode
        except OSError:
            same = False
        if not same:
            text = b"the backend closed descriptors that it had not opened, the worker's connection among them\n"
            for fd in {log.descriptor(), 2}:
                with contextlib.suppress(OSError):
                    os.write(fd, text)
            os._exit(_DISPOSSESSED)

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
        log.write(f"measure {case.backend} {case.benchmark} {case.workload.label}")
        found: list[Change] = []
        try:
            with self._watched(found):
                m: Measurement = self.bench.measure(case, options)
            return _plain(m, found)
        except BaseException as error:
            log.write(traceback.format_exc())
            failed = Measurement(case, _status(error), started, time.time() - started, text_of(error))
            return _plain(failed, found)

    def _prepare(self, client: _Client, message: Message) -> Message:
        case = from_plain(Case, message.get("case"))
        options = from_plain(MeasureOptions, message.get("options"))
        log.write(f"prepare {case.backend} {case.benchmark} {case.workload.label}")
        with self._trusted():
            prepared = self.bench.prepare(case, options)
        self._handles += 1
        client.prepared[self._handles] = prepared
        return {"handle": self._handles, "first_call_s": prepared.first_call_s}

    def _sample(self, client: _Client, message: Message) -> list[float]:
        handle, n = message.get("handle"), message.get("n")
        if handle not in client.prepared:
            raise InputError(f"no prepared case {handle!r} on this connection")
        if not isinstance(n, int) or n < 0:
            raise InputError(f"cannot take {n!r} samples")
        with self._trusted():
            return [float(s) for s in client.prepared[handle].sample(n)]

    @contextlib.contextmanager
    def _trusted(self) -> Iterator[None]:
        """Refuse what the block gives where it changed something that touches timing."""
        found: list[Change] = []
        with self._watched(found):
            yield
        if timing := [c.text for c in found if c.timing]:
            raise CaseError(Status.INVALID, _untrusted(timing))

    def _reports(self, client: _Client, message: Message) -> list[Any]:
        with self._watched([]):  # asking imports every backend
            return [to_plain(r) for r in self.bench.reports()]

    def _release(self, client: _Client, message: Message) -> None:
        handle = message.get("handle")
        if isinstance(handle, int) and (prepared := client.prepared.pop(handle, None)) is not None:
            prepared.release()

    def _controls(self, client: _Client, message: Message) -> Message:
        found = self.bench.controls(from_plain(MeasureOptions, message.get("options")))
        return {name: to_plain(value) for name, value in found.values.items()}


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
    text = detail if isinstance(detail, str) and detail else text_of(error)
    return {"kind": "case", "status": _status(error).value, "message": clean_text(text)}


def _plain(m: Measurement, found: list[Change]) -> Message:
    """The measurement as it travels, with what its backend changed."""
    m = _marked(m, found)
    return to_plain(replace(m, detail=clean_text(m.detail)))


def _marked(m: Measurement, found: list[Change]) -> Measurement:
    """Timing that a change touches is taken out."""
    if not found:
        return m
    m = replace(m, telemetry={**m.telemetry, "changed_state": _joined([c.text for c in found])})
    timing = [c.text for c in found if c.timing]
    if not timing:
        return m
    if m.status is not Status.OK:
        return replace(m, detail=f"{m.detail}; besides, {_untrusted(timing)}")
    kept = {n: v for n, v in m.metrics.items() if n in ("input_bytes", "first_call_s")}
    return replace(m, status=Status.INVALID, detail=_untrusted(timing), metrics=kept, samples={}, warmup={})


def _untrusted(changed: list[str]) -> str:
    return f"the backend changed the process, so its timing cannot be compared: {_joined(changed)}"


def _joined(texts: list[str]) -> str:
    return clean_text("; ".join(texts), _MAX_CHANGES)


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except BaseException:
        log.write(traceback.format_exc())
