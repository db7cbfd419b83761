"""What others measured within the limits of our records: names that mean something else here, numbers that cannot be.

A parameter of a shared name whose values are not what the name means here (``dtype`` of ``int8``) gets an underscore
behind it, in all rows that stand together, so that it is never read as ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from harness.model import Case, Scalar, Workload
from harness.model.bounds import POSITIVE
from harness.model.checks import wrong_param
from harness.model.metrics import METRICS
from harness.model.params import NAME_CHARS

NO_TIME = "a time of 0 or less"
NEGATIVE = "a value below 0 of a metric that has none"


def fit_columns(names: Sequence[str], columns: Sequence[Sequence[Scalar]]) -> list[str]:
    """The names, each with an underscore where the shared meaning of the name does not fit all values of its column."""
    out: list[str] = []
    for name, values in zip(names, columns, strict=True):
        if any(wrong_param({name: v}) is not None for v in values):
            name += "_"
            while name in out or name in names:
                name += "_"
        out.append(name)
    return out


def case_of(
    benchmark: str, operation: str, params: Mapping[str, Scalar], backend: str, version: str = "1"
) -> Case:  # fmt: skip
    """A case whose names are short enough and whose parameters are none of ours by mistake."""
    fitted = dict(params)
    while (wrong := wrong_param(fitted)) is not None:
        # In the place where it was, so that columns keep their order.
        fitted = {k if k != wrong[0] else _free(k, fitted): v for k, v in fitted.items()}
    return Case(clip(benchmark), Workload(clip(operation), fitted), clip(backend), clip(version))


def impossible(metric: str, value: float) -> str | None:
    """Why a finite number cannot be a value of a metric of ours; None where it can."""
    if metric in METRICS and value <= 0:
        if metric in POSITIVE:
            return NO_TIME
        if value < 0:
            return NEGATIVE
    return None


def clip(text: str) -> str:
    """A name within the limit; the end of a longer one becomes its hash."""
    if len(text) <= NAME_CHARS:
        return text
    return f"{text[: NAME_CHARS - 20]}...{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _free(name: str, taken: Mapping[str, Scalar]) -> str:
    name = f"{name[: NAME_CHARS // 2]}_"
    while name in taken:
        name += "_"
    return name
