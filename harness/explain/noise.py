"""Noise of log ratios: Student-t with a tail that the data chooses, and a scale per row where errors are known.

A Gaussian score takes one heavy tail, or a standard error that is too small, for a regression. Here the tail weight
and the scale are fitted, so that only a shift of many rows counts as evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .columns import Bools, Floats

#: Degrees of freedom that are tried; the last is Gaussian to the eye.
TAILS = (2.2, 3.0, 4.0, 6.0, 12.0, 60.0)
#: Rows without a regression that suffice to tell the noise.
_ENOUGH = 50


#: Share of regressed rows whose shift may be anything up to the largest in the table: one cause seldom costs all
#: combinations the same.
_UNEVEN = 0.1
#: Least and largest share of rows that are spikes for no reason.
_STRAY = (0.002, 0.3)


@dataclass(frozen=True, eq=False)
class RatioModel:
    """Two groups on the log scale: ``centre`` without and about ``centre + shift`` with a regression, at most
    ``centre + top``. Noise of row i is ``scale[i]`` (n,) times a Student-t with ``tail`` degrees of freedom. A share
    ``stray`` of the rows without a regression may be anywhere above the noise. ``fit`` is the log likelihood."""

    centre: float
    shift: float
    scale: Floats
    tail: float
    fit: float
    top: float
    stray: float = 0.0

    def weight(self, logs: Floats) -> Floats:
        """Log likelihood ratio (n,) of each row: regressed against not."""
        return self.slowed(logs) - self.ordinary(logs)

    def ordinary(self, logs: Floats) -> Floats:
        """Log density (n,) of rows that did not regress: about ``centre``, a few of them spikes."""
        above = logs - self.centre
        return _mixed(self._log_density(above), self._flat(above), self.stray)

    def slowed(self, logs: Floats) -> Floats:
        """Log density (n,) of rows that regressed: most by ``shift``, some by anything up to ``top``."""
        above = logs - self.centre
        # A shift below the noise has no room to be uneven: there, spikes inside are as many as they are elsewhere.
        sure = min(max(abs(self.shift) / float(np.median(self.scale)) - 0.5, 0.0), 1.0)
        share = self.stray + sure * (_UNEVEN - self.stray)
        return _mixed(self._log_density(above - self.shift), self._flat(above), share)

    def learnt(self, logs: Floats, inside: Bools | None) -> RatioModel:
        """The same with ``stray`` as the rows (n,) outside have it, few at least where they are few."""
        ordinary = logs if inside is None else logs[~inside]
        if not len(ordinary):
            return self
        scale = self.scale if inside is None else self.scale[~inside]
        part = replace(self, scale=scale)
        above = ordinary - self.centre
        usual, flat, share = part._log_density(above), part._flat(above), _STRAY[0]
        for _ in range(8):
            odd = 1 / (1 + np.exp(np.clip(usual - flat + math.log((1 - share) / share), -50, 50)))
            share = float((odd.sum() + 0.5) / (len(ordinary) + 50))
            share = min(max(share, _STRAY[0]), _STRAY[1])
        return replace(self, stray=share)

    def _flat(self, above: Floats) -> Floats:
        """Log density (n,) of anything from the noise's edge up to ``top``."""
        width = np.maximum(self.top - self.scale, 4 * self.scale)
        out: Floats = np.where((above > self.scale) & (above <= self.scale + width), -np.log(width), -np.inf)
        return out

    def _log_density(self, residual: Floats) -> Floats:
        out: Floats = log_density(residual / self.scale, self.tail) - np.log(self.scale)
        return out


def _mixed(usual: Floats, flat: Floats, share: float) -> Floats:
    """Log density of a mixture, ``share`` of it flat."""
    if share <= 0:
        return usual
    out: Floats = np.logaddexp(math.log(1 - share) + usual, math.log(share) + flat)
    return out


def log_density(z: Floats, tail: float) -> Floats:
    """Log density of a standard Student-t."""
    const = math.lgamma((tail + 1) / 2) - math.lgamma(tail / 2) - 0.5 * math.log(tail * math.pi)
    out: Floats = const - (tail + 1) / 2 * np.log1p(z * z / tail)
    return out


def scales(logs: Floats, errors: Floats | None) -> list[Floats]:
    """Relative scales per row (n,), to be multiplied by one number: all alike, and where standard errors are known
    in proportion to them, or to them and as much again that they do not know of."""
    flat = np.ones(len(logs))
    if errors is None:
        return [flat]
    known = np.isfinite(errors) & (errors > 0)
    if known.sum() < max(3, len(logs) // 2):
        return [flat]
    middle = float(np.median(errors[known]))
    relative = np.where(known, errors, middle) / middle
    spread = float(np.ptp(np.log(relative)))
    if spread < 0.05:
        return [flat]
    relative = np.clip(relative, 0.1, 10.0)
    return [flat, relative, np.sqrt((relative**2 + 1) / 2)]


def fit_groups(logs: Floats, inside: Bools | None, shapes: Sequence[Floats]) -> RatioModel:
    """The most likely model where ``inside`` (n,) is known; None or empty: one group, no shift."""
    two = inside is not None and bool(inside.any()) and not bool(inside.all())
    best: RatioModel | None = None
    for shape in shapes:
        for tail in TAILS:
            model = _fit(logs, inside if two else None, shape, tail)
            if best is None or model.fit > best.fit:
                best = model
    assert best is not None
    return best


def _fit(logs: Floats, inside: Bools | None, shape: Floats, tail: float, rounds: int = 12) -> RatioModel:
    """Weighted least squares, repeated: each row counts by how ordinary its residual is."""
    groups = [np.ones(len(logs), dtype=np.bool_)] if inside is None else [~inside, inside]
    centres = [float(np.median(logs[g])) for g in groups]
    residual = np.empty(len(logs))
    for g, c in zip(groups, centres, strict=True):
        residual[g] = logs[g] - c
    # Shifts may differ from row to row; where enough rows have none, those alone tell the noise.
    quiet = groups[0] if groups[0].sum() >= _ENOUGH else np.ones(len(logs), dtype=np.bool_)
    spread = max(_spread((residual / shape)[quiet]), 1e-9)
    for _ in range(rounds):
        z2 = (residual / (spread * shape)) ** 2
        weight = (tail + 1) / (tail + z2)
        for i, g in enumerate(groups):
            w = weight[g] / shape[g] ** 2
            centres[i] = float((w * logs[g]).sum() / w.sum())
            residual[g] = logs[g] - centres[i]
        before = spread
        spread = max(math.sqrt(float((weight * (residual / shape) ** 2)[quiet].mean())), 1e-9)
        if abs(spread - before) < 1e-4 * spread:
            break
    scale = spread * shape
    model = RatioModel(centres[0], centres[-1] - centres[0], scale, tail, 0.0, float(logs.max()) - centres[0])
    model = model.learnt(logs, inside)
    dense = model.ordinary(logs)
    if inside is not None:
        dense = np.where(inside, model.slowed(logs), dense)
    return replace(model, fit=float(dense.sum()))


def mixture(logs: Floats, shape: Floats, tail: float, share: float, rounds: int = 40) -> RatioModel:
    """Two groups without knowing who is in which, by expectation and maximisation from an upper ``share``."""
    cut = float(np.quantile(logs, 1 - share))
    belongs = (logs > cut).astype(np.float64)
    if not 0 < belongs.mean() < 1:
        belongs = np.full(len(logs), share)
    spread = max(_spread(logs / shape) * 0.7, 1e-9)
    centres = [float(np.median(logs[logs <= cut])) if (logs <= cut).any() else cut, float(np.median(logs[logs >= cut]))]
    portion = share
    for _ in range(rounds):
        scale = spread * shape
        residuals = [logs - c for c in centres]
        dense = [log_density(r / scale, tail) for r in residuals]
        belongs = 1 / (1 + np.exp(np.clip(dense[0] - dense[1] + math.log((1 - portion) / portion), -50, 50)))
        total = 0.0
        for i, w in enumerate((1 - belongs, belongs)):
            robust = w * (tail + 1) / (tail + (residuals[i] / scale) ** 2)
            mass = robust / shape**2
            if mass.sum() > 1e-9:
                centres[i] = float((mass * logs).sum() / mass.sum())
            total += float((robust * ((logs - centres[i]) / shape) ** 2).sum())
        spread = max(math.sqrt(total / len(logs)), 1e-9)
        portion = float(np.clip(belongs.mean(), 1 / len(logs), 1 - 1 / len(logs)))
    scale = spread * shape
    parts = [log_density((logs - c) / scale, tail) - np.log(scale) for c in centres]
    fit = float(np.logaddexp(parts[0] + math.log(1 - portion), parts[1] + math.log(portion)).sum())
    return RatioModel(centres[0], centres[1] - centres[0], scale, tail, fit, float(logs.max()) - centres[0])


def _spread(values: Floats) -> float:
    """Standard deviation by the median absolute deviation."""
    middle = np.median(values)
    return 1.4826 * float(np.median(np.abs(values - middle)))
