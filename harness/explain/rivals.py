"""Which other descriptions the data cannot tell from the one that was chosen."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from . import prior
from .columns import Bools
from .pool import Pool
from .search import Conjunction, mask_of
from .terms import Term, join

#: Nats that an alternative may cost beyond the chosen description.
_DEARER = 12.0
#: Residues of one column by unusual moduli that are listed.
_ODD = 3
#: Atoms true on all rows inside that are paired, the cheapest of them.
_COVERS = 600


def ties(
    pool: Pool, part: Conjunction, settled: Bools, others: Sequence[Conjunction], most: int
) -> list[tuple[Term, ...]]:
    """Conjunctions with the truth of ``part`` on every row that is not ``settled`` (n,) by other triggers; cheapest
    first, at most ``most``. ``others`` are further conjunctions seen in the search."""
    open_rows = ~settled
    truth = mask_of(pool, part.atoms)[open_rows]
    found: dict[str, tuple[float, tuple[Term, ...]]] = {}

    def put(cost: float, terms: tuple[Term, ...]) -> None:
        text = join(terms)
        if cost <= part.cost + _DEARER and (text not in found or cost < found[text][0]):
            found[text] = (cost, terms)

    masks = pool.masks[:, open_rows]
    for i, atom in enumerate(part.atoms):
        kept = part.atoms[:i] + part.atoms[i + 1 :]
        rest = mask_of(pool, kept)[open_rows]
        fixed = [float(pool.cost[a]) for a in kept]
        terms = [pool.term(a) for a in kept]
        # Equal where the other terms hold; elsewhere the conjunction is False anyway.
        same = np.flatnonzero((masks[:, rest] == truth[rest]).all(axis=1))
        for a in sorted(same, key=lambda a: pool.cost[a])[: 2 * most]:
            names = pool.names(int(a)) if a == atom else pool.names(int(a))[:6]
            for cost, term in names:
                put(prior.conjunction([*fixed, cost]), (*terms[:i], term, *terms[i:]))
        if kept and np.array_equal(rest, truth):
            put(prior.conjunction(fixed), tuple(terms))
    for other in others:
        if np.array_equal(mask_of(pool, other.atoms)[open_rows], truth):
            put(other.cost, tuple(pool.term(a) for a in other.atoms))
    fewer: list[tuple[int, ...]] = [(), *((a,) for a in part.atoms)]
    for some in fewer:
        for first, second in _pairs(pool, some, truth, open_rows, most):
            atoms = (*some, first, second)
            put(prior.conjunction([float(pool.cost[i]) for i in atoms]), tuple(pool.term(i) for i in atoms))
    # Two terms renamed at once, where each has few names.
    if len(part.atoms) > 1:
        short = [pool.names(a)[:4] for a in part.atoms]
        for chosen in itertools.product(*short):
            put(prior.conjunction([c for c, _ in chosen]), tuple(t for _, t in chosen))
    ranked = [terms for _, terms in sorted(found.values(), key=lambda f: f[0])]
    return _varied(ranked)[: most + 1]


def _pairs(pool: Pool, kept: tuple[int, ...], truth: Bools, open_rows: Bools, most: int) -> list[tuple[int, int]]:
    """Pairs of atoms that, with ``kept``, have ``truth`` on the open rows; cheapest first. One product may do the work
    of two limits, or the other way round."""
    masks = pool.masks[:, open_rows]
    covers = np.flatnonzero(masks[:, truth].all(axis=1))
    covers = covers[np.argsort(pool.cost[covers], kind="stable")][:_COVERS]
    covers = covers[~np.isin(covers, kept)]
    still = mask_of(pool, kept)[open_rows] & ~truth
    false = masks[np.ix_(covers, np.flatnonzero(still))].astype(np.float32)
    # An atom that needs no partner is a shorter rival, listed elsewhere.
    lonely: Bools = np.asarray(false.any(axis=1))
    both = np.equal(false @ false.T, 0) & lonely[:, None] & lonely[None, :]
    i, j = np.nonzero(np.triu(both, 1))
    cost = pool.cost[covers]
    order = np.argsort(cost[i] + cost[j], kind="stable")[:most]
    return [(int(covers[i[k]]), int(covers[j[k]])) for k in order]


def _varied(ranked: list[tuple[Term, ...]]) -> list[tuple[Term, ...]]:
    """Only the first few residues of one column by moduli that nobody builds tiles of: there would be hundreds."""
    seen: Counter[tuple[str, ...]] = Counter()
    out = []
    for terms in ranked:
        odd = [t.columns for t in terms if t.kind == "residue" and t.number not in prior.KNOWN_MODULI]
        seen.update(odd)
        if all(seen[c] <= _ODD for c in odd):
            out.append(terms)
    return out
