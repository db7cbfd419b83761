"""The client's side: light, knows no torch, and turns whatever happens to a worker into a status."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from harness.model import (
    BackendReport,
    Case,
    Environment,
    InfrastructureError,
    InputError,
    Measurement,
    MeasureOptions,
    Status,
    Value,
)
from harness.model.serde import from_plain, to_plain
from harness.variables import ENV_PARAMETER, axis

from .identity import Identity, WorkerSpec, identify
from .launch import how_it_ended, kill_session
from .link import Died, Link, NotBegun, TimedOut
from .protocol import CaseError, Message

_UNTIMED_S = 300.0
_CONTROLS_S = 300.0
_TRIES = 3


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A case prepared in a worker: where, under which number there, and how long a request may take.

    ``first_call_s`` is None where that worker had called the case before.
    """

    link: Link
    number: int
    first_call_s: float | None
    timeout_s: float


class WorkerClient:
    """Asks a persistent worker to measure. Use as a context manager or call :meth:`close`.

    A worker that crashed or was killed is replaced at the next call; with ``spec.isolate`` each case has a fresh
    one. A case whose workload names variables (``env``) is measured in a worker that has them from its start. With
    ``private`` its worker is nobody else's and ends with it. Not for use by several threads at once.
    """

    def __init__(self, spec: WorkerSpec, *, start_timeout_s: float = 120.0, private: bool = False) -> None:
        self.spec = spec
        self._private = private
        self._start_timeout_s = start_timeout_s
        self._link: Link | None = None
        self._measured: tuple[str, str] | None = None
        self._prepared: dict[int, _Prepared] = {}
        self._numbers = itertools.count(1)
        self._others: dict[str, WorkerClient] = {}
        self._elsewhere: dict[int, tuple[WorkerClient, int]] = {}

    @classmethod
    def connect(cls, spec: WorkerSpec, *, start_timeout_s: float = 120.0, private: bool = False) -> WorkerClient:
        """Client of the worker for ``spec``; starts it when none listens, or when it is to be ``private``.

        Raises :class:`InfrastructureError` when it cannot start, with the tail of its log, and
        :class:`InputError` when the spec names no kernels or no interpreter.
        """
        client = cls(spec, start_timeout_s=start_timeout_s, private=private)
        client._reach()
        return client

    def environment(self) -> Environment:
        """Full record of what the worker runs in."""
        return from_plain(Environment, self._ask("environment", {}, _UNTIMED_S, timed=False))

    def reports(self) -> list[BackendReport]:
        """Which backends can be used on this device, and why the others cannot."""
        plain = self._ask("reports", {}, _UNTIMED_S, timed=False)
        return [from_plain(BackendReport, r) for r in plain]

    def measure(self, case: Case, options: MeasureOptions | None = None) -> Measurement:
        """Measure one case. What happens to the case or to the worker becomes the measurement's status."""
        options = options or MeasureOptions()
        started, clock = time.time(), time.perf_counter()
        try:
            asked = self._of(case)
        except InputError as error:
            return Measurement(case, Status.INVALID, started, detail=f"bad workload: {error}")
        if asked is not self:
            return asked.measure(case, options)
        body = {"case": to_plain(case), "options": to_plain(options)}
        try:
            plain = self._ask("measure", body, options.timeout_s, timed=True, alone=self.spec.isolate)
        except (Died, TimedOut, CaseError) as error:
            status, detail = _case_error(error)
            return Measurement(case, status, started, time.perf_counter() - clock, detail)
        wall = time.perf_counter() - clock
        m = from_plain(Measurement, plain)
        return replace(m, telemetry={**m.telemetry, "client_overhead_s": max(0.0, wall - m.duration_s)})

    def prepare(self, case: Case, options: MeasureOptions | None = None) -> int:
        """Make a case ready; gives the handle that :meth:`sample` and :meth:`release` take.

        Raises :class:`CaseError` with the status when it cannot be.
        """
        options = options or MeasureOptions()
        try:
            asked = self._of(case)
        except InputError as error:
            raise CaseError(Status.INVALID, f"bad workload: {error}") from None
        if asked is not self:
            there = asked.prepare(case, options)
            handle = next(self._numbers)
            self._elsewhere[handle] = asked, there
            return handle
        body = {"case": to_plain(case), "options": to_plain(options)}
        try:
            link, told = self._prepare_alone(body, options) if self.spec.isolate else self._prepare(body, options)
        except (Died, TimedOut) as error:
            raise CaseError(*_case_error(error)) from None
        handle = next(self._numbers)
        self._prepared[handle] = _Prepared(link, int(told["handle"]), told["first_call_s"], options.timeout_s)
        return handle

    def first_call_s(self, handle: int) -> float | None:
        """Seconds of the first call of a prepared case, compilation included; None where it had been called before."""
        if handle in self._elsewhere:
            asked, there = self._elsewhere[handle]
            return asked.first_call_s(there)
        return self._held(handle).first_call_s

    def _prepare(self, body: Message, options: MeasureOptions) -> tuple[Link, Message]:
        told = self._ask("prepare", body, options.timeout_s, timed=True)
        assert self._link is not None
        return self._link, told

    def _prepare_alone(self, body: Message, options: MeasureOptions) -> tuple[Link, Message]:
        link = self._fresh()
        try:
            told: Message = link.request("prepare", body, options.timeout_s, timed=True)
            return link, told
        except NotBegun:
            _discard(link)
            raise InfrastructureError("the worker ended before it began to prepare the case") from None
        except BaseException:
            _discard(link)
            raise

    def sample(self, handle: int, n: int) -> list[float]:
        """``n`` cold samples in seconds of a prepared case. Raises :class:`CaseError` when the worker is lost."""
        if handle in self._elsewhere:
            asked, there = self._elsewhere[handle]
            return asked.sample(there, n)
        held = self._held(handle)
        link = held.link
        try:
            body = {"handle": held.number, "n": n}
            return [float(s) for s in link.request("sample", body, held.timeout_s, timed=True)]
        except CaseError:
            if link.leaving:
                self._lose(link)
            raise
        except NotBegun:
            self._lose(link)
            raise CaseError(
                Status.CRASHED, "the worker that held the prepared case is gone; prepare it again"
            ) from None
        except (Died, TimedOut) as error:
            self._lose(link)
            raise CaseError(*_case_error(error)) from None
        except (KeyboardInterrupt, SystemExit):
            self._lose(link)
            raise

    def release(self, handle: int) -> None:
        """Free what a prepared case holds; nothing happens when it is gone already."""
        if handle in self._elsewhere:
            asked, there = self._elsewhere.pop(handle)
            asked.release(there)
            return
        if (held := self._prepared.pop(handle, None)) is None:
            return
        link = held.link
        if link is not self._link:
            _discard(link)
            return
        try:
            link.request("release", {"handle": held.number}, _UNTIMED_S, timed=False)
        except (NotBegun, Died, TimedOut, CaseError):
            self._lose(link)

    def controls(self, options: MeasureOptions | None = None) -> dict[str, Value]:
        """Times of the frozen control kernels."""
        body = {"options": to_plain(options or MeasureOptions())}
        plain = self._ask("controls", body, _CONTROLS_S, timed=True)
        return {name: from_plain(Value, value) for name, value in plain.items()}

    def close(self) -> None:
        """End the connection; the worker stays for the next client. Prepared cases are released."""
        for other in self._others.values():
            other.close()
        self._others.clear()
        self._elsewhere.clear()
        for held in self._prepared.values():
            if held.link is not self._link:
                _discard(held.link)
        self._prepared.clear()
        if self._link is not None:
            link, self._link = self._link, None
            self._leave(link)

    def shutdown(self) -> None:
        """End the worker too, and those of other variables."""
        for other in self._others.values():
            other.shutdown()
        link = self._link
        if link is not None:
            with contextlib.suppress(NotBegun, Died, TimedOut):
                link.request("shutdown", {}, 10.0, timed=False)
                link.await_end(10.0)
        self.close()

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _of(self, case: Case) -> WorkerClient:
        """The client whose worker has the variables of the case; InputError for variables that may not be set."""
        text = case.workload.params.get(ENV_PARAMETER)
        wanted = axis(str(text)) if text is not None else {}
        held = dict(self.spec.variables)
        if all(held.get(name) == value for name, value in wanted.items()):
            return self
        key = str(text)
        if key not in self._others:
            variables = tuple(sorted({**held, **wanted}.items()))
            unset = tuple(name for name in self.spec.unset if name not in wanted)
            spec = replace(self.spec, variables=variables, unset=unset)
            self._others[key] = WorkerClient(spec, start_timeout_s=self._start_timeout_s, private=self._private)
        return self._others[key]

    def _ask(self, op: str, body: Message, limit_s: float, *, timed: bool, alone: bool = False) -> Any:
        """One request, asked of a new worker where the old one went away before it began."""
        why = ""
        for attempt in range(_TRIES):
            link = None
            try:
                link = self._fresh() if alone else self._reach()
                result = link.request(op, body, limit_s, timed=timed)
                if link.leaving and op != "prepare":
                    self._forget()
                return result
            except NotBegun as gone:
                if link is not None and attempt == _TRIES - 1:
                    why = link.explain(gone.offset)
                self._forget()
            except (Died, TimedOut, CaseError) as error:
                if not isinstance(error, CaseError) or (link is not None and link.leaving):
                    self._forget()
                if op not in ("measure", "prepare"):  # nothing of a case's
                    raise InfrastructureError(f"{op}: {error}") from None
                raise
            except (KeyboardInterrupt, SystemExit):
                self._forget()
                raise
            finally:
                if alone and link is not None:
                    _discard(link)
        raise InfrastructureError(f"{op}: {_TRIES} workers in a row went away; of the last: {why}")

    def _reach(self) -> Link:
        if self._link is None:
            for attempt in range(_TRIES):
                identity = self._identify()
                try:
                    self._link = Link(identity, self._key(identity), self._start_timeout_s)
                    break
                except NotBegun:  # it was just leaving
                    if attempt == _TRIES - 1:
                        raise InfrastructureError("workers end as soon as they are asked") from None
        assert self._link is not None
        return self._link

    def _identify(self) -> Identity:
        """The spec resolved anew; refuses kernels that changed, since one client's results count as one revision."""
        identity = identify(self.spec)
        measured = (identity.kernels_path, identity.kernels_hash)
        if self._measured not in (None, measured):
            raise InfrastructureError(
                f"kernels at {identity.kernels_path} changed while they were measured; begin a new run"
            )
        self._measured = measured
        return identity

    def _fresh(self) -> Link:
        identity = self._identify()
        return Link(identity, _key_of_its_own(identity), self._start_timeout_s)

    def _key(self, identity: Identity) -> str:
        return _key_of_its_own(identity) if self._private else identity.key

    def _held(self, handle: int) -> _Prepared:
        try:
            return self._prepared[handle]
        except KeyError:
            raise CaseError(Status.CRASHED, "the case is not prepared any more; prepare it again") from None

    def _lose(self, link: Link) -> None:
        """Forget a link, with all that was prepared on it."""
        self._prepared = {k: v for k, v in self._prepared.items() if v.link is not link}
        if link is self._link:
            self._forget()
        else:
            _discard(link)

    def _forget(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            self._prepared = {k: v for k, v in self._prepared.items() if v.link is not link}
            self._leave(link)

    def _leave(self, link: Link) -> None:
        if self._private:
            _discard(link)
        else:
            link.close()


def _key_of_its_own(identity: Identity) -> str:
    return f"{identity.key}-{secrets.token_hex(4)}"


def _case_error(error: Exception) -> tuple[Status, str]:
    if isinstance(error, CaseError):
        return error.status, error.detail
    return (Status.TIMED_OUT if isinstance(error, TimedOut) else Status.CRASHED), str(error)


def _discard(link: Link) -> None:
    """End a worker that serves nobody else."""
    link.close()
    if link.pid:
        kill_session(link.pid)
        if not link.end_known:
            how_it_ended(link.files, link.pid)  # waits for the supervisor to have written its last file
        link.files.remove()


__all__ = ["CaseError", "WorkerClient", "WorkerSpec"]
