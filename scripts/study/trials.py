"""Single trials of trigger explanation: one table, one answer, right or wrong."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.explain import explain
from harness.explain.active import confirm
from harness.model.expr import compile_expr

from .grids import GRIDS, Table, draw, same_on_grid, union_text
from .offgrid import off_grid_rows

Floats = np.ndarray[Any, np.dtype[np.float64]]

#: Tables in which fewer rows than this regress are drawn anew; a predicate that stays below is left out.
_FEWEST = 8
_SIGMA = 0.02


@dataclass(frozen=True)
class Outcome:
    """``right`` is None where the predicate hits too few rows of such a table to count."""

    right: bool | None
    seconds: float
    said: str
    extra: float = 0.0


def recover(grid: str, predicate: str, kind: str, seed: int) -> Outcome:
    """One recovery: ``kind`` is ``clean``, ``flip5``, ``flip20``, ``few`` (200 rows, 5 % flipped), or
    ``gauss10``, ``t10``, ``gauss4``, ``t4`` for ratios, or ``offgrid``."""
    rng = np.random.default_rng(seed)
    table = _with_enough(grid, predicate, 200 if kind == "few" else 900, rng)
    if table is None:
        return Outcome(None, 0.0, "")
    n = len(table.rows)
    began = time.perf_counter()
    if kind.startswith(("gauss", "t")):
        effect = {"10": 1.10, "4": 1.04}[kind.lstrip("gaust")]
        log_ratio = noise(kind[0], n, rng) + np.log(effect) * table.truth
        told = explain(table.rows, ratio=np.exp(log_ratio))
    else:
        flipped = rng.random(n) < {"flip5": 0.05, "flip20": 0.20, "few": 0.05}.get(kind, 0.0)
        told = explain(table.rows, table.truth ^ flipped)
    seconds = time.perf_counter() - began
    said = union_text([t.text for t in told.triggers])
    if kind != "offgrid":
        return Outcome(same_on_grid(GRIDS[grid], predicate, said), seconds, said)
    truth = compile_expr(predicate)
    remain, answers = confirm(told, table.rows, lambda rows: [truth(r) for r in rows], budget=12)
    said = union_text([c[0].text for c in remain])
    found = compile_expr(said)
    right = all(truth(r) == found(r) for r in off_grid_rows(GRIDS[grid], rng))
    return Outcome(right, time.perf_counter() - began, said, float(len(answers)))


def silent(grid: str, kind: str, seed: int) -> Outcome:
    """One table without any cause: ``labels5``, ``labels30``, ``labels50``, or ratios ``gauss``, ``t3``,
    ``understated`` (standard errors 1.5 times too small, t3), ``shift`` (+3 % on all), ``uneven`` (noise differs by
    row and is known), ``spikes`` (8 % of the rows are slower by an exponential of mean 50 %, for no reason)."""
    rng = np.random.default_rng(seed)
    table = draw(GRIDS[grid], "True", 900, rng)
    n = 900
    began = time.perf_counter()
    if kind.startswith("labels"):
        told = explain(table.rows, rng.random(n) < int(kind[6:]) / 100)
    else:
        scale = np.exp(rng.normal(0, 0.5, n)) if kind == "uneven" else np.ones(n)
        log_ratio = noise("t" if kind in ("t3", "understated", "uneven") else "g", n, rng) * scale
        log_ratio += 0.03 if kind == "shift" else 0.0
        if kind == "spikes":
            log_ratio += np.where(rng.random(n) < 0.08, rng.exponential(0.5, n), 0.0)
        error = None if kind in ("gauss", "t3", "spikes") else _SIGMA * scale / (1.5 if kind == "understated" else 1.0)
        told = explain(table.rows, ratio=np.exp(log_ratio), ratio_se=error)
    said = union_text([t.text for t in told.triggers])
    best = max((t.score for t in told.triggers), default=0.0)
    return Outcome(not told.triggers, time.perf_counter() - began, said, best)


def noise(kind: str, n: int, rng: np.random.Generator) -> Floats:
    """Noise of log ratios: ``g`` normal with a standard deviation of 2 %, ``t`` Student-t of three degrees of freedom
    with a scale of 2 % (standard deviation 3.5 %)."""
    drawn: Floats = rng.standard_normal(n) if kind == "g" else rng.standard_t(3, n)
    return _SIGMA * drawn


def _with_enough(grid: str, predicate: str, n: int, rng: np.random.Generator) -> Table | None:
    for _ in range(5):
        table = draw(GRIDS[grid], predicate, n, rng)
        if _FEWEST <= table.truth.sum() <= n - _FEWEST:
            return table
    return None
