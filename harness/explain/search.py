"""Search for the conjunction with the most evidence after its description is paid for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import prior
from .columns import Bools, Floats, Singles
from .pool import Pool
from .scoring import Scorer

Indices = npt.NDArray[np.int64]
Found = list[tuple[tuple[int, ...], float]]

#: Conjunctions of two that are extended to three.
_BEAM = 400
#: Conjunctions that are polished by dropping, adding and replacing terms.
_POLISH = 5
_BLOCK = 256
#: Nats below which a conjunction is not worth extending.
_HOPELESS = -25.0
#: Atoms about several columns that are paired with one another, the best of them.
_SEVERAL = 256
#: Atoms about one column that are paired with all others; the best of them where there are more.
_SIMPLE = 1500


@dataclass(frozen=True)
class Conjunction:
    """Atoms (indices into a pool), in order; ``cost`` is their description, ``score`` evidence minus cost."""

    atoms: tuple[int, ...]
    cost: float
    score: float


def mask_of(pool: Pool, atoms: Iterable[int]) -> Bools:
    """Rows (n,) for which all ``atoms`` hold."""
    out = np.ones(pool.n, dtype=np.bool_)
    for a in atoms:
        out &= pool.masks[a]
    return out


def conjunctions(pool: Pool, scorer: Scorer, keep: int = 40) -> list[Conjunction]:
    """The best conjunctions of up to three atoms, best first, no two with the same mask where the scorer looks."""
    if not len(pool):
        return []
    single = scorer.gain(pool.matrix) - pool.cost - prior.conjunction([0.0])
    seen = pool.masks[:, scorer.weight != 0]
    order = np.argsort(-single, kind="stable")
    ones: Found = [((int(i),), float(single[i])) for i in order[:keep]]
    left = [_top(single, 0, pool.simple, _SIMPLE), _top(single, pool.simple, len(pool), _SEVERAL)]
    twos = _distinct(seen, _pairs(pool, scorer, np.concatenate(left)), _BEAM)
    threes = _threes(pool, scorer, [t for t, _ in twos])
    found: dict[bytes, Conjunction] = {}
    for atoms, score in _distinct(seen, ones + twos + threes, keep):
        cost = prior.conjunction(pool.cost[list(atoms)])
        found[_key(seen, atoms)] = Conjunction(atoms, cost, score)
    for conjunction in list(found.values())[:_POLISH]:
        better = polish(pool, scorer, conjunction)
        key = _key(seen, better.atoms)
        if key not in found or better.score > found[key].score:
            found[key] = better
    return sorted(found.values(), key=lambda c: (-c.score, c.cost, c.atoms))[:keep]


def polish(pool: Pool, scorer: Scorer, start: Conjunction, rounds: int = 6) -> Conjunction:
    """Drop, add or replace single terms while that improves the score."""
    best = start
    for _ in range(rounds):
        before = best
        options = [before.atoms[:i] + before.atoms[i + 1 :] for i in range(len(before.atoms))]
        options = [o for o in options if o]
        if len(before.atoms) < 3:
            options.append(before.atoms)
        if len(before.atoms) == 1:
            options.append(())
        for kept in options:
            tried = [_best_with(pool, scorer, kept)]
            if kept and len(kept) < len(before.atoms):
                tried.append(score_of(pool, scorer, kept))
            best = max(best, *tried, key=lambda c: (round(c.score, 6), -c.cost))
        if best.atoms == before.atoms:
            break
    return best


def score_of(pool: Pool, scorer: Scorer, atoms: tuple[int, ...]) -> Conjunction:
    """A conjunction with its score."""
    cost = prior.conjunction(pool.cost[list(atoms)])
    return Conjunction(atoms, cost, scorer.of_mask(mask_of(pool, atoms)) - cost)


def _best_with(pool: Pool, scorer: Scorer, kept: tuple[int, ...]) -> Conjunction:
    """``kept`` and the one atom that goes best with them."""
    gains = scorer.gain(pool.matrix, mask_of(pool, kept) if kept else None)
    fixed = [float(pool.cost[a]) for a in kept]
    scores = gains - pool.cost - prior.conjunction([*fixed, 0.0])
    scores[list(kept)] = -np.inf
    at = int(np.argmax(scores))
    atoms = tuple(sorted((*kept, at)))
    return Conjunction(atoms, prior.conjunction(pool.cost[list(atoms)]), float(scores[at]))


def _top(scores: Floats, start: int, end: int, most: int) -> Indices:
    """Indices in start..end of the best ``most`` scores, ascending."""
    return np.sort(np.argsort(-scores[start:end], kind="stable")[:most]) + start


def _pairs(pool: Pool, scorer: Scorer, left: Indices) -> Found:
    """The best conjunctions of two with one of them in ``left``, a few times as many as are extended."""
    matrix, cost = pool.matrix, pool.cost.astype(np.float32)
    extra = prior.conjunction([0.0, 0.0])
    weighted = scorer.weight.astype(np.float32)
    places = np.arange(len(cost))
    in_left = np.zeros(len(cost), dtype=np.bool_)
    in_left[left] = True
    found = _Best(8 * _BEAM)
    for start in range(0, len(left), _BLOCK):
        block = left[start : start + _BLOCK]
        scores = scorer.evidence((matrix[block] * weighted) @ matrix.T).astype(np.float32, copy=False)
        scores -= (cost[block] + np.float32(extra))[:, None]
        scores -= cost[None, :]
        # Each pair once: where both are in ``left``, from the smaller one.
        scores[in_left[None, :] & (places[None, :] <= block[:, None])] = -np.inf
        found.add(scores, lambda i, j, block=block: tuple(sorted((int(block[i]), j))))
    return found.items


def _threes(pool: Pool, scorer: Scorer, twos: list[tuple[int, ...]]) -> Found:
    """Conjunctions of three from those of two."""
    matrix, cost = pool.matrix, pool.cost.astype(np.float32)
    extra = prior.conjunction([0.0, 0.0, 0.0])
    weighted = scorer.weight.astype(np.float32)
    found = _Best(_BEAM)
    for start in range(0, len(twos), _BLOCK):
        part = np.array(twos[start : start + _BLOCK])
        both = (pool.masks[part[:, 0]] & pool.masks[part[:, 1]]) * weighted
        scores = scorer.evidence(both @ matrix.T).astype(np.float32, copy=False)
        scores -= (cost[part].sum(axis=1) + np.float32(extra))[:, None]
        scores -= cost[None, :]
        for column in (0, 1):
            scores[np.arange(len(part)), part[:, column]] = -np.inf
        found.add(scores, lambda i, j, part=part: tuple(sorted((*map(int, part[i]), j))))
    return found.items


class _Best:
    """The best so many cells of score matrices that come one after the other."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.items: Found = []
        self.floor = _HOPELESS

    def add(self, scores: Singles | Floats, name: object) -> None:
        flat = scores.ravel()
        top = np.flatnonzero(flat > self.floor)
        if len(top) > self.most:
            top = top[np.argpartition(flat[top], -self.most)[-self.most :]]
        width = scores.shape[1]
        self.items += [(name(int(t) // width, int(t) % width), float(flat[t])) for t in top]  # type: ignore[operator]
        if len(self.items) > self.most:
            self.items.sort(key=lambda f: -f[1])
            del self.items[self.most :]
            self.floor = self.items[-1][1]


def _distinct(masks: Bools, found: Found, count: int) -> Found:
    """The best ``count``, no two with equal masks."""
    seen: set[bytes] = set()
    out: Found = []
    for atoms, score in sorted(found, key=lambda f: (-f[1], f[0])):
        key = _key(masks, atoms)
        if key not in seen:
            seen.add(key)
            out.append((atoms, score))
            if len(out) == count:
                break
    return out


def _key(masks: Bools, atoms: tuple[int, ...]) -> bytes:
    inside = masks[atoms[0]]
    for a in atoms[1:]:
        inside = inside & masks[a]
    return np.packbits(inside).tobytes()
