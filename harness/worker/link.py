"""One connection of a client to one worker, and what can become of a request."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import Any

from harness.model import InfrastructureError, InputError, Status

from .identity import Identity
from .launch import how_it_ended, kill_session, open_channel, process_lives
from .protocol import CaseError, Disconnected, Message, clean_text

# How long other clients' cases may keep the worker or the device busy before ours begins.
_QUEUE_S = 3600.0
# How long a worker whose connection ended may take to have ended itself.
_ENDING_S = 2.0


class NotBegun(Exception):
    """The worker went away, or is out of date, before it began: ask another one.

    ``offset`` is where its log stood, for telling why when no other one does better.
    """

    def __init__(self, offset: int = 0) -> None:
        super().__init__()
        self.offset = offset


class Died(Exception):
    """The worker died while it worked on the request."""


class TimedOut(Exception):
    """The request took longer than its limit, so the worker was killed."""


class Link:
    """One connection to one worker."""

    def __init__(self, identity: Identity, key: str, timeout_s: float) -> None:
        self.channel, self.files = open_channel(identity, key, timeout_s)
        self._numbers = itertools.count(1)
        self.pid = 0
        self.end_known = False
        self.leaving = False
        self._outlived = False
        try:
            self.pid = self._hello(timeout_s)
        except BaseException:
            self.channel.close()
            raise

    def _hello(self, timeout_s: float) -> int:
        try:
            self.channel.send({"id": 0, "op": "hello"})
            answer = self.channel.receive(time.monotonic() + timeout_s)
        except Disconnected:
            raise NotBegun from None
        except TimeoutError:
            raise InfrastructureError(
                f"the worker at {self.files.socket} has not answered for {timeout_s:g} s: busy or stuck; "
                f"see {self.files.log}"
            ) from None
        return int(answer["result"]["pid"])

    def request(self, op: str, body: Message, limit_s: float, *, timed: bool) -> Any:
        """Result of one request. A timed one runs at most ``limit_s`` from the moment the worker begins it."""
        number = next(self._numbers)
        offset = self.files.log_size()
        begun = False
        deadline = time.monotonic() + (_QUEUE_S if timed else limit_s)
        try:
            self.channel.send({"id": number, "op": op, "limit_s": limit_s, **body})
            while True:
                answer = self.channel.receive(deadline)
                if answer.get("id") != number:
                    continue
                if answer.get("event") != "started":
                    return self._result(answer)
                begun, deadline = True, time.monotonic() + limit_s
        except Disconnected:
            self._ensure_ended()
            if not begun:
                raise NotBegun(offset) from None
            raise Died(self.explain(offset)) from None
        except TimeoutError:
            if timed and not begun:
                raise InfrastructureError(
                    f"the device was busy for {_QUEUE_S:g} s with other work; see {self.files.log}"
                ) from None
            kill_session(self.pid)
            raise TimedOut(f"took longer than the limit of {limit_s:g} s and was killed") from None
        except (KeyboardInterrupt, SystemExit):
            if begun:
                kill_session(self.pid)
            raise

    def _ensure_ended(self) -> None:
        """Kill a worker that lives on without its connection, which a backend may have closed."""
        deadline = time.monotonic() + _ENDING_S
        while not self.files.exit(self.pid).exists() and process_lives(self.pid):
            if time.monotonic() >= deadline:
                self._outlived = True
                kill_session(self.pid)
                return
            time.sleep(0.005)

    def _result(self, answer: Message) -> Any:
        self.leaving = bool(answer.get("leaving"))
        error = answer.get("error")
        if error is None:
            return answer.get("result")
        message = str(error.get("message"))
        match error.get("kind"):
            case "case":
                raise CaseError(Status(error["status"]), message)
            case "stale":
                raise NotBegun
            case "input":
                raise InputError(message)
        raise InfrastructureError(message)

    def explain(self, offset: int) -> str:
        """How the worker ended and what its log says from byte ``offset`` on."""
        how = how_it_ended(self.files, self.pid)
        self.end_known = True
        text = f"the worker {'was ' if how.startswith('killed') else ''}{how}"
        if self._outlived:
            text = (
                "the worker lost its connection while it ran on, as when a backend closes descriptors that it has not "
                "opened, and was killed for it"
            )
        tail = self.files.tail(offset)
        return clean_text(f"{text}\n{tail}" if tail else text)

    def await_end(self, limit_s: float) -> None:
        """Return when the worker has gone, or after ``limit_s``."""
        with contextlib.suppress(Disconnected, TimeoutError):
            self.channel.receive(time.monotonic() + limit_s)

    def close(self) -> None:
        self.channel.close()
