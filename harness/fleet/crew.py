"""The devices of a Ray cluster, and work spread over them that survives the loss of hosts."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.extras import needed
from harness.model import Case, InfrastructureError, InputError
from harness.rotation import Costs
from harness.sharding import Shard, part

from . import EXTRA
from .host import About, Host

Say = Callable[[str], None]

_CLASS = re.compile(r"^[a-z_.]+\.(?=[A-Z])\w+: ")

#: A host that has not started its worker by then is left out.
START_S = 300.0
#: A case that takes so many hosts with it is told as crashed.
LOSSES = 2


@dataclass(eq=False)
class Device:
    """One device of the fleet; ``name`` is for people."""

    actor: Any
    about: About
    name: str


@contextmanager
def fleet(address: str, kind: str | None, modules: tuple[str, ...], say: Say) -> Iterator[list[Device]]:
    """The devices of the cluster at ``address`` (``auto`` finds one, ``local`` makes one here), each locked for us.

    One actor for each GPU; where no host has one, or ``kind`` is ``cpu``, one for each host's CPU. A device that is in
    use or cannot start is told and left out. InfrastructureError where there is no cluster, or nothing in it.
    """
    if kind not in (None, "cpu", "cuda"):
        raise InputError(f"--device: {kind!r}; a fleet takes cpu or cuda, of every host")
    ray = needed("ray", EXTRA)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray tells of lost hosts at length, on standard output; we tell it in a line, and our output is for results.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        try:
            dashboard = False if address == "local" else None
            ray.init(address, log_to_driver=False, logging_level="ERROR", include_dashboard=dashboard)
        except (ConnectionError, ValueError) as error:
            text = str(error).strip().splitlines()[0][:200]
            raise InfrastructureError(f"--address {address}: {text}; `ray start --head` begins a cluster") from None
        try:
            found = _started(ray, kind, modules, say)
            if not found:
                raise InfrastructureError(f"--address {address}: no device of the cluster can be used")
            yield found
        finally:
            ray.shutdown()


def _started(ray: Any, kind: str | None, modules: tuple[str, ...], say: Say) -> list[Device]:
    affinity = needed("ray.util.scheduling_strategies", EXTRA).NodeAffinitySchedulingStrategy
    nodes = sorted((n for n in ray.nodes() if n["Alive"]), key=lambda n: n["NodeID"])
    gpus = {n["NodeID"]: int(n["Resources"].get("GPU", 0)) for n in nodes}
    on_gpu = kind != "cpu" and any(gpus.values())
    actor = ray.remote(_Numbered)
    asked = []
    for node in nodes:
        # A whole host where the CPU is timed: another task of the cluster beside it would be in our numbers.
        needs = {"num_gpus": 1, "num_cpus": 0} if on_gpu else {"num_cpus": node["Resources"].get("CPU", 1)}
        for _ in range(gpus[node["NodeID"]] if on_gpu else kind != "cuda"):
            where = affinity(node_id=node["NodeID"], soft=False)
            handle = actor.options(scheduling_strategy=where, max_restarts=0, **needs).remote(on_gpu, modules)
            asked.append((handle, node, handle.about.remote()))
    ready, _ = ray.wait([ref for *_, ref in asked], num_returns=len(asked), timeout=START_S) if asked else ([], [])
    found = []
    for handle, node, ref in asked:
        try:
            if ref not in ready:
                raise TimeoutError(f"not ready after {START_S:g} s; is the cluster busy?")
            about = ray.get(ref)
        except Exception as error:
            say(f"{node['NodeManagerHostname']} is left out: {_reason(error)}")
            continue
        found.append(Device(handle, about, f"{about.host} {about.device} ({node['NodeID'][:6]})"))
    return found


class _Numbered(Host):
    """A host that asks Ray which GPU it was given."""

    def __init__(self, on_gpu: bool, modules: tuple[str, ...]) -> None:
        ids = needed("ray", EXTRA).get_gpu_ids() if on_gpu else []
        super().__init__(str(ids[0]) if ids else None, modules)


@dataclass
class Work:
    """What one group of like devices is to do.

    ``ask`` starts a device on cases and gives what Ray streams; ``take`` is given each (device, kind, record) and says
    which case it settles, if any; ``lost`` is told of a case that took :data:`LOSSES` hosts with it.
    """

    devices: list[Device]
    cases: Sequence[Case]
    costs: Costs
    ask: Callable[[Device, Sequence[Case]], Any]
    take: Callable[[Device, str, Any], Case | None]
    lost: Callable[[Case], None]
    losses: Counter[str] = field(default_factory=Counter)


def carry_out(works: Iterable[Work], say: Say) -> None:
    """Do all of it, every device at once. What a lost device leaves goes to those like it.

    InfrastructureError where the last device of a group is lost; what was taken until then was taken.
    """
    ray = needed("ray", EXTRA)
    streams: dict[Any, tuple[Work, Device, list[Case]]] = {}

    def hand_out(work: Work, cases: Sequence[Case]) -> None:
        for i, device in enumerate(work.devices):
            mine = part(cases, Shard(i + 1, len(work.devices)), work.costs) if cases else []
            if mine:
                streams[work.ask(device, mine)] = work, device, list(mine)

    for work in works:
        hand_out(work, work.cases)
    while streams:
        (stream,), _ = ray.wait(list(streams), num_returns=1)
        work, device, left = streams[stream]
        try:
            kind, record = ray.get(next(stream))
        except StopIteration:
            del streams[stream]
        except Exception as error:
            mine = [s for s, (_, d, _) in streams.items() if d is device]
            rest = [case for s in mine for case in streams.pop(s)[2]]
            work.devices.remove(device)
            say(f"{device.name} is lost with {len(rest)} cases left: {_reason(error)}")
            if rest and left and _gone(ray, error):
                rest = _without_the_last_straw(work, left[0], rest, say)
            if rest and not work.devices:
                raise InfrastructureError(
                    f"no device of its kind is left, and {len(rest)} cases; the same command goes on from here"
                ) from None
            hand_out(work, rest)
        else:
            settled = work.take(device, kind, record)
            if settled is not None:
                left[:] = [c for c in left if c.key != settled.key]


def seconds_left(deadline: float | None) -> float | None:
    """Seconds until a time of ours, for hosts whose clocks may be others."""
    return None if deadline is None else deadline - time.time()


def _without_the_last_straw(work: Work, case: Case, rest: list[Case], say: Say) -> list[Case]:
    """``rest`` less ``case`` where that has taken too many hosts with it, which may not be chance."""
    work.losses[case.key] += 1
    if work.losses[case.key] < LOSSES:
        return rest
    say(f"{case.backend} {case.workload.label} was running each time; it is told as crashed")
    work.lost(case)
    return [c for c in rest if c.key != case.key]


def _gone(ray: Any, error: Exception) -> bool:
    """The process or its host is gone, rather than that it answered with an error."""
    return isinstance(error, ray.exceptions.RayActorError | ray.exceptions.ObjectLostError)


def _reason(error: Exception) -> str:
    """What an error of Ray says, in a line; of one that Ray carried from a host, what it said there, at the end."""
    cause = getattr(error, "cause", None) or error
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    said = lines[-1 if "Traceback" in str(cause) or "creation task" in lines[0] else 0].strip()
    return _CLASS.sub("", said)[:300]
