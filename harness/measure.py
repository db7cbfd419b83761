"""``python -m harness.measure``: measure a suite without asv, to a bundle that any machine ingests.

Needs torch, triton, numpy and nvidia-ml-py in the worker and the standard library here, so that it runs on a bare
GPU image. ``attnwatch measure`` is this with a progress bar.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from harness import sharding
from harness.bundle import BundleWriter
from harness.device import refuse_foreign_processes, resolve_device
from harness.duration import seconds
from harness.jsonout import print_json
from harness.locks import sweep_lock
from harness.measure_flags import FLAGS
from harness.model import (
    AttnwatchError,
    Case,
    Exit,
    InfrastructureError,
    InputError,
    Measurement,
    MeasureOptions,
    Run,
    Status,
)
from harness.model.serde import to_plain
from harness.model.workloads import suite_name
from harness.revision import revision_of
from harness.selection import select
from harness.signals import terminable
from harness.suites import find, outside_modules
from harness.sweep import (
    ResumeState,
    SweepEvent,
    SweepSummary,
    ordered,
    resume_state,
    run_options,
    run_sweep,
    same_run,
)
from harness.worker import WorkerClient, WorkerSpec

#: What a shell gives a program that Ctrl-C ended.
INTERRUPTED = 130

Progress = Callable[[SweepEvent], None]

_QUICK: dict[str, Any] = {"rel_width": 0.1, "max_seconds": 0.2, "hot": False, "memory": False}


def main(argv: Sequence[str] | None = None, progress: Progress | None = None) -> int:
    """Run the command; gives the exit code. ``progress`` replaces the plain lines on standard error."""
    try:
        with terminable():
            return _run(_parser().parse_args(argv), progress)
    except AttnwatchError as error:
        _note(f"attnwatch: {error}")
        return int(error.exit_code)
    except KeyboardInterrupt:
        _note("attnwatch: interrupted before anything was measured")
        return INTERRUPTED


def _run(a: argparse.Namespace, progress: Progress | None) -> int:
    if a.reuse is not None and a.shard is not None:
        raise InputError("--reuse and --shard exclude each other: shards of one run must agree on its cases")
    whole = ordered(select(a.suite, a.backend, a.where))
    shard = sharding.parse(a.shard, whole) if a.shard is not None else None
    cases, costs = whole, sharding.costs(a.shard_costs)
    if shard is not None:
        cases = sharding.part(whole, shard, costs)
        if costs.durations:
            _note(sharding.outlook(whole, shard, costs))
    if a.list or a.dry_run:
        _show_cases(cases, as_json=a.json, summary=a.dry_run)
        return int(Exit.CLEAN)
    out = Path(a.out or f"attnwatch-{suite_name(a.suite)}{'' if shard is None else shard.suffix}.jsonl")
    _refuse_endless(out)
    device = resolve_device(a.device)
    refuse_foreign_processes(device)
    options = _options(a)
    deadline = None if a.budget is None else time.time() + a.budget
    for text in find().broken:
        _note(f"attnwatch: {text}")
    spec = WorkerSpec(device, isolate=a.isolate, modules=outside_modules({c.backend for c in cases}))
    with sweep_lock(device, f"measure --suite {a.suite}"), _opened(out) as writer:
        if writer.recovered:
            _note(writer.recovered)
        with WorkerClient.connect(spec) as client:
            environment = client.environment()
            revision = revision_of(Path(environment.kernels_path).parent)
            asked = run_options(
                options, driver="measure", backends=",".join(sorted(a.backend)), where=a.where or "", isolate=a.isolate
            )
            wanted = Run(
                uuid.uuid4().hex, suite_name(a.suite), revision, environment, time.time(), planned=len(cases),
                options=asked,
            )  # fmt: skip
            if shard is not None:
                wanted = sharding.as_shard(wanted, shard, len(whole), a.run)
            if a.reuse is not None:
                known = _already_measured(a.reuse, wanted)
                cases = [c for c in cases if c.key not in known]
                _note(
                    f"{wanted.planned - len(cases)} of {wanted.planned} cases are in {a.reuse} and not measured again"
                )
                wanted = replace(wanted, planned=len(cases))
                if not cases:
                    _report(a, out, wanted, SweepSummary(), 0)
                    return int(Exit.CLEAN)
            state = _resume(out, wanted)
            run = state.run or wanted
            if state.run is not None:
                _note(f"resuming run {run.id} in {out}: {len(state.done)} of {run.planned} cases are done")
            summary = run_sweep(
                cases,
                run=run,
                client=client,
                writer=writer,
                options=options,
                progress=progress or (plain_progress if sys.stderr.isatty() else _notes_only),
                done=state.done,
                pending=state.pending,
                deadline=deadline,
                write_run=state.run is None,
            )
    _report(a, out, run, summary, len(state.done))
    return INTERRUPTED if summary.interrupted else int(Exit.CLEAN)


def _already_measured(url: str, wanted: Run) -> set[str]:
    """Keys of cases whose results the store at ``url`` holds; InfrastructureError on images without a database."""
    try:
        from db.coverage import already_measured
        from db.engine import open_store
    except ImportError as error:
        raise InfrastructureError(f"--reuse asks a store, and {error}; install attnwatch, or leave it away") from None
    with open_store(url, create=False, read_only=True) as store:
        return already_measured(store, wanted)


def _refuse_endless(out: Path) -> None:
    """InputError for a device, pipe or socket: a bundle is read before it is appended to, and these may never end."""
    if out.exists() and not out.is_file() and not out.is_dir():
        raise InputError(f"--out {out}: not a regular file; name a new file or a bundle")


@contextmanager
def _opened(out: Path) -> Iterator[BundleWriter]:
    """The bundle for appending; a file made here that nothing was written to is taken away again."""
    fresh = not out.exists()
    with BundleWriter(out) as writer:
        try:
            yield writer
        finally:
            if fresh and out.stat().st_size == 0:
                out.unlink()


def _resume(out: Path, wanted: Run) -> ResumeState:
    """What ``out`` holds of an unfinished run that this command would repeat; an empty state for any other."""
    state = resume_state(out)
    if state.run is None:
        return ResumeState()
    # A shard is known by its id: measured twice, it would contradict itself.
    if same_run(state.run, wanted) and (not state.complete or state.run.id == wanted.id):
        return state
    if state.complete:
        return ResumeState()
    _note(f"{out} holds an unfinished run of another suite, revision, environment or options; a new run is added")
    return ResumeState()


def plain_progress(event: SweepEvent) -> None:
    """One line per case on standard error: ``[12/80] CASE 1.23 ms (eta 40 s)``."""
    if event.kind == "note":
        _note(event.text)
    if event.case is None or event.measurement is None:
        return
    m = event.measurement
    again = " (once more)" if event.kind == "retry" else ""
    eta = "" if event.eta_s is None else f" (eta {event.eta_s:.0f} s)"
    _note(f"[{event.index + 1}/{event.total}] {_name(event.case)} {_outcome(m)}{again}{eta}")


def _notes_only(event: SweepEvent) -> None:
    if event.kind == "note":
        _note(event.text)


def _report(a: argparse.Namespace, out: Path, run: Run, summary: SweepSummary, earlier: int) -> None:
    counts = {status.value: n for status, n in sorted(summary.counts.items())}
    if a.json:
        print_json(
            {
                "run": run.id,
                "suite": run.suite,
                "revision": run.revision.id,
                "device": run.environment.machine.device_model,
                "bundle": str(out),
                "counts": counts,
                "measured": summary.measured,
                "earlier": earlier,
                "remaining": summary.remaining,
                "interrupted": summary.interrupted,
                "cases": [_row(m) for m in summary.measurements],
            }
        )
    else:
        for m in (m for m in summary.measurements if m.status is not Status.UNSUPPORTED):
            why = f": {m.detail}" if m.status.failed and m.detail else ""
            print(f"{_outcome(m):>12}  {_name(m.case)}{why}")
        _tell_unsupported(summary.measurements, a.backend)
    text = ", ".join(f"{n} {status}" for status, n in counts.items()) or "nothing new"
    _note(f"measured {summary.measured} cases ({text}); bundle: {out}")
    if summary.remaining:
        why = "interrupted" if summary.interrupted else "the budget ended"
        _note(f"{why}: {summary.remaining} cases are left; the same command with --out {out} goes on from here")


def _tell_unsupported(measured: Sequence[Measurement], asked: Sequence[str]) -> None:
    """Why a backend that was named cannot run anything here: a slip in its name looks the same."""
    for name in asked:
        ours = [m for m in measured if m.case.backend == name]
        if ours and all(m.status is Status.UNSUPPORTED for m in ours):
            for why in dict.fromkeys(m.detail for m in ours):
                _note(f"{name}: {why}")


def _row(m: Measurement) -> dict[str, Any]:
    return {
        **m.case.columns,
        "status": m.status.value,
        "detail": m.detail,
        "attempt": m.attempt,
        "stop_reason": m.stop_reason,
        "metrics": {name: to_plain(value) for name, value in m.metrics.items()},
    }


def _show_cases(cases: Sequence[Case], *, as_json: bool, summary: bool) -> None:
    if as_json:
        print_json({"cases": [c.columns for c in cases], "count": len(cases)})
        return
    if not summary:
        for case in cases:
            print(_name(case))
    workloads = len({(c.workload.operation, c.workload.label) for c in cases})
    print(f"{len(cases)} cases: {workloads} workloads, backends {', '.join(sorted({c.backend for c in cases}))}")


def _name(case: Case) -> str:
    return f"{case.benchmark} {case.backend} {case.workload.label}"


def _outcome(m: Measurement) -> str:
    value = m.metrics.get("latency_s")
    if m.status is not Status.OK or value is None:
        return m.status.value
    exponent = 0 if value.value <= 0 else min(0, math.floor(math.log10(value.value) / 3))
    unit = {0: "s", -1: "ms", -2: "us"}.get(exponent, "ns")
    return f"{value.value * {'s': 1, 'ms': 1e3, 'us': 1e6, 'ns': 1e9}[unit]:.3g} {unit}"


def _options(a: argparse.Namespace) -> MeasureOptions:
    given = {"rel_width": a.rel_width, "max_seconds": a.max_seconds, "seed": a.seed, "timeout_s": a.timeout}
    base = replace(MeasureOptions(), **_QUICK) if a.quick else MeasureOptions()
    return replace(base, **{k: v for k, v in given.items() if v is not None})


def _duration(text: str) -> float:
    try:
        return seconds(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--budget: ")) from None


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return value


class _Parser(argparse.ArgumentParser):
    """Errors of usage begin and end like all others."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see --help")


def _parser() -> argparse.ArgumentParser:
    p = _Parser(prog="python -m harness.measure", description="Measure a suite to a bundle.", allow_abbrev=False)
    kinds: dict[str, Callable[[str], Any]] = {"duration": _duration, "positive": _positive, "integer": int}
    for flag in FLAGS:
        text = flag.help.replace("%", "%%")
        if flag.kind == "switch":
            p.add_argument(flag.name, action="store_true", help=text)
        elif flag.kind == "repeat":
            p.add_argument(flag.name, action="append", default=[], metavar=flag.metavar, help=text)
        else:
            kind = kinds.get(flag.kind, str)
            p.add_argument(flag.name, type=kind, default=flag.default, metavar=flag.metavar, help=text)
    return p


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    if {"--list", "--dry-run"} & set(sys.argv) and hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # | head: nothing is measured that could be lost
    sys.exit(main())
