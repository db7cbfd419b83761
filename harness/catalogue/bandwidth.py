"""Where bandwidth saturates: bw(w) = peak w^a / (w^a + b^a), fitted to what was measured.

``w`` is the work in flight (bytes on a CPU, resident warps on a GPU), ``b`` the work that gives half the peak, ``a``
how sharp the bend is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from .estimates import Estimate

#: What the incident report gives: (peak in B/s, a, b in warps); a reference to draw, not a start of the fit.
PUBLISHED = {"H100": (2.0e12, 1.85, 2048.0), "A100": (None, 1.32, 1536.0)}

_PARAMETERS = 3


@dataclass(frozen=True)
class Saturation:
    """Estimates with 95 % intervals; ``residuals`` are log(measured / fitted) in the order given."""

    peak: Estimate
    a: Estimate
    b: Estimate
    residuals: tuple[float, ...]

    def at(self, work: float) -> float:
        """Fitted bandwidth at ``work``."""
        return float(curve(np.array([work]), self.peak.value, self.a.value, self.b.value)[0])


def curve(w: NDArray[np.float64], peak: float, a: float, b: float) -> NDArray[np.float64]:
    """bw(w), written so that no power overflows."""
    return np.asarray(peak / (1.0 + np.exp(np.clip(a * (np.log(b) - np.log(w)), -700.0, 700.0))))


def fit(work: Sequence[float], bandwidth: Sequence[float]) -> Saturation:
    """Least squares on logarithms, since errors are relative. ``ValueError`` where there are no more points than
    parameters, since nothing would be left to tell how well they fit."""
    w, y = np.asarray(work, dtype=float), np.asarray(bandwidth, dtype=float)
    if w.shape != y.shape or not (np.isfinite(w).all() and np.isfinite(y).all()) or (w <= 0).any() or (y <= 0).any():
        raise ValueError("work and bandwidth must be as many numbers above 0")
    if len(np.unique(w)) <= _PARAMETERS:
        raise ValueError(
            f"{len(np.unique(w))} amounts of work; a fit of {_PARAMETERS} parameters needs one more at least"
        )

    def apart(p: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.log(y) - np.log(curve(w, *np.exp(p))))

    # From several bends, since one start may end in a corner; the best is kept.
    starts = [np.log([y.max(), a, b]) for a in (0.5, 1.0, 2.0) for b in np.quantile(w, [0.25, 0.5, 0.75])]
    found = min((optimize.least_squares(apart, s) for s in starts), key=lambda r: r.cost)
    free = len(w) - _PARAMETERS
    spread = 2 * found.cost / free
    try:
        errors = np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac)) * spread)
    except np.linalg.LinAlgError:  # a parameter that the points say nothing of
        errors = np.full(_PARAMETERS, np.inf)
    half = float(stats.t.ppf(0.975, free)) * errors
    with np.errstate(over="ignore"):
        peak, a, b = (
            Estimate(float(np.exp(m)), float(np.exp(m - h)), float(np.exp(m + h)), len(w))
            for m, h in zip(found.x, half, strict=True)
        )
    return Saturation(peak, a, b, tuple(float(r) for r in apart(found.x)))
