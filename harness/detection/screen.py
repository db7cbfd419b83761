"""The newest night against those before it: which series look worse?

Values are compared on the log scale with a noise that is pooled over the suite, so that two nights are enough for
a first answer. What is named here is a suspect, not an alarm: suspects are measured again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ScreenOptions:
    """``z`` is the distance in noise units and ``relevant`` the relative change that make a suspect.

    With fewer than ``short`` earlier runs the noise is hardly known: ``z_short`` then lets more through, and what it
    lets through is measured again. The suite's noise is taken from series whose standard error within the run is at
    most ``clear``, where there are ``least_clear`` of them.
    """

    z: float = 3.0
    z_short: float = 1.0
    short: int = 6
    relevant: float = 0.02
    window: int = 20
    noise_floor: float = 0.005
    clear: float = 0.1
    least_clear: int = 8


@dataclass(frozen=True, slots=True)
class Screened:
    """Per series: ``ratio`` of the newest value to the level before it, ``z`` and whether it is suspect.

    NaN where a series has no newest value or nothing before it. ``smallest_detectable`` is relative.
    """

    ratio: Array
    z: Array
    suspect: npt.NDArray[np.bool_]
    smallest_detectable: Array


def screen(
    values: Array,
    errors: Array,
    adverse: Array,
    exact: npt.NDArray[np.bool_],
    options: ScreenOptions = ScreenOptions(),
) -> Screened:
    """Judge the last column of ``values`` (series x runs, positive, NaN where there is none).

    ``errors`` are standard errors of log values within a run (same shape, NaN where unknown). ``adverse`` is +1
    where larger is worse and -1 where smaller is. ``exact`` series are deterministic: any adverse change counts.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(values > 0, values, np.nan))
    history, newest = logs[:, :-1][:, -options.window :], logs[:, -1]
    level = _nanmedian(history)
    delta = newest - level
    noisy = ~exact & np.isfinite(delta)
    within = np.where(np.isfinite(errors[:, -1]), errors[:, -1], 0.0)
    counted = np.maximum(np.isfinite(history).sum(axis=1), 1)
    # Series that the machine disturbed say little of the noise of the others.
    clear = noisy & (within <= options.clear)
    run_to_run = _run_noise(history, delta[clear if clear.sum() >= options.least_clear else noisy], options)
    noise = np.sqrt((run_to_run**2 + within**2) * (1 + 1 / counted))
    infinite = np.where(delta > 0, np.inf, np.where(delta < 0, -np.inf, 0.0))
    z = np.where(exact, infinite, delta / noise)
    needed = np.where(counted < options.short, options.z_short, options.z)
    enough = np.where(exact, delta * adverse > 0, delta * adverse >= np.log1p(options.relevant))
    with np.errstate(invalid="ignore"):
        suspect = np.isfinite(delta) & enough & (z * adverse >= needed)
    smallest = np.where(exact, 0.0, np.expm1(np.maximum(needed * noise, np.log1p(options.relevant))))
    return Screened(np.exp(delta), z, suspect, smallest)


def _run_noise(history: Array, deltas: Array, options: ScreenOptions) -> Array:
    """Run-to-run noise per series: its own differences, shrunk to the suite's by how many there are."""
    # The spread over the suite is taken around zero and by its median, so that a minority of regressions cannot
    # hide itself by raising it.
    pooled = 1.4826 * float(np.median(np.abs(deltas))) if len(deltas) else options.noise_floor
    pooled = max(pooled, options.noise_floor)
    steps = np.abs(np.diff(history, axis=1))
    count = np.isfinite(steps).sum(axis=1) if history.shape[1] > 1 else np.zeros(len(history))
    own = np.nan_to_num(_nanmedian(steps), nan=pooled) * 1.4826 / np.sqrt(2) if history.shape[1] > 1 else pooled
    weight = count / (count + 6.0)
    return np.asarray(np.maximum(np.sqrt(weight * own**2 + (1 - weight) * pooled**2), options.noise_floor))


def _nanmedian(a: Array) -> Array:
    out = np.full(len(a), np.nan)
    have = np.isfinite(a).any(axis=1) if a.size else np.zeros(len(a), dtype=bool)
    if have.any():
        out[have] = np.nanmedian(a[have], axis=1)
    return out
