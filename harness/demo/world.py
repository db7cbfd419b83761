"""What measuring would give in each night: real samples, drawn again and moved by what is planted."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from harness.ab import ABCase
from harness.builds import Build
from harness.detection.ab import ABOptions, compare
from harness.model import Case, Environment, Measurement, MeasureOptions, Revision, Status, Value
from harness.model.suite import grid
from harness.worker import WorkerClient, WorkerSpec

from .faults import FAULTS, NIGHTS, Fault

DAY = 86400.0
BACKENDS = ("sdpa_math", "sdpa_flash", "segmented")
_RATES = ("flops_per_s", "tokens_per_s", "bytes_per_s")


def suite() -> list[Case]:
    """The cases of the demonstration: decode across block boundaries, a few speculative steps, short prefills."""
    lengths = [127, 128, 129, 256, 257, 384, 385, 512, 513, 1025]
    shape: dict[str, Any] = {"heads_q": 8, "heads_kv": 2, "head_dim": [64, 128], "causal": True}
    decode = (
        *grid("attention", q_len=1, kv_len=lengths, **shape),
        *grid("attention", q_len=4, kv_len=[512, 513, 1025], **shape),
    )
    prefill = grid("attention", seq_len=[128, 129, 256, 257, 512], causal=[False, True])
    return [Case(name, w, b) for name, ws in (("decode", decode), ("prefill", prefill)) for w in ws for b in BACKENDS]


def measure(say: Any = None) -> tuple[Environment, list[Measurement], dict[str, float]]:
    """Environment, measurements of the suite and times of the control kernels, seconds; about half a minute."""
    options = MeasureOptions(max_seconds=0.08, max_samples=40, hot=False)
    cases, out = suite(), []
    # One thread: on a busy machine a second one measures how often it is preempted.
    with WorkerClient.connect(WorkerSpec("cpu", variables=(("OMP_NUM_THREADS", "1"),))) as client:
        environment = client.environment()
        controls = {name: value.value for name, value in client.controls(options).items()}
        for i, case in enumerate(cases):
            if say is not None and i % 20 == 0:
                say(f"measuring {i}/{len(cases)}")
            out.append(client.measure(case, options))
        client.shutdown()
    return environment, [m for m in out if m.status is Status.OK], controls


@dataclass
class World:
    """What measuring gives in each night: the real samples, drawn again and moved by the faults planted."""

    environment: Environment
    real: dict[str, Measurement]
    controls: dict[str, float] = field(default_factory=dict)
    faults: Sequence[Fault] = FAULTS
    seed: int = 0
    nights: int = NIGHTS
    night: int = 0
    last_start: float = 0.0
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        now = time.time()
        self.last_start = self.last_start or now - now % DAY + 2 * 3600 - (DAY if now % DAY < 3 * 3600 else 0)

    @property
    def start(self) -> float:
        """When the run of this night began."""
        return self.last_start - DAY * (self.nights - 1 - self.night)

    def generation(self, night: int) -> int:
        """Which commit of the kernels is measured in a night: a new one with each fault, and every third night."""
        turns = {n for f in self.faults if not (f.torch or f.machine) for n in (f.since, f.until) if n is not None}
        quiet = {f.since for f in self.faults if f.machine or f.torch}
        return sum((n % 3 == 0 or n in turns) and n not in quiet for n in range(1, night + 1))

    def first_night(self, generation: int) -> int:
        """The night that brought a generation."""
        return next(n for n in range(self.nights + 1) if self.generation(n) == generation)

    @property
    def torch(self) -> str:
        """Version of torch in this night."""
        upgrade = [f for f in self.faults if f.torch]
        return next((f.torch for f in upgrade if f.at(self.night)), "2.12.1" if upgrade else "2.13.0")

    def active(self, case: Case, kernels: int | None = None) -> list[Fault]:
        """Faults that hit a case with the kernels of a night, this one's by default, and today's torch and machine."""
        code = self.night if kernels is None else kernels
        here = [f for f in self.faults if f.at(self.night if f.torch or f.machine else code)]
        return [f for f in here if f.predicate(case.columns)]

    def draw(self, case: Case, n: int, kernels: int | None = None, shift: float = 1.0) -> list[float]:
        """``n`` samples of a case, seconds."""
        samples = np.asarray(self.real[case.key].samples["latency_s"])
        # What neighbours on this machine disturbed for a while would disturb every night in its place.
        samples = samples[samples <= 1.15 * np.quantile(samples, 0.25)]
        factor = shift * float(np.prod([f.time for f in self.active(case, kernels)]))
        smooth = np.exp(self.rng.normal(0, 0.004, n))
        return [float(x) for x in self.rng.choice(samples, n) * smooth * factor]

    def measured(self, case: Case, at: float, *, attempt: int = 1, shift: float = 1.0, n: int = 40) -> Measurement:
        """One measurement of this night."""
        real, faults = self.real[case.key], self.active(case)
        bad = next((f for f in faults if f.status is not Status.OK), None)
        if bad is not None:
            detail = f"planted: {bad.text}; largest error 0.31 where 0.0001 is allowed"
            return Measurement(case, bad.status, at, 0.1, detail, attempt, telemetry=real.telemetry)
        samples = self.draw(case, n, shift=shift)
        middle, low, high = _interval(samples)
        memory = float(np.prod([f.memory for f in faults]))
        metrics = dict(real.metrics)
        for name in _RATES:
            if name in metrics:
                metrics[name] = Value(metrics[name].value * real.metrics["latency_s"].value / middle)
        for name in ("peak_memory_bytes", "workspace_bytes"):
            if name in metrics:
                metrics[name] = replace(metrics[name], value=round(metrics[name].value * memory))
        metrics["latency_s"] = Value(middle, low, high, n)
        operators = next((list(f.operators) for f in faults if f.operators), real.operators)
        return replace(
            real, started_at=at, attempt=attempt, metrics=metrics, samples={"latency_s": samples}, warmup={},
            operators=operators,
        )  # fmt: skip

    def revision(self, night: int) -> Revision:
        """The commit of a night."""
        generation = self.generation(night)
        name = commit(generation)
        first = self.first_night(generation)
        return Revision(
            name, name, committed_at=self.start - 7200, subject=f"demonstration commit {generation} of night {first}",
            kernels_hash=name[:16],
        )  # fmt: skip

    # What stands for the worker and for git while the judge measures again.

    def run_ab(
        self, cases: Sequence[Case], base: WorkerSpec, head: WorkerSpec, options: MeasureOptions, judge: ABOptions,
        **_: Any,
    ) -> tuple[list[ABCase], list[Case]]:  # fmt: skip
        """As :func:`harness.ab.run_ab`, answered from the samples."""
        nights = [self.first_night(int(Path(str(s.kernels)).name)) for s in (base, head)]
        done = []
        for case in cases:
            statuses = [
                next((f.status for f in self.active(case, n) if f.status is not Status.OK), Status.OK) for n in nights
            ]
            if any(s is not Status.OK for s in statuses):
                done.append(ABCase(case, statuses[0], statuses[1], detail="fails"))
                continue
            a, b = (self.draw(case, 48, n) for n in nights)
            done.append(ABCase(case, Status.OK, Status.OK, compare(a, b, judge, paired=True), "", a, b))
        return done, []

    def connect(self, spec: WorkerSpec) -> _Client:
        """As :meth:`WorkerClient.connect`."""
        return _Client(self)

    def build(self, repo: Path, ref: str) -> Build:
        """As :func:`harness.builds.build`: the folder's name is the generation."""
        known = {commit(self.generation(n)): self.generation(n) for n in range(self.night + 1)}
        return Build(Path(f"/demonstration/{known[ref]}"), ref)


@dataclass
class _Client:
    world: World

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def measure(self, case: Case, options: MeasureOptions) -> Measurement:
        return self.world.measured(case, self.world.start + 1800, n=48)


def commit(generation: int) -> str:
    """The made-up commit of a generation of kernels."""
    return hashlib.sha1(f"demonstration {generation}".encode(), usedforsecurity=False).hexdigest()


def _interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median with its distribution-free 95 % interval."""
    ordered = sorted(samples)
    n = len(ordered)
    half = 0.98 * n**0.5
    low, high = max(int(n / 2 - half), 0), min(int(np.ceil(n / 2 + half)), n - 1)
    return float(np.median(ordered)), ordered[low], ordered[high]
