"""``python -m harness.measure``: measure a suite without asv, to a bundle that any machine ingests.

Needs torch, triton, numpy and nvidia-ml-py in the worker and the standard library here, so that it runs on a bare
GPU image. ``attnwatch measure`` is this with a progress bar.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

from harness.bundle import BundleWriter
from harness.device import refuse_foreign_processes, resolve_device
from harness.duration import seconds
from harness.locks import sweep_lock
from harness.model import (
    AttnwatchError,
    Case,
    Environment,
    Exit,
    InputError,
    Measurement,
    MeasureOptions,
    Revision,
    Run,
    Scalar,
    Status,
)
from harness.model.serde import to_plain
from harness.revision import revision_of
from harness.selection import select
from harness.suites import suite_names
from harness.sweep import SweepEvent, SweepSummary, failed_once, ordered, resume_state, run_sweep
from harness.worker import WorkerClient, WorkerSpec

#: What a shell gives a program that Ctrl-C ended.
INTERRUPTED = 130

Progress = Callable[[SweepEvent], None]

_QUICK: dict[str, Any] = {"rel_width": 0.1, "max_seconds": 0.2, "hot": False, "memory": False}


def main(argv: Sequence[str] | None = None, progress: Progress | None = None) -> int:
    """Run the command; gives the exit code. ``progress`` replaces the plain lines on standard error."""
    arguments = _parser().parse_args(argv)
    try:
        with _terminable():
            return _run(arguments, progress)
    except AttnwatchError as error:
        _note(f"error: {error}")
        return int(error.exit_code)
    except KeyboardInterrupt:
        _note("interrupted before anything was measured")
        return INTERRUPTED


def _run(a: argparse.Namespace, progress: Progress | None) -> int:
    cases = ordered(select(a.suite, a.backend, a.where))
    if a.list or a.dry_run:
        _show_cases(cases, as_json=a.json, summary=a.dry_run)
        return int(Exit.CLEAN)
    device = resolve_device(a.device)
    refuse_foreign_processes(device)
    options = _options(a)
    out = Path(a.out or f"attnwatch-{_suite_name(a.suite)}.jsonl")
    deadline = None if a.budget is None else time.time() + a.budget
    modules = tuple(sorted({b.partition(":")[0] for b in a.backend if ":" in b}))
    spec = WorkerSpec(device, isolate=a.isolate, modules=modules)
    with sweep_lock(device, f"measure --suite {a.suite}"), _opened(out) as writer:
        if writer.recovered:
            _note(writer.recovered)
        with WorkerClient.connect(spec) as client:
            environment = client.environment()
            revision = revision_of(Path(environment.kernels_path).parent)
            run, resumed, done, once = _resume(a, out, options, environment, revision, len(cases))
            if resumed:
                _note(f"resuming run {run.id} in {out}: {len(done)} of {run.planned} cases are done")
            summary = run_sweep(
                cases,
                run=run,
                client=client,
                writer=writer,
                options=options,
                progress=progress or (plain_progress if sys.stderr.isatty() else _notes_only),
                done=done,
                failed_once=once,
                deadline=deadline,
                write_run=not resumed,
            )
    _report(a, out, run, summary, len(done))
    return INTERRUPTED if summary.interrupted else int(Exit.CLEAN)


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


def _suite_name(text: str) -> str:
    """Name of a suite; of a workload file the name without its suffixes."""
    return Path(text).name.removesuffix(".json").removesuffix(".suite")


def _resume(
    a: argparse.Namespace,
    out: Path,
    options: MeasureOptions,
    environment: Environment,
    revision: Revision,
    planned: int,
) -> tuple[Run, bool, set[str], set[str]]:
    """The unfinished run in ``out`` that this command would repeat, else a new one."""
    asked: dict[str, Scalar] = {k: v for k, v in asdict(options).items() if v is not None}
    asked |= {
        "driver": "measure",
        "backends": ",".join(sorted(a.backend)),
        "where": a.where or "",
        "isolate": a.isolate,
    }
    state = resume_state(out)
    run = state.run
    if run is not None and not state.complete:
        same = (run.suite, run.revision.id, run.environment.hash, run.options, run.planned) == (
            _suite_name(a.suite), revision.id, environment.hash, asked, planned,
        )  # fmt: skip
        if same:
            return run, True, state.done, failed_once(out)
        _note(f"{out} holds an unfinished run of another suite, revision, environment or options; a new run is added")
    new = Run(
        uuid.uuid4().hex, _suite_name(a.suite), revision, environment, time.time(), planned=planned, options=asked
    )
    return new, False, set(), set()


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
        _print_json(
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
            print(f"{_outcome(m):>12}  {_name(m.case)}")
    text = ", ".join(f"{n} {status}" for status, n in counts.items()) or "nothing new"
    _note(f"measured {summary.measured} cases ({text}); bundle: {out}")
    if summary.remaining:
        why = "interrupted" if summary.interrupted else "the budget ended"
        _note(f"{why}: {summary.remaining} cases are left; the same command with --out {out} goes on from here")


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
        _print_json({"cases": [c.columns for c in cases], "count": len(cases)})
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


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a sweep as gently as Ctrl-C: schedulers of CI send it first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _duration(text: str) -> float:
    try:
        return seconds(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return value


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m harness.measure", description="Measure a suite to a bundle.")
    suites = ", ".join(suite_names())
    p.add_argument("--suite", required=True, metavar="NAME|FILE", help=f"{suites}, or a workload file")
    p.add_argument(
        "--backend", action="append", default=[], metavar="GLOB",
        help="only these backends; package.module:function brings one of your own; may be repeated",
    )  # fmt: skip
    p.add_argument("--where", metavar="EXPR", help="only cases for which it holds, e.g. 'kv_len %% 128 == 1'")
    p.add_argument("--out", metavar="FILE", help="bundle to append to or resume (attnwatch-SUITE.jsonl)")
    p.add_argument("--device", metavar="DEVICE", help="cpu or cuda:N; a GPU where there is one")
    p.add_argument("--json", action="store_true", help="JSON alone on standard output")
    p.add_argument("--quick", action="store_true", help="wider intervals, latency only")
    p.add_argument("--list", action="store_true", help="print the cases and end")
    p.add_argument("--dry-run", action="store_true", help="say how much would be measured and end")
    p.add_argument("--budget", type=_duration, metavar="TIME", help="begin no case after 90s, 15m or 2h")
    p.add_argument("--isolate", action="store_true", help="a fresh process for each case")
    p.add_argument("--rel-width", type=_positive, metavar="X", help="half-width of the interval to stop at, e.g. 0.02")
    p.add_argument("--max-seconds", type=_positive, metavar="S", help="longest sampling of one metric")
    p.add_argument("--timeout", type=_positive, metavar="S", help="longest time for one case")
    p.add_argument("--seed", type=int, metavar="N", help="seed of the inputs")
    return p


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, allow_nan=False, indent=1) + "\n")


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
