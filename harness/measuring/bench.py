"""The bench: one device, one process, one case at a time. All that the harness knows of a case comes from here."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from harness.catalogue.kv_memory import model_bytes
from harness.hashing import kernels_location
from harness.model import (
    BackendReport,
    Case,
    Environment,
    Measurement,
    MeasureOptions,
    Scalar,
    Status,
    Value,
)
from harness.model.trace import TELEMETRY, encode

from . import gate, memory, tracer
from .backends import Backends, Implementation, oracle
from .controls import Controls, controls
from .devices import clock_for, device_of
from .environment import environment
from .failures import CaseFailed, available_memory, guarded, memory_ceiling, release
from .limits import check_asked, limited
from .operations import operation_of
from .others import check_others
from .params import ParamError, dtype_name
from .prepared import PreparedCase
from .timing.adaptive import StopRule
from .timing.clock import Account, Clock, Samples, collect
from .timing.cores import on_same_cores

#: Default half-width of the median's interval at which sampling stops, per kind of device.
REL_WIDTH = {"cpu": 0.05, "cuda": 0.01}

#: Hot latency is context, not judged: it may take this share of the time.
_HOT_SHARE = 0.25

#: Most that problems kept for other backends may take, and their share of the memory available.
_KEPT_BYTES, _KEPT_SHARE = 1 << 30, 0.1

#: New modules after which the garbage collector is settled again.
_MANY_MODULES = 50


@dataclass
class _Running:
    """A case on its way: filled in as far as it gets."""

    case: Case
    options: MeasureOptions
    account: Account = field(default_factory=Account)
    metrics: dict[str, Value] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    warmup: dict[str, list[float]] = field(default_factory=dict)
    discarded: dict[str, int] = field(default_factory=dict)
    operators: list[str] = field(default_factory=list)
    telemetry: dict[str, Scalar] = field(default_factory=dict)
    stop_reason: str = ""


class Bench:
    """Measures cases on one device. Use it from the main thread: other threads have other heaps.

    ``device`` is ``cpu``, ``cuda`` or ``cuda:N``. ``limit_memory`` lets an allocation beyond the memory that
    is available fail while a case runs, so that the case is out of memory and not the machine.
    """

    def __init__(self, device: str = "cpu", *, limit_memory: bool = True, clock: Clock | None = None) -> None:
        self._device = device_of(device)
        self._name = device
        self._limit_memory = limit_memory
        self._clock = clock if clock is not None else clock_for(self._device)
        free = available_memory() or 0
        self._problems = gate.Problems(device, min(_KEPT_BYTES, int(free * _KEPT_SHARE)))
        self._backends = Backends(device)
        self._called: set[str] = set()
        self._kernels: tuple[Path, str] | None = None
        self._environment: Environment | None = None
        # The profiler's first start takes most of a second: not in somebody's case.
        memory.footprint(lambda: torch.ones(1), [], self._device)
        self._modules = 0
        self._settle()

    def environment(self) -> Environment:
        """The record of device, software and kernels; made once."""
        if self._environment is None:
            self._environment = environment(self._name)
        return self._environment

    def reports(self) -> list[BackendReport]:
        """Every registered backend: usable on this device, or why not and how to get it."""
        return self._backends.reports()

    def controls(self, options: MeasureOptions) -> Controls:
        """Values and samples of the frozen control kernels."""
        return controls(self._clock, self._device, options, self._rule(options))

    def measure(self, case: Case, options: MeasureOptions) -> Measurement:
        """Measures one case. What the case does wrong becomes status and detail, never an exception.

        Raises ``InfrastructureError`` when there are no kernels to measure, and KeyboardInterrupt.
        """
        started_at, start = time.time(), time.perf_counter()
        run = _Running(case, options)
        run.telemetry["threads"] = torch.get_num_threads()
        status, detail = Status.OK, ""
        try:
            with self._ceiling(), guarded("measuring"):
                self._measure(run)
        except CaseFailed as failed:
            status, detail = failed.status, failed.detail
            run.metrics = {n: v for n, v in run.metrics.items() if n in ("input_bytes", "first_call_s")}
            run.samples, run.warmup = {}, {}
            release(failed)
            self._after_failure(run, status)
        run.telemetry.update(self._telemetry())
        duration = time.perf_counter() - start
        a = run.account
        run.telemetry.update(kernel_s=a.kernel_s, flush_s=a.flush_s, inputs_s=a.inputs_s, oracle_s=a.oracle_s)
        run.telemetry["harness_s"] = max(0.0, duration - a.total)
        return Measurement(
            case=case,
            status=status,
            started_at=started_at,
            duration_s=duration,
            detail=detail,
            metrics=run.metrics,
            samples=run.samples,
            warmup=run.warmup,
            discarded=run.discarded,
            stop_reason=run.stop_reason,
            operators=run.operators,
            telemetry=run.telemetry,
        )

    def prepare(self, case: Case, options: MeasureOptions) -> PreparedCase:
        """Gates the case and warms it up, for interleaved sampling. Raises :class:`CaseFailed`."""
        run = _Running(case, options)
        try:
            with self._ceiling(), guarded("preparing"):
                call, problem = self._gated(run)
                check = (lambda result: self._right(run, result, problem)) if options.check else None
                first = run.metrics.get("first_call_s")
                place = on_same_cores if self._device.type == "cpu" else contextlib.nullcontext
                prepared = PreparedCase(case, call, self._clock, check, None if first is None else first.value, place)
                prepared.sample(2)
                self._remembers_nothing(run, call, problem)
                return prepared
        except CaseFailed as failed:
            self._after_failure(run, failed.status)
            raise

    def _measure(self, run: _Running) -> None:
        options, account = run.options, run.account
        call, problem = self._gated(run)
        with guarded("timing"):
            if options.memory:
                self._footprint(run, call, problem)
            rule = self._rule(options)
            cold = collect(self._clock, call, rule, account, cold=True)
            self._keep(run, "latency_s", cold)
            run.stop_reason = cold.stop_reason
            run.telemetry["rel_width"] = rule.rel_width
            if cold.disturbed:
                run.telemetry["disturbed"] = cold.disturbed
                run.telemetry["fell_back_to_disturbed"] = cold.fell_back
            if options.hot:
                short = options.max_seconds * _HOT_SHARE
                hot_rule = StopRule(rule.rel_width, rule.min_samples, rule.max_samples, short, short)
                hot = collect(self._clock, call, hot_rule, account, cold=False)
                self._keep(run, "latency_hot_s", hot)
                run.telemetry["hot_stop_reason"] = hot.stop_reason
        self._unchanged(problem)
        self._right(run, self._clock.take(), problem)
        self._remembers_nothing(run, call, problem)
        if "latency_s" not in run.metrics:
            raise CaseFailed(Status.INVALID, f"every sample was discarded: {run.discarded}")
        self._rates(run)

    def _gated(self, run: _Running) -> tuple[Callable[[], Any], gate.Problem]:
        """The call that is to be timed, after its first result was found right."""
        case, options, account = run.case, run.options, run.account
        workload = case.workload
        try:
            check_asked(workload.params)
            operation_of(workload).work(workload.params)  # a bad workload is found before anything is loaded
            found = self._backends.implementation(case.backend, workload.operation, workload.params)
            self._settle()
            self._origin(run, found)
            judge = oracle(workload.operation) if options.check else None
            with guarded("making the inputs"):
                problem = self._problems.get(workload, options.seed, account, judge)
        except ParamError as error:
            raise CaseFailed(Status.INVALID, f"bad workload: {error}") from None
        run.metrics["input_bytes"] = Value(problem.inputs.bytes)
        if cached := problem.inputs.cache_bytes:
            run.metrics["kv_cache_bytes"] = Value(cached)
        if (model := model_bytes(workload.params)) is not None:
            run.metrics["kv_model_bytes"] = Value(model)
        dtype = getattr(torch, dtype_name(workload.params))
        if options.check:
            gate.poison_free_memory(problem.expected, dtype)
        start_case = getattr(self._clock, "start_case", None)
        if start_case is not None:
            start_case()
        with guarded("first call"):
            call = limited(self._call(found, problem, account), workload.params, self._device)
            result, seconds = self._clock.once(call, account)
        if case.key not in self._called:
            self._called.add(case.key)
            run.metrics["first_call_s"] = Value(seconds)
        if options.check:
            with guarded("comparing with the oracle"):
                worst = gate.check(gate.as_list(result, problem), problem.expected, dtype)
                run.metrics["max_abs_error"] = Value(worst)
                if (largest := gate.largest(problem.expected)) > 0.0:
                    run.metrics["max_rel_error"] = Value(worst / largest)
        del result
        self._unchanged(problem)
        return call, problem

    def _right(self, run: _Running, result: object, problem: gate.Problem) -> None:
        """Whether what was timed still gives what the first call gave."""
        if not run.options.check or result is None:
            return
        dtype = getattr(torch, dtype_name(run.case.workload.params))
        try:
            with guarded("comparing with the oracle"):
                gate.check(gate.as_list(result, problem), problem.expected, dtype)
        except CaseFailed as failed:
            raise CaseFailed(failed.status, f"the last timed call, unlike the first: {failed.detail}") from None

    def _remembers_nothing(self, run: _Running, call: Callable[[], Any], problem: gate.Problem) -> None:
        """Whether other values in the same buffers give another result."""
        if not run.options.check:
            return
        dtype = getattr(torch, dtype_name(run.case.workload.params))
        with guarded("a call with other values in the same buffers"):
            check_others(lambda: self._clock.once(call, run.account)[0], problem, dtype)
        self._unchanged(problem)

    def _call(self, found: Implementation, problem: gate.Problem, account: Account) -> Callable[[], Any]:
        inputs, function = problem.inputs, found.function
        if not problem.backward:

            def forward() -> Any:
                with torch.no_grad():
                    return inputs.call(function)

            return forward
        leaves = [t.detach().requires_grad_() for t in inputs.tensors.values()]
        with account.spend("kernel_s"):
            out = function(*leaves, **inputs.options)
        grad_out = problem.grad_out

        def backward() -> Any:
            return torch.autograd.grad(out, leaves, grad_out, retain_graph=True)

        return backward

    def _footprint(self, run: _Running, call: Callable[[], Any], problem: gate.Problem) -> None:
        start = time.perf_counter()
        spent: list[float] = []

        def timed() -> Any:
            begin = time.perf_counter()
            result = call()
            spent.append(time.perf_counter() - begin)
            return result

        found = memory.footprint(
            timed, problem.inputs.everything(), self._device,
            results_are="gradients" if problem.backward else "results",
        )  # fmt: skip
        run.account.kernel_s += sum(spent)
        run.telemetry["profile_s"] = time.perf_counter() - start - sum(spent)
        run.operators = found.operators
        run.metrics |= {
            "peak_memory_bytes": Value(found.peak),
            "output_bytes": Value(found.output),
            "workspace_bytes": Value(found.workspace),
            "operator_calls": Value(found.calls),
            **{f"peak_{part}_bytes": Value(n) for part, n in found.parts.items() if n},
        }
        if tracer.enabled():
            given = list(problem.inputs.tensors.values())
            run.telemetry[TELEMETRY] = encode(*tracer.trace_call(call, run.case.backend, given))
        if (observe := operation_of(run.case.workload).observe) is not None:
            seen = observe(call, problem.inputs, run.case.workload.params)
            run.metrics |= {name: x if isinstance(x, Value) else Value(x) for name, x in seen.items()}

    def _rates(self, run: _Running) -> None:
        workload = run.case.workload
        work = operation_of(workload).work(workload.params)
        latency = run.metrics["latency_s"]
        for name, amount in (
            ("flops_per_s", work.flops),
            ("tokens_per_s", float(work.query_tokens)),
            ("bytes_per_s", float(work.bytes)),
        ):
            low, high = (None if t is None or t <= 0 else amount / t for t in (latency.high, latency.low))
            run.metrics[name] = Value(amount / latency.value, low, high, latency.n)
        overhead = getattr(self._clock, "host_overhead_s", None)
        if overhead:
            run.metrics["host_overhead_s"] = Samples(values=list(overhead)).value()

    @staticmethod
    def _keep(run: _Running, name: str, got: Samples) -> None:
        if got.values:
            run.metrics[name] = got.value()
            run.samples[name] = got.values
        run.warmup[name] = got.warmup
        for reason, count in got.discarded.items():
            run.discarded[reason] = run.discarded.get(reason, 0) + count

    def _unchanged(self, problem: gate.Problem) -> None:
        if not problem.unchanged():
            self._problems.drop(problem)
            raise CaseFailed(Status.WRONG, "the kernel wrote into its inputs (checksums before and after differ)")

    def _settle(self) -> None:
        """Takes what was imported since out of the garbage collector's sight.

        torch and the backends' libraries are so many objects that one full collection takes longer than
        measuring a small case.
        """
        if len(sys.modules) >= self._modules + _MANY_MODULES:
            gc.collect()
            gc.freeze()
            self._modules = len(sys.modules)

    def _after_failure(self, run: _Running, status: Status) -> None:
        """Gives memory back; says whether the device can still be used."""
        if status in (Status.OUT_OF_MEMORY, Status.CRASHED):
            gc.collect()  # what a kernel left in cycles; tracebacks are dropped already
        if self._device.type != "cuda":
            return
        try:
            torch.cuda.empty_cache()
            torch.cuda.synchronize(self._device)
        except Exception as error:
            run.telemetry["context_lost"] = True
            release(error)

    def _origin(self, run: _Running, found: Implementation) -> None:
        if self._kernels is None:
            self._kernels = kernels_location()
        run.telemetry["implementation"] = found.target
        run.telemetry["implementation_path"] = found.path
        run.telemetry["kernels_path"], run.telemetry["kernels_hash"] = str(self._kernels[0]), self._kernels[1]

    def _telemetry(self) -> dict[str, Scalar]:
        found = self._clock.telemetry()
        return found | {"threads_after": torch.get_num_threads(), "flush_bytes": self._clock.flush_bytes}

    def _rule(self, options: MeasureOptions) -> StopRule:
        width = REL_WIDTH[self._device.type] if options.rel_width is None else options.rel_width
        hard = max(options.max_seconds, options.timeout_s / 4.0)
        return StopRule(width, options.min_samples, options.max_samples, options.max_seconds, hard)

    def _ceiling(self) -> contextlib.AbstractContextManager[None]:
        return memory_ceiling() if self._limit_memory else contextlib.nullcontext()
