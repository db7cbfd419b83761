"""Change points of many series: interior ones, the newest nights, families, and deterministic series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from harness.model.terms import VerdictKind

from .batch import Array, Batch, Bools, Ints, flatten, make_batch
from .edge import Edge, EdgeOptions, edge
from .exact import ExactOptions, exact_changes, looks_exact
from .family import Family, FamilyOptions, family
from .interior import InteriorOptions, Prepared, interior, prepare


@dataclass(frozen=True, slots=True)
class DetectOptions:
    """One setting for every kind of series.

    ``recent``: a change with at most so many rows from its start on is still a suspect. ``near``: two findings
    within so many rows are one. ``around``: rows on each side that levels are taken from.
    """

    interior: InteriorOptions = field(default_factory=InteriorOptions)
    edge: EdgeOptions = field(default_factory=EdgeOptions)
    family: FamilyOptions = field(default_factory=FamilyOptions)
    exact: ExactOptions = field(default_factory=ExactOptions)
    recent: int = 8
    near: int = 10
    around: int = 60


@dataclass(frozen=True, slots=True)
class Change:
    """The level changes at row ``index`` (0-based, gaps counted), the first of the new segment.

    ``before`` and ``after`` are medians in the unit given; ``ratio`` with its 95 % interval is None where the
    logarithm does not apply. ``kind``: ``step``, ``recovery`` (back to the level before the change before),
    ``drift``, ``family`` (found with others that changed the same night) or ``exact``. ``suspect``: so recent that
    it should be measured again.
    """

    index: int
    before: float
    after: float
    ratio: float | None
    low: float | None
    high: float | None
    p: float
    kind: str
    suspect: bool

    def verdict(self, better: str = "lower") -> VerdictKind:
        """Slower is worse, whichever way the metric runs."""
        return VerdictKind.SLOWER if (self.after > self.before) == (better == "lower") else VerdictKind.FASTER


@dataclass(frozen=True)
class Detected:
    """``changes[i]`` of series i, by index. ``log[i]``: judged on the log scale. ``families`` of the suite, if any.

    ``edge`` is the state of the newest nights of a suite (None without one); exact series have no level there.
    """

    changes: list[list[Change]]
    log: Bools
    exact: Bools
    families: list[Family]
    edge: Edge | None


@dataclass(slots=True)
class _Found:
    """A change before its levels are estimated; ``at`` is the first of its points in the flat array."""

    at: int
    p: float
    kind: str
    newest: bool


def detect(values: Sequence[Array], options: DetectOptions = DetectOptions(), *, pool: bool = False) -> Detected:
    """Change points of each of ``values``: one array per series in order of time, NaN or infinity for gaps.

    ``pool``: the series are nights of one suite and end on the same night. They then share the shape of their
    noise, and changes that several have in common are found together.
    """
    flat, start = flatten(values)
    return detect_flat(flat, start, options, pool=pool)


def detect_flat(
    flat: Array, start: Ints, options: DetectOptions = DetectOptions(), *, pool: bool = False,
    known_exact: Bools | None = None, groups: Sequence[str] = (), inflate: Array | None = None,
) -> Detected:  # fmt: skip
    """As :func:`detect`, for series end to end: ``flat`` [points], series i from ``start[i]`` to ``start[i + 1]``.

    ``known_exact`` [series] says which are deterministic, instead of their looks. ``groups`` [series]: labels whose
    members may change together, besides the suite as a whole. ``inflate`` [series, rows], for series of one length:
    how much wider than usual a row's noise is.
    """
    batch = make_batch(flat, start)
    rows = np.diff(start)
    prepared = prepare(batch, options.interior, pooled=pool)
    exact = looks_exact(batch, prepared.same, options.exact) if known_exact is None else known_exact
    found: dict[int, list[_Found]] = {}
    at, weighed = interior(prepared, options.interior, ignore=exact)
    for position, z in zip(at.tolist(), weighed.z.tolist(), strict=True):
        found.setdefault(int(batch.ids[position]), []).append(
            _Found(position, float(2 * stats.norm.sf(z)), "step", False)
        )
    for i in np.flatnonzero(exact & (prepared.same < 1)).tolist():
        a = int(batch.start[i])
        places = exact_changes(flat_values(batch, i))
        if len(places):
            found[i] = [_Found(a + int(k), 0.0, "exact", False) for k in places]
    newest = _newest(batch, rows, exact, found, options, pool, groups, inflate)
    changes: list[list[Change]] = [[] for _ in range(len(batch))]
    for i, ours in found.items():
        changes[i] = _estimated(i, ours, prepared, rows, options)
    return Detected(changes, batch.log, exact, newest[0], newest[1])


def flat_values(batch: Batch, i: int) -> Array:
    """The values of series i on the scale judged; equal values stay exactly equal."""
    return batch.y[batch.start[i] : batch.start[i + 1]]


def _newest(
    batch: Batch, rows: Ints, exact: Bools, found: dict[int, list[_Found]], options: DetectOptions, pool: bool,
    groups: Sequence[str], inflate: Array | None,
) -> tuple[list[Family], Edge | None]:  # fmt: skip
    """Add what the newest nights show. The rows of all series are laid side by side, aligned at their ends."""
    noise = options.edge.noise
    window = noise.baseline + noise.gap + 2
    first_row = np.zeros(len(batch), dtype=np.int64)
    for i, ours in found.items():
        first_row[i] = batch.row[ours[-1].at]
    judged = ~exact & (batch.count > 1)
    nights = np.minimum(rows, window)
    if not pool:
        for length in np.unique(nights[judged]).tolist():
            pick = np.flatnonzero(judged & (nights == length))
            if length > options.edge.least_alone:
                x = right_aligned(batch, rows, pick, length)
                first = np.maximum(first_row[pick] - (rows[pick] - length), 0)
                _add_edge(edge(x, options.edge, first=first, pooled=False), x, pick, rows, batch, found, options)
        return [], None
    length = int(nights.max(initial=0))
    if length < 4 or not judged.any():
        return [], None
    every = np.arange(len(batch))
    x = right_aligned(batch, rows, every, length)
    x[~judged] = np.nan
    first = np.maximum(first_row - (rows - length), 0)
    wide = None if inflate is None else inflate[:, -length:]
    newest = edge(x, options.edge, first=first, pooled=True, inflate=wide)
    _add_edge(newest, x, every, rows, batch, found, options)
    families = []
    for members in _groups(groups, len(batch)):
        shared = family(x, newest.noise, options.family, leave_out=~members, inflate=wide)
        if shared is not None:
            families.append(shared)
            _add_family(shared, x, rows, batch, found, options)
    return families, newest


def _groups(groups: Sequence[str], series: int) -> list[Bools]:
    """The whole suite first, then each label that some but not all series bear."""
    labels = np.asarray(groups)
    parts = [labels == name for name in np.unique(labels)] if len(labels) else []
    return [np.ones(series, dtype=bool), *(p for p in parts if not p.all())]


def right_aligned(batch: Batch, rows: Ints, pick: Ints, nights: int) -> Array:
    """The last ``nights`` rows of the picked series side by side: [picked, nights], NaN for gaps."""
    place = np.full(len(batch), -1, dtype=np.int64)
    place[pick] = np.arange(len(pick))
    column = batch.row - rows[batch.ids] + nights
    take = (column >= 0) & (place[batch.ids] >= 0)
    x = np.full((len(pick), nights), np.nan)
    x[place[batch.ids[take]], column[take]] = batch.y[take]
    return x


def _add_edge(
    newest: Edge, x: Array, pick: Ints, rows: Ints, batch: Batch, found: dict[int, list[_Found]], options: DetectOptions
) -> None:
    for k in np.flatnonzero(newest.hit).tolist():
        # The best of about ten correlated statistics: ten times the tail of one.
        p = min(1.0, 20 * float(stats.norm.sf(np.sqrt(2 * max(newest.evidence[k], 0.0)))))
        kind = "drift" if newest.slope[k] else "step"
        _add(int(newest.start[k]), k, p, kind, x, pick, rows, batch, found, options)


def _add_family(
    shared: Family, x: Array, rows: Ints, batch: Batch, found: dict[int, list[_Found]], options: DetectOptions
) -> None:
    every = np.arange(len(batch))
    for k in np.flatnonzero(shared.members).tolist():
        _add(shared.start, k, float(1 - shared.posterior[k]), "family", x, every, rows, batch, found, options)


def _add(
    column: int, k: int, p: float, kind: str, x: Array, pick: Ints, rows: Ints, batch: Batch,
    found: dict[int, list[_Found]], options: DetectOptions,
) -> None:  # fmt: skip
    i = int(pick[k])
    row = column + int(rows[i]) - x.shape[1]
    begin, end = int(batch.start[i]), int(batch.start[i + 1])
    at = begin + int(np.searchsorted(batch.row[begin:end], row))
    if not begin < at < end:
        return
    ours = found.setdefault(i, [])
    if all(abs(int(batch.row[f.at]) - row) > options.near for f in ours):
        ours.append(_Found(at, p, kind, True))
        ours.sort(key=lambda f: f.at)


def _estimated(i: int, ours: list[_Found], prepared: Prepared, rows: Ints, options: DetectOptions) -> list[Change]:
    """Levels, ratio and interval of the changes of one series, from the rows between neighbouring changes."""
    batch = prepared.batch
    edges = [int(batch.start[i]), *(f.at for f in ours), int(batch.start[i + 1])]
    rho = float(prepared.rho[i])
    deviation = float(prepared.scale[i]) / np.sqrt(1 - rho) * np.sqrt((1 + rho) / (1 - rho))
    out: list[Change] = []
    levels: list[tuple[float, float]] = []
    for k, f in enumerate(ours):
        left = batch.y[max(edges[k], f.at - options.around) : f.at]
        right = batch.y[f.at : min(edges[k + 2], f.at + options.around)]
        a, b = float(np.median(left)), float(np.median(right))
        exact = f.kind == "exact"
        # A median of more than two points needs pi / 2 times the points of a mean.
        loss = sum((np.pi / 2 if len(side) > 2 else 1.0) / len(side) for side in (left, right))
        half = 0.0 if exact else 1.96 * deviation * float(np.sqrt(loss))
        row = int(batch.row[f.at])
        kind = f.kind
        if kind == "step" and out and _recovers(levels[-1], b):
            kind = "recovery"
        levels.append((a, b))
        centre, log = float(batch.centre[i]), bool(batch.log[i])
        before, after = (_value(v + centre, float(batch.unit[i]), log) for v in (a, b))
        ratio = low = high = None
        if log:
            ratio, low, high = (float(np.exp(np.clip(b - a + d, -700, 700))) for d in (0.0, -half, half))
        suspect = f.newest or int(rows[i]) - row <= options.recent
        out.append(Change(row, before, after, ratio, low, high, f.p, kind, suspect))
    return out


def _recovers(change: tuple[float, float], after: float) -> bool:
    before, between = change
    return abs(after - before) <= 0.25 * abs(between - before)


def _value(y: float, unit: float, log: bool) -> float:
    return float(np.exp(y)) if log else y * unit
