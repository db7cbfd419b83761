"""``attnwatch compare``: two revisions, two interpreters, two environments, or samples in a file."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .builds import build, build_worktree
from .detection.ab import ABOptions, ABResult, compare, family
from .jsonout import finite
from .model import Case, InputError, MeasureOptions, VerdictKind
from .table import read_table
from .worker import WorkerSpec

_SIDES = ("base", "head")
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

    ``modules`` bring backends of others, as in :class:`harness.worker.WorkerSpec`; both sides get them.
    InputError where the two sides would be the same thing.
    """
    made = []
    for ref, python, pairs, name in zip(refs, pythons, variables, _SIDES, strict=True):
        kernels, words = None, []
        if refs[0] is not None:
            place = build(repo, ref) if ref is not None else build_worktree(repo)
            kernels, words = str(place.root), [ref or "working tree"]
        if python is not None:
            words.append(python)
        env = tuple(sorted(_pair(p, f"--{name}-env") for p in pairs))
        words += [f"{k}={v}" for k, v in env]
        spec = WorkerSpec(device, kernels=kernels, variables=env, modules=modules)
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
) -> dict[str, Any]:
    """Interleaved A/B over ``cases``; a report with one row per case."""
    from .ab import row, run_ab, slower

    deadline = None if budget_s is None else time.time() + budget_s
    done, left = run_ab(cases, base.spec, head.spec, options, judge, deadline=deadline, progress=progress)
    return {
        "base": base.text,
        "head": head.text,
        "cases": [row(d) for d in done],
        "left_out": [c.columns for c in left],
        "adverse": len(slower(done)),
    }


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
    """One result as plain values; None for what nothing bounds: an end of the interval, ``smallest_detectable``."""
    return {
        "verdict": r.verdict.value,
        "ratio": r.ratio,
        "ratio_ci": finite([r.low, r.high]),
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
