"""A change that many series share: found together where no single series could show it.

One commit slows part of a suite down from one night on. For each start, size and share of affected series, the
evidence of all series is added: log(1 - share + share * ratio). The best combination is judged against what the
same sum did on earlier nights, and each series' posterior says whether it belongs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .batch import Array, Bools
from .edge import discount, step_shape
from .noise import Noise


@dataclass(frozen=True, slots=True)
class FamilyOptions:
    """``level``: log likelihood ratio a family needs; ``short / nights`` is added below 60 nights of history.

    ``alone``: what must remain without the family's best night. ``member``: posterior that makes a member. ``sizes``
    are relative changes, ``shares`` of affected series. ``fewest`` series make a family. ``past``: nights ago at
    which the same sum is taken, to set the level as well.
    """

    steps: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22)
    sizes: tuple[float, ...] = (0.01, 0.014, 0.02, 0.028, 0.04, 0.06, 0.1, 0.18)
    shares: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 0.95)
    level: float = 12.0
    short: float = 240.0
    alone: float = 5.0
    member: float = 0.55
    fewest: int = 5
    past: tuple[int, ...] = (24, 30, 36, 42, 48, 54, 60)


@dataclass(frozen=True)
class Family:
    """A shared change from column ``start`` on, by ``step`` (log scale). ``posterior`` [series] of belonging,
    ``evidence`` [series] the log likelihood ratio of each, ``total`` the family's, ``level`` what it had to pass."""

    start: int
    step: float
    share: float
    total: float
    level: float
    posterior: Array
    evidence: Array
    members: Bools


@dataclass(frozen=True)
class _Best:
    total: float
    m: int
    size: int
    share: float
    evidence: Array


def family(
    x: Array, noise: Noise, options: FamilyOptions = FamilyOptions(), *, leave_out: Bools | None = None,
    inflate: Array | None = None,
) -> Family | None:  # fmt: skip
    """The strongest shared change among the newest nights of ``x`` [series, nights], or None.

    ``leave_out`` [series]: not to be counted, for they changed at another time.
    """
    use = noise.known & np.isfinite(x[:, -1])
    if leave_out is not None:
        use = use & ~leave_out
    pick = np.flatnonzero(use)
    if len(pick) < options.fewest or x.shape[1] < 4:
        return None
    nights = x.shape[1]
    reach = min(max(options.steps), nights - 1)
    part = noise.part(pick)
    wide = None if inflate is None else inflate[pick, nights - reach - 1 :]
    e = part.innovations(x[pick, nights - reach - 1 :], wide)
    best = _best(e, part, options)
    level = options.level + options.short * max(1 / float(np.median(part.count)) - 1 / 60, 0.0)
    if best is None or best.total <= level:
        return None
    level = max(level, _past_level(x[pick], part, options))
    if best.total <= level or _weakest(e, part, best, options) < options.alone:
        return None
    odds = np.clip(np.log(best.share / (1 - best.share)) + best.evidence, -700, 700)
    posterior, evidence = np.zeros(len(x)), np.zeros(len(x))
    posterior[pick], evidence[pick] = 1 / (1 + np.exp(-odds)), best.evidence
    members = posterior > options.member
    if members.sum() < options.fewest:
        return None
    step = float(_log_sizes(options)[best.size])
    return Family(nights - best.m, step, best.share, best.total, level, posterior, evidence, members)


def _log_sizes(options: FamilyOptions) -> Array:
    up = np.log1p(np.array(options.sizes))
    return np.concatenate([-up[::-1], up])


def _single(e: Array, part: Noise, options: FamilyOptions) -> tuple[Array, Array]:
    """Ratios of single nights for the first and the later nights of a step: [sizes, series, nights]."""
    shift = _log_sizes(options)[:, None] / part.scale
    known, e0 = np.isfinite(e), np.nan_to_num(e)
    density = part.log_density
    plain = density(e0)
    first = np.stack([np.where(known, density(e0 - s[:, None]) - plain, 0.0) for s in shift])
    later = np.stack([np.where(known, density(e0 - (s * (1 - part.rho))[:, None]) - plain, 0.0) for s in shift])
    return first, later


def _blurred(value: Array) -> Array:
    """Members of a family do not all change by the same: each size is averaged with its neighbours of one sign."""
    half = len(value) // 2
    out = np.empty_like(value)
    for side in (slice(0, half), slice(half, None)):
        v = value[side]
        weights = np.log(np.array([0.25, 0.5, 0.25]))
        padded = np.concatenate([v[:1], v, v[-1:]])
        stacked = np.stack([padded[i : i + len(v)] + weights[i] for i in range(3)])
        top = stacked.max(axis=0)
        out[side] = top + np.log(np.exp(stacked - top).sum(axis=0))
    return out


def _total(value: Array, share: float) -> Array:
    """Evidence of a family: [sizes] from [sizes, series]."""
    return np.asarray(np.logaddexp(np.log1p(-share), np.log(share) + value).sum(axis=1))


def _best(e: Array, part: Noise, options: FamilyOptions) -> _Best | None:
    first, later = _single(e, part, options)
    summed = np.cumsum(later[:, :, ::-1], axis=2)
    best: _Best | None = None
    for m in options.steps:
        if m > e.shape[1]:
            continue
        value = _blurred((first[:, :, -m] + summed[:, :, m - 2]) * discount(step_shape(part, m), part))
        for share in options.shares:
            total = _total(value, share)
            j = int(total.argmax())
            if best is None or total[j] > best.total:
                best = _Best(float(total[j]), m, j, share, value[j])
    return best


def _weakest(e: Array, part: Noise, best: _Best, options: FamilyOptions) -> float:
    """Evidence that remains when the night that helps most is taken away: one bad night is no change."""
    first, later = _single(e[:, -best.m :], part, options)
    single = later.copy()
    single[:, :, 0] = first[:, :, 0]
    whole, share = single.sum(axis=2), discount(step_shape(part, best.m), part)
    remaining = [_total(_blurred((whole - single[:, :, k]) * share), best.share)[best.size] for k in range(best.m)]
    return float(min(remaining))


def _past_level(x: Array, part: Noise, options: FamilyOptions) -> float:
    """What earlier nights of the suite reached, when nothing had changed for long: the largest and a margin."""
    top = 0.0
    for back in options.past:
        end = x.shape[1] - back
        if end - max(options.steps) - 1 < part.begin:
            break
        e = part.innovations(x[:, end - max(options.steps) - 1 : end])
        best = _best(e, part, options)
        if best is not None:
            top = max(top, best.total)
    return 1.25 * top + 5.0 if top > 0 else 0.0
