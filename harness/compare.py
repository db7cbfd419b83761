"""``attnwatch compare``: two revisions, two interpreters, two environments, or samples in a file."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .builds import build, build_worktree
from .detection.ab import ABOptions, ABResult, compare, family
from .jsonout import finite
from .likely import Likely, counted, likely_first
from .model import AttnwatchError, Case, InputError, MeasureOptions, VerdictKind
from .table import read_table
from .worker import WorkerClient, WorkerSpec

if TYPE_CHECKING:
    from .ab import ABCase
    from .affected import Affected

_SIDES = ("base", "head")
#: Where compiled kernels are kept between processes.
_CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
#: Constant samples (counts, sizes) are exact from so many on; fewer may be constant by chance.
_EXACT_N = 3


@dataclass(frozen=True)
class Side:
    """One side of a comparison and the words for it."""

    spec: WorkerSpec
    text: str


def sides(
    repo: Path,
    device: str,
    *,
    refs: tuple[str | None, str | None],
    pythons: tuple[str | None, str | None],
    variables: tuple[Sequence[str], Sequence[str]],
    modules: tuple[str, ...] = (),
) -> tuple[Side, Side]:
    """Base and head from what the user gave. Without ``--head`` the working tree is head.

    Two interpreters are compared on the same kernels: those of the working tree where it has some, else those that
    each has installed.

    ``modules`` bring backends of others, as in :class:`harness.worker.WorkerSpec`; a side with an
    interpreter of its own finds them there instead.
    InputError where the two sides would be the same thing.
    """
    shared = None
    if refs == (None, None) and pythons != (None, None) and (repo / "kernels" / "__init__.py").is_file():
        shared = str(build_worktree(repo).root)
    made = []
    for ref, python, pairs, name in zip(refs, pythons, variables, _SIDES, strict=True):
        kernels, words = shared, []
        if refs[0] is not None:
            place = build(repo, ref) if ref is not None else build_worktree(repo)
            kernels, words = str(place.root), [ref or "working tree"]
        if python is not None:
            words.append(python)
        env = tuple(sorted(_pair(p, f"--{name}-env") for p in pairs))
        words += [f"{k}={v}" for k, v in env]
        # Another interpreter brings its own packages: one that lies about here would hide the one that is asked about.
        spec = WorkerSpec(device, kernels=kernels, variables=env, modules=() if python else modules)
        if python is not None:
            spec = replace(spec, python=python)
        made.append(Side(spec, " ".join(words) or "as installed"))
    if refs[0] is None and refs[1] is not None:
        raise InputError("--head without --base; say what it is compared with")
    base, head = made
    if base.spec == head.spec:
        raise InputError(
            "base and head are the same; give --base REF [--head REF], --base-python P --head-python P, "
            "--base-env K=V --head-env K=V, or --csv FILE"
        )
    return base, head


@contextlib.contextmanager
def cold_caches(pair: tuple[Side, Side]) -> Iterator[tuple[Side, Side]]:
    """Both sides with kernel caches of their own that begin empty: an upgrade compiles everything anew."""
    with tempfile.TemporaryDirectory(prefix="attnwatch-cold-") as folder:
        made = []
        for name, side in zip(_SIDES, pair, strict=True):
            variables = dict(side.spec.variables)
            for variable in _CACHES:
                variables.setdefault(variable, str(Path(folder) / name / variable.lower()))
            made.append(replace(side, spec=replace(side.spec, variables=tuple(sorted(variables.items())))))
        try:
            yield made[0], made[1]
        finally:
            for side in made:  # nobody else can use workers whose caches go away
                with contextlib.suppress(AttnwatchError), WorkerClient.connect(side.spec) as client:
                    client.shutdown()


def _pair(text: str, option: str) -> tuple[str, str]:
    key, eq, value = text.partition("=")
    if not eq or not key.isidentifier():
        raise InputError(f"{option}: {text!r} is not KEY=VALUE")
    return key, value


def compare_sides(
    base: Side,
    head: Side,
    cases: Sequence[Case],
    options: MeasureOptions,
    judge: ABOptions,
    *,
    budget_s: float | None,
    progress: Any = None,
    relevant: Callable[[Case], float] | None = None,
    likely: Likely | None = None,
    run: Callable[[Sequence[Case], float | None], tuple[list[ABCase], list[Case]]] | None = None,
) -> dict[str, Any]:
    """Interleaved A/B over ``cases``: a report with one row per case, triggers, and go or no-go for head.

    ``relevant`` as in :func:`harness.ab.run_ab`. ``likely`` says what a budget begins with; ``left_out`` and
    ``left_out_kinds`` say what it did not reach. ``run`` measures cases until a deadline in the place of this process.
    """
    from .ab import run_ab, slower
    from .ab_report import ab_report

    deadline = None if budget_s is None else time.time() + budget_s
    likely = likely or Likely()
    if deadline is not None:
        cases = likely_first(cases, likely)
    if run is not None:
        done, left = run(cases, deadline)
    else:
        done, left = run_ab(
            cases, base.spec, head.spec, options, judge, deadline=deadline, progress=progress, relevant=relevant
        )
    return {
        "base": base.text,
        "head": head.text,
        **ab_report(done),
        "left_out": [c.columns for c in left],
        "left_out_kinds": counted(left, likely),
        "adverse": len(slower(done)),
    }


def nothing_touched(base: str, head: str, change: Affected) -> dict[str, Any]:
    """The report of a comparison that has nothing to measure, since the change touches no case that was asked for."""
    from .ab_report import ab_report

    report = {"base": base, "head": head, **ab_report([]), "left_out": [], "left_out_kinds": {}, "adverse": 0}
    return {**report, "unchanged": change.nothing}


def compare_csv(path: str, judge: ABOptions) -> dict[str, Any]:
    """Verdict per case of a file with the columns ``case,side,value``; values are raw samples, lower is better.

    InputError names file, line and column of a cell that cannot be judged, and of a case that has one side only.
    """
    table = read_table(path, text=("case", "side"))
    table.require("case", "side", "value")
    values = table.numbers("value", empty=None)
    samples: dict[str, tuple[list[float], list[float]]] = {}
    order: dict[str, list[int]] = {}
    first: dict[str, int] = {}
    for i, (case, side) in enumerate(zip(table.columns["case"], table.columns["side"], strict=True)):
        if side not in _SIDES:
            raise table.fail(i, "side", "is empty" if side is None else f"must be base or head, not {side!r}")
        if case is None:
            raise table.fail(i, "case", "is empty")
        if not math.isfinite(values[i]):
            raise table.fail(i, "value", f"{values[i]} is no sample; leave failed repetitions out")
        name = str(case)
        first.setdefault(name, i)
        samples.setdefault(name, ([], []))[_SIDES.index(str(side))].append(values[i])
        order.setdefault(name, []).append(_SIDES.index(str(side)))
    if not samples:
        raise InputError(f"{table.name}:1: no rows below the header")
    for name, pair in samples.items():
        for side, found in zip(_SIDES, pair, strict=True):
            if not found:
                raise table.fail(first[name], "side", f"case {name!r} has no sample of {side}; both sides are needed")
    results = family([_judged(b, h, judge, order[c]) for c, (b, h) in samples.items()], judge)
    return {"cases": {name: csv_row(r) for name, r in zip(samples, results, strict=True)}}


def _judged(base: list[float], head: list[float], judge: ABOptions, order: list[int]) -> ABResult:
    """One case; too few samples are ambiguous, and nobody can say what they would have shown."""
    result = compare(base, head, judge, paired=_interleaved(order))
    n, constant = min(len(base), len(head)), len(set(base)) == len(set(head)) == 1
    if n < 2 or (constant and n < _EXACT_N):
        inf, unsure = math.inf, VerdictKind.AMBIGUOUS
        return replace(result, low=0.0, high=inf, p=1.0, verdict=unsure, smallest_detectable=inf)
    return result


def csv_row(r: ABResult) -> dict[str, Any]:
    """One result as plain values; None for what nothing bounds: an end of the interval, ``smallest_detectable``.

    Samples at or below zero have no ratio: verdict and p are those of their difference.
    """
    of_ratio = r.scale == "log" and math.isfinite(r.ratio)
    return {
        "verdict": r.verdict.value,
        "ratio": r.ratio if of_ratio else None,
        "ratio_ci": finite([r.low, r.high]) if of_ratio else [None, None],
        "p": r.p,
        "smallest_detectable": finite(r.smallest_detectable),
        "n_base": r.n_base,
        "n_head": r.n_head,
        "scale": r.scale,
    }


def adverse(report: dict[str, Any]) -> bool:
    """Whether a report of :func:`compare_csv` holds a slower case."""
    return any(c["verdict"] == VerdictKind.SLOWER.value for c in report["cases"].values())


def _interleaved(order: list[int]) -> bool:
    """Samples were taken side by side: each successive pair of rows holds one of each side."""
    return len(order) % 2 == 0 and all(order[i] != order[i + 1] for i in range(0, len(order), 2))
