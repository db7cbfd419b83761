"""What the data says for a mask of rows: evidence in nats over "nothing sets it off".

Both kinds of data reduce to one number per row that adds up inside a mask, and a function of the sum. So all pairs of
atoms are one matrix product: ``(A * weight) @ A.T``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from .columns import Bools, Floats, Singles

#: Prior of the rates of mislabelled rows, Beta(1, _NOISE): mean one in seven.
_NOISE = 6.0
#: Evidence of a mask that cannot be a trigger.
_NOTHING = -1e9
#: Largest table of evidence by (regressed, not regressed) inside.
_CELLS = 5_000_000


@functools.lru_cache(maxsize=12)
def log_gamma_table(offset: float, n: int) -> Floats:
    """``lgamma(offset + i)`` for i = 0..n."""
    steps = np.log(offset + np.arange(n)) if n else np.zeros(0)
    return math.lgamma(offset) + np.concatenate([[0.0], np.cumsum(steps)])


def label_evidence(hit: Floats, false: Floats, total_hit: int, total_other: int) -> Floats:
    """Marginal likelihood of labels against one rate for all rows, from counts inside: ``hit`` regressed and ``false``
    not, of ``total_hit`` and ``total_other`` in the table.

    A row inside regresses but for one rate of noise, a row outside does not but for another; both are integrated out.
    Regressions must be more frequent inside than outside.
    """
    n = total_hit + total_other
    one, many, both = (log_gamma_table(o, n) for o in (1.0, _NOISE, 1.0 + _NOISE))
    k1, f1 = hit.astype(np.int64), false.astype(np.int64)
    k0, f0 = total_hit - k1, total_other - f1
    out: Floats = one[f1] + many[k1] - both[f1 + k1] + one[k0] + many[f0] - both[k0 + f0]
    # The null is given its best rate, so that a trigger is never favoured by a poor rival.
    null = sum(c * math.log(c / n) for c in (total_hit, total_other) if c)
    out += 2 * (math.lgamma(1 + _NOISE) - math.lgamma(_NOISE)) - null
    out[k1 * total_other <= f1 * total_hit] = _NOTHING
    return out


@dataclass(frozen=True, eq=False)
class Scorer:
    """``weight`` (n,) adds up inside a mask, zero for rows that are settled by other triggers and already in ``base``.

    For labels the sum codes two counts, ``hit * stride + false``, and ``table`` holds the evidence of each code; where
    the table would be too large it is None and ``stride`` tells the counts apart. For ratios ``stride`` is 0 and the
    sum itself is the evidence.
    """

    weight: Floats
    base: float = 0.0
    stride: int = 0
    totals: tuple[int, int] = (0, 0)
    table: Singles | None = None

    @classmethod
    def of_labels(cls, regressed: Bools) -> Scorer:
        """Scorer of labels (n,)."""
        k = int(regressed.sum())
        f = len(regressed) - k
        stride = f + 1
        table = None
        if (k + 1) * stride <= _CELLS:
            hit, false = np.divmod(np.arange((k + 1) * stride), stride)
            table = label_evidence(hit, false, k, f).astype(np.float32)
        return cls(np.where(regressed, float(stride), 1.0), 0.0, stride, (k, f), table)

    @classmethod
    def of_weights(cls, weight: Floats) -> Scorer:
        """Scorer of log likelihood ratios (n,): regressed against not."""
        return cls(weight)

    def speaks(self) -> Bools:
        """Rows (n,) that by themselves speak for a regression."""
        return self.weight > 1 if self.stride else self.weight > 0

    def outside(self, inside: Bools) -> Scorer:
        """Scorer of the rows not ``inside`` (n,); the others count as inside."""
        settled = float(self.weight[inside].sum())
        return replace(self, weight=np.where(inside, 0.0, self.weight), base=self.base + settled)

    def evidence(self, sums: Floats | Singles) -> Floats:
        """Evidence from sums of weights inside, of any shape."""
        if not self.stride:
            out: Floats = np.asarray(sums, dtype=np.float64) + self.base
            return out
        if self.table is not None:
            codes = np.asarray(sums, dtype=np.int32)
            codes += int(self.base)
            return self.table[codes]  # type: ignore[return-value]
        hit, false = np.divmod(np.rint(np.asarray(sums, dtype=np.float64) + self.base), self.stride)
        return label_evidence(hit, false, *self.totals)

    def gain(self, matrix: Singles, inside: Bools | None = None) -> Floats:
        """Evidence of each atom of ``matrix`` (a, n), or of its conjunction with ``inside`` (n,) -> (a,)."""
        weight = self.weight if inside is None else np.where(inside, self.weight, 0.0)
        if self.stride and self.table is None:
            # Codes beyond 2**24 are not exact in float32: count apart.
            hit = matrix @ (weight > 1).astype(np.float32)
            false = matrix @ (weight == 1).astype(np.float32)
            return self.evidence(hit.astype(np.float64) * self.stride + false)
        return self.evidence(matrix @ weight.astype(np.float32))

    def of_mask(self, mask: Bools) -> float:
        """Evidence of one mask (n,)."""
        return float(self.evidence(np.array([self.weight[mask].sum()]))[0])

    def ceiling(self) -> float:
        """Evidence if every row that speaks for it were covered without error."""
        return self.of_mask(self.speaks())

    def current(self) -> float:
        """Evidence of what is settled already."""
        return self.of_mask(np.zeros(len(self.weight), dtype=np.bool_))
