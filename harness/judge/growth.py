"""A number that grows faster than it did: a silent fall to another path, told as what it is and not case by case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from harness.catalogue.growth import fit, lines, rose
from harness.model import Scalar


def growths(
    rows: Sequence[Mapping[str, Scalar]], before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]
) -> dict[int, str]:
    """Row -> how its number grows now and grew before, for the rows that lie on a line whose exponent rose.

    ``rows`` are the columns of cases; ``before`` and ``after`` [row] their levels, NaN where unknown.
    """
    found: dict[int, tuple[float, str]] = {}
    for line in lines(rows):
        old, new = (fit(line, [float(v) if np.isfinite(v) else None for v in values]) for values in (before, after))
        if old is None or new is None or not rose(old, new):
            continue
        rise = new.value - old.value
        text = f"{line.axis}^{old.value:.2f} -> {line.axis}^{new.value:.2f} [{new.low:.2f}, {new.high:.2f}]"
        for row in line.rows:
            if row not in found or found[row][0] < rise:
                found[row] = rise, text
    return {row: text for row, (_, text) in found.items()}
