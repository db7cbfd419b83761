"""What runs on the hosts of a fleet: one actor for each device, which holds the device's lock and worker."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.device import refuse_foreign_processes
from harness.locks import sweep_lock
from harness.model import Case, Environment, MeasureOptions, Revision, Run
from harness.revision import revision_of
from harness.sweep import SweepEvent, Tried, run_sweep
from harness.worker import WorkerClient, WorkerSpec

if TYPE_CHECKING:
    from harness.detection.ab import ABOptions

#: Ray sets these in its actors, to values of its own; what is measured must see what its host has.
_RAY_SETS = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class About:
    """What a device says of itself; ``host`` is its network name, ``device`` what it is called there."""

    environment: Environment
    revision: Revision
    host: str
    device: str


@dataclass(frozen=True)
class Sides:
    """Both sides of a comparison as :func:`harness.compare.sides` takes them; ``repo`` is the checkout on each host."""

    repo: str
    refs: tuple[str | None, str | None] = (None, None)
    variables: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    modules: tuple[str, ...] = ()


class Host:
    """The actor. Nothing else may time on its device while it lives.

    ``gpu`` is the index that Ray gave it, counted as the host's ``CUDA_VISIBLE_DEVICES`` names them; None for the CPU.
    """

    def __init__(self, gpu: str | None, modules: tuple[str, ...]) -> None:
        _as_on_the_host(os.getppid())
        self.device = "cpu" if gpu is None else f"cuda:{_position(gpu)}"
        refuse_foreign_processes(self.device)
        self._held = contextlib.ExitStack()
        self._held.enter_context(sweep_lock(self.device, "a fleet"))
        self.client = self._held.enter_context(WorkerClient.connect(WorkerSpec(self.device, modules=modules)))

    def about(self) -> About:
        """What it would measure on."""
        environment = self.client.environment()
        revision = revision_of(Path(environment.kernels_path).parent)
        return About(environment, revision, socket.gethostname(), self.device)

    def sweep(
        self, cases: Sequence[Case], run: Run, options: MeasureOptions, pending: Mapping[str, Tried],
        budget_s: float | None,
    ) -> Iterator[tuple[str, Any]]:  # fmt: skip
        """Measure ``cases`` as any sweep does: ``("measurement", m)``, ``("controls", values)``, ``("note", text)``."""
        sent: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        deadline = _from_now(budget_s)

        def work() -> None:
            writer: Any = _Sent(sent)
            try:
                run_sweep(
                    cases, run=run, client=self.client, writer=writer, options=options, pending=pending,
                    deadline=deadline, write_run=False, progress=writer.event,
                )  # fmt: skip
                sent.put(("done", None))
            except BaseException as error:
                sent.put(("failed", error))

        threading.Thread(target=work, daemon=True).start()
        while (record := sent.get())[0] != "done":
            if record[0] == "failed":
                raise record[1]
            yield record

    def pairs(
        self, cases: Sequence[Case], sides: Sides, options: MeasureOptions, judge: ABOptions, family: int,
        relevant: Mapping[str, float], budget_s: float | None,
    ) -> Iterator[tuple[str, Any]]:  # fmt: skip
        """Base and head of each case interleaved, both on this device: ``("pair", ABCase)`` or ``("left", Case)``.

        ``relevant`` holds the smallest change worth telling by key of the case, where it is not that of ``judge``.
        """
        from harness.ab import run_ab
        from harness.compare import sides as both

        deadline = _from_now(budget_s)
        base, head = both(
            Path(sides.repo), self.device, refs=sides.refs, pythons=(None, None), variables=sides.variables,
            modules=sides.modules,
        )  # fmt: skip
        for case in cases:
            own = replace(judge, relevant=relevant.get(case.key, judge.relevant))
            done, left = run_ab([case], base.spec, head.spec, options, own, deadline=deadline, family=family)
            yield from (("pair", d) for d in done)
            yield from (("left", c) for c in left)

    def close(self) -> None:
        """Let go of the device."""
        self._held.close()


class _Sent:
    """Takes the place of a bundle: what is measured goes to whoever asked for it, at once."""

    def __init__(self, sent: queue.SimpleQueue[tuple[str, Any]]) -> None:
        self.sent = sent

    def measurement(self, _run_id: str, measurement: Any) -> None:
        self.sent.put(("measurement", measurement))

    def controls(self, _run_id: str, values: Any) -> None:
        self.sent.put(("controls", values))

    def end(self, _end: Any) -> None:
        """The whole run ends elsewhere."""

    def event(self, event: SweepEvent) -> None:
        if event.kind == "note":
            self.sent.put(("note", event.text))


def _from_now(budget_s: float | None) -> float | None:
    return None if budget_s is None else time.time() + budget_s


def _as_on_the_host(parent: int) -> None:
    """Give variables that Ray set the values that they have where Ray was started, or none."""
    try:
        lines = Path(f"/proc/{parent}/environ").read_bytes().split(b"\0")
    except OSError:
        lines = []
    had = dict(line.decode(errors="replace").partition("=")[::2] for line in lines)
    for name in _RAY_SETS:
        os.environ.pop(name, None)
        if name in had:
            os.environ[name] = had[name]


def _position(gpu: str) -> int:
    """Where a GPU stands among those that this host shows."""
    visible = [v.strip() for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v.strip()]
    return visible.index(gpu) if gpu in visible else int(gpu)
