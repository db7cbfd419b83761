"""One machine's runs of a whole suite: which series look changed, and since when?

The top of this package for nightly use. Takes matrices, removes what the machine itself did, judges histories and
the newest runs, and returns suspects with their evidence. Suspects are meant to be measured again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .batch import Array, Bools
from .changes import Change, DetectOptions, detect_flat
from .edge import EdgeOptions
from .family import Family
from .noise import Noise, row_median
from .screen import ScreenOptions, screen
from .spread import Spread, SpreadOptions, grown_spread


def _nightly() -> DetectOptions:
    return DetectOptions(edge=EdgeOptions(one_night=True))


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """``detect``: as for files, but that one night far outside the suite's past is enough for a suspect.

    With fewer than ``enough`` runs there is no history to speak of: the newest run is then screened against the few
    before it, by ``screen``. ``spread``: growth of the noise itself. ``window``: newest runs in which a change is
    still a suspect.
    """

    detect: DetectOptions = field(default_factory=_nightly)
    screen: ScreenOptions = field(default_factory=ScreenOptions)
    spread: SpreadOptions = field(default_factory=SpreadOptions)
    enough: int = 8
    window: int = 22


@dataclass(frozen=True, slots=True)
class Suspect:
    """Series ``series`` (row) looks changed from run ``start`` (column) on.

    ``ratio`` after / before with a 95 % interval, None where the log scale does not apply. ``kind`` as in
    :class:`Change`, or ``short`` (screened on very short history). ``p`` for this series, ``q`` over all series that
    were judged (Benjamini and Yekutieli). ``adverse``: for the worse.
    """

    series: int
    start: int
    ratio: float | None
    low: float | None
    high: float | None
    before: float
    after: float
    p: float
    q: float
    kind: str
    adverse: bool


@dataclass(frozen=True)
class SuiteJudged:
    """``suspects`` in the newest runs, strongest first; ``changes[i]`` is the whole history of series i.

    ``smallest`` [series]: relative step that two nights would show in 80 % of cases; 0 for exact series, NaN where
    unknown. ``level`` [series]: today's level in the metric's unit, NaN where unknown. ``families``: shared changes.
    ``spread``: series that became noisier, None without history.
    """

    suspects: list[Suspect]
    changes: list[list[Change]]
    smallest: Array
    level: Array
    families: list[Family]
    spread: Spread | None = None


def control_drift(controls: Array) -> Array:
    """What the machine itself did, from frozen kernels: [runs], on the log scale, around 0.

    ``controls`` [kernels, runs]: positive values, NaN where missing. The median over kernels of each run's distance
    from the kernel's own median; 0 for a run without controls.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(controls > 0, controls, np.nan))
    out = np.zeros(controls.shape[1])
    usual = np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in logs])
    for j in range(controls.shape[1]):
        away = logs[:, j] - usual
        away = away[np.isfinite(away)]
        out[j] = np.median(away) if len(away) else 0.0
    return out


def judge_suite(
    values: Array, *, errors: Array | None = None, exact: Bools | None = None, adverse: Array | None = None,
    groups: Sequence[str] = (), drift: Array | None = None, options: SuiteOptions | None = None,
) -> SuiteJudged:  # fmt: skip
    """Judge the runs of one suite on one machine.

    ``values`` [series, runs] in the metric's unit, newest last, NaN for missing. ``errors`` [series, runs]: standard
    errors of the logarithms within a run, NaN where unknown. ``exact`` [series]: deterministic metrics. ``adverse``
    [series]: +1 where larger is worse (the default), -1 where smaller is. ``groups`` [series]: labels of series that
    may change together, such as the backend. ``drift`` [runs]: see :func:`control_drift`; taken out of all series
    that are not exact.
    """
    options = options or SuiteOptions()
    values = np.where(np.isfinite(values), values, np.nan)
    series, runs = values.shape
    exact = np.zeros(series, dtype=bool) if exact is None else exact
    worse = np.ones(series) if adverse is None else adverse
    cleaned = values if drift is None else np.where(exact[:, None], values, values * np.exp(-drift))
    start = np.arange(series + 1, dtype=np.int64) * runs
    inflate = None if errors is None else _inflate(errors)
    found = detect_flat(
        cleaned.ravel(), start, options.detect, pool=True, known_exact=exact, groups=groups, inflate=inflate
    )
    spread = None
    smallest, level = np.full(series, np.nan), np.full(series, np.nan)
    if found.edge is not None:
        noise = found.edge.noise
        known = noise.known & found.log
        later = 1 + (1 - noise.rho) ** 2
        needed = np.sqrt(2 * found.edge.level / later) + 0.84 / np.sqrt(later)
        smallest = np.where(known, np.expm1(np.maximum(noise.scale * needed, options.detect.edge.relevant)), np.nan)
        spread = _spread(cleaned, found.edge.noise, known & ~exact, inflate, options)
    smallest[exact] = 0.0
    suspects = [
        _suspect(i, c, float(worse[i])) for i, changes in enumerate(found.changes) for c in changes[-1:]
        if runs - c.index <= options.window and (c.suspect or c.kind == "exact")
    ]  # fmt: skip
    if runs < options.enough:
        suspects, smallest = _short(cleaned, errors, worse, exact, suspects, options)
    for i in range(series):
        after = found.changes[i][-1].index if found.changes[i] else 0
        rest = cleaned[i, max(after, runs - options.detect.around) :]
        rest = rest[np.isfinite(rest)]
        level[i] = np.median(rest) if len(rest) else np.nan
    judged = max(int(np.isfinite(values[:, -1]).sum()), 1) if runs else 1
    return SuiteJudged(_adjusted(suspects, judged), found.changes, smallest, level, found.families, spread)


def _spread(values: Array, noise: Noise, judged: Bools, inflate: Array | None, options: SuiteOptions) -> Spread:
    """Growth of the noise, from the rows and on the scale on which ``noise`` was learnt."""
    nights = min(values.shape[1], options.detect.edge.noise.baseline + options.detect.edge.noise.gap + 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        x = np.log(np.where(judged[:, None] & (values > 0), values, np.nan))
    x = x - row_median(x)[:, None]
    return grown_spread(
        x[:, -nights:], noise, options.spread, inflate=None if inflate is None else inflate[:, -nights:]
    )


def _inflate(errors: Array) -> Array:
    """How much wider a run's value scatters than is usual for its series: [series, runs], at least 1."""
    usual = np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in errors])
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.maximum(errors / usual[:, None], 1.0)
    return np.where(np.isfinite(share), share, 1.0)


def _suspect(i: int, c: Change, worse: float) -> Suspect:
    bad = (c.after - c.before) * worse > 0
    return Suspect(i, c.index, c.ratio, c.low, c.high, c.before, c.after, c.p, c.p, c.kind, bad)


def _short(
    values: Array, errors: Array | None, worse: Array, exact: Bools, suspects: list[Suspect], options: SuiteOptions
) -> tuple[list[Suspect], Array]:
    """The newest run of a very short history, in both directions; exact changes are kept as they were found."""
    if values.shape[1] < 2:
        return suspects, np.full(len(values), np.nan)
    unknown = np.full(values.shape, np.nan) if errors is None else errors
    kept = {s.series: s for s in suspects if s.kind == "exact"}
    result = screen(values, unknown, worse, exact, options.screen)
    better = screen(values, unknown, -worse, exact, options.screen)
    for i in np.flatnonzero((result.suspect | better.suspect) & ~exact).tolist():
        ratio = float(result.ratio[i])
        noise = abs(float(np.log(ratio))) / max(abs(float(result.z[i])), 1e-9)
        after = float(values[i, -1])
        p = float(2 * _tail(abs(float(result.z[i]))))
        low, high = ratio * np.exp(-1.96 * noise), ratio * np.exp(1.96 * noise)
        bad = bool(result.suspect[i])
        last = values.shape[1] - 1
        kept[i] = Suspect(i, last, ratio, float(low), float(high), after / ratio, after, p, p, "short", bad)
    return [kept[i] for i in sorted(kept)], result.smallest_detectable


def _tail(z: float) -> float:
    from scipy import stats

    # Noise known from a handful of runs: the tail of t with few degrees of freedom, not of the normal.
    return float(stats.t.sf(z, 5))


def _adjusted(suspects: list[Suspect], judged: int) -> list[Suspect]:
    """Sorted by evidence, with q over all series judged, valid under any dependence between them."""
    ordered = sorted(suspects, key=lambda s: (s.p, s.series))
    harmonic = float((1 / np.arange(1, judged + 1)).sum())
    q = 1.0
    out = []
    for rank in range(len(ordered), 0, -1):
        s = ordered[rank - 1]
        q = min(q, s.p * judged * harmonic / rank)
        out.append(replace(s, q=q))
    return out[::-1]
