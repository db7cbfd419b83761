"""Atoms as masks over rows; equal masks are one atom with several names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from .columns import Bools, Floats, Ints, Singles
from .terms import Term

#: A term not yet built, with its cost in nats.
Named = tuple[float, Callable[[], Term]]

#: Names kept for one atom.
_NAMES = 40


@dataclass
class Pool:
    """Atoms over n rows. ``masks`` is (atoms, n), ``matrix`` the same as numbers; ``cost[i]`` and ``term(i)`` are
    those of the cheapest name. The first ``simple`` atoms are about one column, the rest about several."""

    n: int
    _index: dict[bytes, int] = field(default_factory=dict)
    _rows: list[Bools] = field(default_factory=list)
    _names: list[list[Named]] = field(default_factory=list)
    simple: int = 0
    masks: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    cost: Floats = field(default_factory=lambda: np.zeros(0))
    matrix: Singles = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))

    def add(self, masks: Bools, names: Iterable[list[Named]]) -> None:
        """Add ``masks`` (a, n) with their names; masks that are all True or all False say nothing."""
        counts = masks.sum(axis=1)
        keys = np.packbits(masks, axis=1)
        for i, named in enumerate(names):
            if not 0 < counts[i] < self.n:
                continue
            key = keys[i].tobytes()
            at = self._index.get(key)
            if at is None:
                self._index[key] = len(self._rows)
                self._rows.append(masks[i])
                self._names.append(list(named))
            else:
                self._names[at] += named

    def end_of_simple(self) -> None:
        """Atoms added from here on are about several columns."""
        self.simple = len(self._rows)

    def close(self) -> Pool:
        """Sort names by cost and stack the masks."""
        for names in self._names:
            names.sort(key=lambda named: named[0])
            del names[_NAMES:]
        self.masks = np.array(self._rows, dtype=np.bool_) if self._rows else np.zeros((0, self.n), dtype=np.bool_)
        self.cost = np.array([names[0][0] for names in self._names])
        self.matrix = self.masks.astype(np.float32)
        return self

    def extend(self, extra: dict[int, tuple[Bools, float, Term]]) -> dict[int, int]:
        """Add single terms to a closed pool; where each key came to lie."""
        place: dict[int, int] = {}
        for key, (mask, cost, term) in extra.items():
            packed = np.packbits(mask).tobytes()
            if packed not in self._index:
                self._index[packed] = len(self._rows)
                self._rows.append(mask)
                self._names.append([])
            at = place[key] = self._index[packed]
            if all(t != term for t in (make() for _, make in self._names[at])):
                self._names[at].append((cost, partial(_same, term)))
        self.close()
        return place

    def __len__(self) -> int:
        return len(self._names)

    def term(self, i: int) -> Term:
        """The cheapest term of atom i."""
        return self._names[i][0][1]()

    def named(self, mask: Bools) -> list[tuple[float, Term]]:
        """All names of the atom with this mask (n,); empty where there is none."""
        at = self._index.get(np.packbits(mask).tobytes())
        return [] if at is None else self.names(at)

    def names(self, i: int) -> list[tuple[float, Term]]:
        """All names of atom i, cheapest first."""
        return [(cost, make()) for cost, make in self._names[i]]


class Classes:
    """Descriptions gathered by their mask over the distinct values of a feature."""

    def __init__(self) -> None:
        self.masks: dict[bytes, Bools] = {}
        self.named: dict[bytes, list[Named]] = {}

    def put(self, mask: Bools, cost: float, make: Callable[[], Term]) -> None:
        """Add one description."""
        key = mask.tobytes()
        if key not in self.named:
            self.masks[key] = mask
            self.named[key] = []
        self.named[key].append((cost, make))

    def into(self, pool: Pool, codes: Ints, outcome: Floats | None = None, most: int = 0) -> None:
        """Broadcast to rows; ``codes`` (n,) index the distinct values. With ``outcome`` (n,) only the ``most`` masks
        that go with it best are kept."""
        useful = [k for k, mask in self.masks.items() if mask.any() and not mask.all()]
        if not useful:
            return
        table = np.array([self.masks[k] for k in useful])
        if outcome is not None and len(useful) > most:
            width = table.shape[1]
            counts = np.bincount(codes, minlength=width).astype(np.float64)
            excess = np.bincount(codes, weights=outcome - outcome.mean(), minlength=width)
            sizes = table @ counts
            worth = np.abs(table @ excess) / np.sqrt(np.maximum(1, np.minimum(sizes, len(codes) - sizes)))
            best = np.sort(np.argsort(-worth, kind="stable")[:most])
            table, useful = table[best], [useful[i] for i in best]
        pool.add(table[:, codes], (self.named[k] for k in useful))


def _same(term: Term) -> Term:
    return term
