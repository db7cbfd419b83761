"""Explaining labelled rows: regressed or not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .build import build_pool
from .columns import Bools, Column, Floats, Ints
from .evaluate import term_mask
from .pool import Pool
from .result import Explanation, Options, Trigger
from .rivals import ties
from .scoring import Scorer
from .search import Conjunction, conjunctions, mask_of, score_of
from .terms import Term, join
from .union import Union, find, refit


def explain_labels(columns: Sequence[Column], regressed: Bools, options: Options) -> Explanation:
    """Triggers of ``regressed`` (n,) over coded columns."""
    n = len(regressed)
    posterior = regressed.astype(np.float64)
    if not regressed.any():
        return Explanation(regressed=regressed, posterior=posterior)
    if regressed.all():
        every = tuple(range(n))
        trigger = Trigger((), "True", n, n, n, n, every)
        return Explanation((trigger,), (), regressed, posterior)
    sample = _stratified(regressed, options)
    small = [c.take(sample) for c in columns]
    pool = build_pool(small, len(sample), posterior[sample])
    candidates = conjunctions(pool, Scorer.of_labels(regressed[sample])) if len(pool) else []
    union = find(pool, Scorer.of_labels(regressed[sample]), candidates) if candidates else None
    if union is not None and len(sample) < n:
        pool, union, candidates = in_full(columns, pool, union, candidates, Scorer.of_labels(regressed), posterior)
    return assemble(pool, union, candidates, regressed, posterior, options)


def in_full(
    columns: Sequence[Column], sampled: Pool, union: Union, candidates: list[Conjunction], scorer: Scorer,
    outcome: Floats,
) -> tuple[Pool, Union, list[Conjunction]]:  # fmt: skip
    """Judge on all rows what was found in a sample: a pool over the columns that matter, and the union fitted anew."""
    n = len(outcome)
    near = [*union.parts, *candidates[:10]]
    terms = {a: sampled.term(a) for part in near for a in part.atoms}
    used = {c for t in terms.values() for c in t.columns}
    pool = build_pool([c for c in columns if c.name in used], n, outcome, several=False)
    by_name = {c.name: c for c in columns}
    masks = {a: term_mask(t, by_name, n) for a, t in terms.items()}
    place = pool.extend({a: (masks[a], float(sampled.cost[a]), terms[a]) for a in terms})
    moved = [_moved(pool, scorer, part, place) for part in union.parts]
    full = [_moved(pool, scorer, part, place) for part in candidates[:10]]
    return pool, refit(pool, scorer, tuple(moved)), full


def assemble(
    pool: Pool, union: Union | None, candidates: list[Conjunction], regressed: Bools, posterior: Floats,
    options: Options,
) -> Explanation:  # fmt: skip
    """Count, list and order what was found."""
    n = len(regressed)
    if union is None:
        return Explanation((), tuple(map(int, np.flatnonzero(regressed))), regressed, posterior)
    masks = [mask_of(pool, p.atoms) for p in union.parts]
    triggers: list[tuple[int, Trigger]] = []
    for i, part in enumerate(union.parts):
        others = np.zeros(n, dtype=np.bool_)
        for j, mask in enumerate(masks):
            if j != i:
                others |= mask
        named = ties(pool, part, others, candidates, options.alternatives)
        terms = _readable(tuple(pool.term(a) for a in part.atoms))
        text = join(terms)
        rivals = [t for t in map(_readable, named) if join(t) != text][: options.alternatives]
        inside = masks[i]
        hit = np.flatnonzero(inside & regressed)
        triggers.append(
            (
                int((inside & regressed & ~others).sum()),
                Trigger(
                    terms, text, len(hit), int(inside.sum()), int(regressed.sum()), n,
                    tuple(map(int, hit)), tuple(map(int, np.flatnonzero(inside & ~regressed))),
                    alternatives=tuple(dict.fromkeys(join(t) for t in rivals)), rivals=tuple(rivals), score=union.score,
                ),
            )
        )  # fmt: skip
    triggers.sort(key=lambda t: -t[0])
    left = np.flatnonzero(regressed & ~union.mask(pool))
    return Explanation(tuple(t for _, t in triggers), tuple(map(int, left)), regressed, posterior)


def _readable(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """Terms in the order a person would say them: text, switches, values, then computed features."""
    kinds = {"column": 1, "residue": 2, "power": 2, "compare": 3, "ratio": 4, "rest": 4, "ceil": 4, "product": 5}

    def key(term: Term) -> tuple[int, int, str]:
        first = isinstance(term.value, str) or (term.op == "in" and isinstance(term.value[0], str))
        return (0 if first else kinds[term.kind], 0 if term.op == "==" else 1, term.test())

    return tuple(sorted(terms, key=key))


def _moved(pool: Pool, scorer: Scorer, part: Conjunction, place: dict[int, int]) -> Conjunction:
    return score_of(pool, scorer, tuple(sorted({place[a] for a in part.atoms})))


def _stratified(regressed: Bools, options: Options) -> Ints:
    """Indices (ascending) of the rows that are searched: half regressed where there are as many."""
    n = len(regressed)
    if n <= options.max_rows:
        return np.arange(n)
    rng = np.random.default_rng(options.seed)
    hit, other = np.flatnonzero(regressed), np.flatnonzero(~regressed)
    take = min(len(hit), max(options.max_rows // 2, options.max_rows - len(other)))
    chosen = [rng.permutation(hit)[:take], rng.permutation(other)[: options.max_rows - take]]
    return np.sort(np.concatenate(chosen))
