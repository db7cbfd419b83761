"""From a table of combinations to triggers: the one entry for callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .columns import Bools, Floats, encode_rows
from .labels import explain_labels
from .ratios import explain_ratios
from .result import Explanation, Options


def explain(
    rows: Sequence[Mapping[str, Any]],
    regressed: Sequence[bool] | Bools | None = None,
    ratio: Sequence[float] | Floats | None = None,
    ratio_se: Sequence[float] | Floats | None = None,
    options: Options | None = None,
) -> Explanation:
    """Triggers of the regressed rows.

    ``rows`` are n combinations of parameters. Either ``regressed`` (n,) labels them, or ``ratio`` (n,) is head over
    base, with optional standard errors ``ratio_se`` (n,) of the ratio; NaN where unknown. ValueError where lengths
    differ or neither is given.
    """
    options = options or Options()
    n = len(rows)
    for name, given in (("regressed", regressed), ("ratio", ratio), ("ratio_se", ratio_se)):
        if given is not None and len(given) != n:
            raise ValueError(f"{name} has {len(given)} entries for {n} rows")
    columns = encode_rows(rows)
    if regressed is not None:
        return explain_labels(columns, np.asarray(regressed, dtype=np.bool_), options)
    if ratio is None:
        raise ValueError("either regressed or ratio is needed")
    errors = None if ratio_se is None else np.asarray(ratio_se, dtype=np.float64)
    return explain_ratios(columns, np.asarray(ratio, dtype=np.float64), errors, options)
