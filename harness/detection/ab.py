"""A/B: is ``head`` slower than ``base``, from samples of both?

Rank statistics on the log scale: the effect is a ratio of medians in the sense of Hodges and Lehmann, with the
interval that inverts the same test. Interleaved samples are compared as pairs, so that slow drift of the machine
cancels. Families of cases share one false discovery rate (Benjamini and Yekutieli, valid under any dependence).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import stats

from harness.model.terms import VerdictKind

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ABOptions:
    """``relevant`` is the smallest relative change worth telling; ``fdr`` is over the family of cases."""

    relevant: float = 0.02
    fdr: float = 0.05
    confidence: float = 0.95
    max_pairs: int = 2000


@dataclass(frozen=True, slots=True)
class ABResult:
    """``ratio`` is head / base with its interval; ``smallest_detectable`` is the relative change that these
    samples would have shown with 80 % probability."""

    ratio: float
    low: float
    high: float
    p: float
    verdict: VerdictKind
    smallest_detectable: float
    n_base: int
    n_head: int
    scale: str = "log"


def compare(
    base: Sequence[float],
    head: Sequence[float],
    options: ABOptions = ABOptions(),
    *,
    paired: bool = False,
    better: str = "lower",
) -> ABResult:
    """Compare two sets of samples of one case. ``paired`` where sample i of both was taken side by side."""
    b, h = _clean(base), _clean(head)
    n = min(len(b), len(h))
    if n == 0:
        return ABResult(np.nan, np.nan, np.nan, 1.0, VerdictKind.AMBIGUOUS, np.inf, len(b), len(h))
    log = bool((b > 0).all() and (h > 0).all())
    centre = 0.0 if log else float(np.median(np.abs(b))) or 1.0
    fb, fh = (np.log(b), np.log(h)) if log else (b / centre, h / centre)
    if np.ptp(fb) == 0 and np.ptp(fh) == 0:
        shift = float(fh[0] - fb[0])
        low, mid, high, p = shift, shift, shift, 0.0 if shift and n > 1 else 1.0
    elif paired:
        low, mid, high, p = _signed_rank(fh[:n] - fb[:n], options)
    else:
        low, mid, high, p = _rank_sum(fb, fh, options)
    to_ratio = np.exp if log else (lambda x: 1.0 + x)
    half = max(high - low, 0.0) / 2
    z = stats.norm.ppf(0.5 + options.confidence / 2)
    smallest = float(np.expm1(half * (z + stats.norm.ppf(0.8)) / z)) if np.isfinite(half) else np.inf
    result = ABResult(
        float(to_ratio(mid)), float(to_ratio(low)), float(to_ratio(high)), float(p), VerdictKind.AMBIGUOUS,
        smallest, len(b), len(h), "log" if log else "linear",
    )  # fmt: skip
    return replace(result, verdict=verdict(result, options, better=better))


def verdict(result: ABResult, options: ABOptions, *, better: str = "lower", p: float | None = None) -> VerdictKind:
    """Same, faster, slower or ambiguous. ``p`` replaces the result's own, adjusted for the family.

    Slower and faster need significance and relevance; *same* needs an interval inside the relevant effect.
    """
    p = result.p if p is None else p
    rel = options.relevant
    if (
        p <= options.fdr
        and (result.low > 1 or result.high < 1)
        and abs(np.log(max(result.ratio, 1e-300))) >= np.log1p(rel)
    ):
        worse = (result.ratio > 1) == (better == "lower")
        return VerdictKind.SLOWER if worse else VerdictKind.FASTER
    if result.low >= 1 / (1 + rel) and result.high <= 1 + rel:
        return VerdictKind.SAME
    return VerdictKind.AMBIGUOUS


def family(results: Sequence[ABResult], options: ABOptions = ABOptions(), *, better: str = "lower") -> list[ABResult]:
    """The same results with verdicts under one false discovery rate."""
    if not results:
        return []
    adjusted = stats.false_discovery_control([r.p for r in results], method="by")
    return [
        replace(r, p=float(p), verdict=verdict(r, options, better=better, p=float(p)))
        for r, p in zip(results, adjusted, strict=True)
    ]


def _clean(values: Sequence[float]) -> Array:
    a = np.asarray(values, dtype=float)
    kept: Array = a[np.isfinite(a)]
    return kept


def _thin(a: Array, n: int) -> Array:
    return a if len(a) <= n else a[np.linspace(0, len(a) - 1, n).astype(int)]


def _signed_rank(d: Array, options: ABOptions) -> tuple[float, float, float, float]:
    """Hodges-Lehmann shift of paired differences with the interval of Wilcoxon's signed rank test."""
    n = len(d)
    if n < 2:
        return -np.inf, float(d[0]), np.inf, 1.0
    p = float(stats.wilcoxon(d, zero_method="pratt").pvalue) if np.any(d != 0) else 1.0
    t = _thin(d, int(options.max_pairs**0.5 * 3))
    i, j = np.triu_indices(len(t))
    walsh = np.sort((t[i] + t[j]) / 2)
    m = len(t)
    z = stats.norm.ppf(0.5 + options.confidence / 2)
    k = int(np.floor(m * (m + 1) / 4 - z * np.sqrt(m * (m + 1) * (2 * m + 1) / 24)))
    low, high = (-np.inf, np.inf) if k < 1 else (float(walsh[k - 1]), float(walsh[-k]))
    return low, float(np.median(walsh)), high, p


def _rank_sum(b: Array, h: Array, options: ABOptions) -> tuple[float, float, float, float]:
    """Hodges-Lehmann shift between independent samples with the interval of the Mann-Whitney test."""
    p = float(stats.mannwhitneyu(h, b, alternative="two-sided").pvalue)
    tb, th = _thin(b, 200), _thin(h, 200)
    shifts = np.sort(np.subtract.outer(th, tb).ravel())
    m, n = len(th), len(tb)
    z = stats.norm.ppf(0.5 + options.confidence / 2)
    k = int(np.floor(m * n / 2 - z * np.sqrt(m * n * (m + n + 1) / 12)))
    low, high = (-np.inf, np.inf) if k < 1 else (float(shifts[k - 1]), float(shifts[-k]))
    return low, float(np.median(shifts)), high, p
