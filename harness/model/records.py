"""One typed record per concept. These are what a bundle holds and what the store keeps.

Plain dataclasses, standard library only, so that the measuring half runs on a bare GPU image. Units are SI
and stand in the field names; times are seconds since the epoch, UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from .canonical import Params, Scalar, canonical_json, content_key, label
from .terms import RULER_VERSION, Reason, Status


@dataclass(frozen=True)
class Workload:
    """Shapes, dtype, mask and pass of one operation.

    ``params`` uses the shared names (``batch heads_q heads_kv q_len kv_len head_dim dtype causal page_size
    segment_len layout mask direction``). ``weight`` is how often production runs it; 1.0 where unknown.
    """

    operation: str
    params: dict[str, Scalar]
    weight: float = 1.0

    @cached_property
    def label(self) -> str:
        """Readable text that :func:`harness.model.canonical.parse_label` reverses."""
        return label(self.params)


@dataclass(frozen=True)
class Case:
    """Benchmark x workload x backend. ``benchmark_version`` changes only when the work itself changes."""

    benchmark: str
    workload: Workload
    backend: str
    benchmark_version: str = "1"

    @cached_property
    def key(self) -> str:
        """Identity of the case. The weight is not part of it."""
        w = self.workload
        return content_key(self.benchmark, self.benchmark_version, w.operation, self.backend, w.params)

    @cached_property
    def columns(self) -> dict[str, Scalar]:
        """Parameters as a row for ``--where`` and for explaining: backend, operation, benchmark, then shapes."""
        w = self.workload
        return {"backend": self.backend, "operation": w.operation, "benchmark": self.benchmark, **w.params}


@dataclass(frozen=True)
class Machine:
    """The device and how it is clocked. ``host`` and ``board_uuid`` are recorded but not identity."""

    device_kind: str
    device_model: str
    clock_policy: str = "default"
    host: str = ""
    board_uuid: str = ""
    details: dict[str, Scalar] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """Series identity: device model, clock policy, ruler version; nothing under test."""
        return content_key("machine", self.device_kind, self.device_model, self.clock_policy, RULER_VERSION)[:16]


@dataclass(frozen=True)
class Environment:
    """Everything around the kernels that may change a number."""

    machine: Machine
    python: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    driver: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    threads: int = 0
    kernels_hash: str = ""
    kernels_path: str = ""
    ruler_version: str = RULER_VERSION

    @cached_property
    def hash(self) -> str:
        """Key of result reuse: machine, packages, driver, variables, threads and kernels."""
        return content_key(
            "environment",
            self.machine.fingerprint,
            self.python,
            self.packages,
            self.driver,
            self.variables,
            self.threads,
            self.kernels_hash,
        )[:16]


@dataclass(frozen=True)
class Revision:
    """What is under test. ``id`` is the commit, or ``commit+dirty.HASH``, or ``unversioned.HASH``."""

    id: str
    commit: str | None = None
    dirty: bool = False
    committed_at: float | None = None
    subject: str = ""
    kernels_hash: str = ""


@dataclass(frozen=True)
class Run:
    """All measurements of one revision on one machine. ``id`` is unique for ever."""

    id: str
    suite: str
    revision: Revision
    environment: Environment
    started_at: float
    reason: Reason = Reason.MANUAL
    planned: int = 0
    ruler_version: str = RULER_VERSION
    options: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Value:
    """One metric of one measurement: value, 95 % interval where it is an estimate, number of samples."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 1


@dataclass(frozen=True)
class Measurement:
    """One case in one run. Timings exist only where ``status`` is ``ok``; otherwise ``detail`` says why."""

    case: Case
    status: Status
    started_at: float
    duration_s: float = 0.0
    detail: str = ""
    attempt: int = 1
    metrics: dict[str, Value] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    warmup: dict[str, list[float]] = field(default_factory=dict)
    discarded: dict[str, int] = field(default_factory=dict)
    stop_reason: str = ""
    operators: list[str] = field(default_factory=list)
    telemetry: dict[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status is not Status.OK and ("latency_s" in self.metrics or not self.detail):
            raise ValueError(f"a measurement that is {self.status.value} needs a detail and has no latency")


@dataclass(frozen=True)
class RunEnd:
    """Closes a run: a bundle without it was cut off and may be resumed."""

    run_id: str
    finished_at: float
    complete: bool = True
    measured: int = 0


__all__ = [
    "Case", "Environment", "Machine", "Measurement", "Params", "Revision", "Run", "RunEnd", "Scalar", "Value",
    "Workload", "canonical_json",
]  # fmt: skip
