"""Explaining ratios: a shift of the log ratio, found and fitted in turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .build import build_pool
from .columns import Bools, Column, Floats, Ints
from .evaluate import terms_mask
from .labels import assemble, explain_labels, in_full
from .noise import RatioModel, fit_groups, mixture, scales
from .pool import Pool
from .result import Explanation, Options, Trigger
from .scoring import Scorer
from .search import Conjunction, conjunctions
from .union import Needs, Union, find, refit

#: What triggers must earn: more than from labels, since centre, shift, scale and tail are fitted to them as well.
_NEEDS = Needs(3.0, 4.0)
_FITTED_NEEDS = 6.5
#: A ratio that every row must pass before all of them count as regressed: beyond what a machine drifts.
_ALL = 1.10
#: Smallest shift (log scale) that is worth a trigger.
_SMALLEST = 0.005
#: Log ratio that a machine may drift by between base and head, all rows alike.
_DRIFT = 0.05
#: Rows that stand out by themselves and suffice to ask what they share.
_FEW = 3
#: Log ratios beyond are as good as this one, whose multiples the exponential still takes.
_WIDEST = 200.0
#: Nats beyond which no other start is tried.
_SURE = 40.0


def explain_ratios(columns: Sequence[Column], ratio: Floats, errors: Floats | None, options: Options) -> Explanation:
    """Triggers of rows whose ``ratio`` (n,) is shifted upwards; ``errors`` (n,) are standard errors of the ratio.
    Rows whose ratio is no positive number take no part."""
    n = len(ratio)
    usable = np.isfinite(ratio) & (ratio > 0)
    nobody = Explanation((), (), np.zeros(n, dtype=np.bool_), np.zeros(n))
    if not usable.any():
        return nobody
    if float(np.quantile(ratio[usable], 0.03)) > _ALL:
        return _everything(ratio, usable)
    if usable.sum() < 4:
        return nobody
    keep = np.flatnonzero(usable)
    logs = np.clip(np.log(ratio[keep]), -_WIDEST, _WIDEST)
    relative = None if errors is None else errors[keep] / ratio[keep]
    shapes = scales(logs, relative)
    seen = [c.take(keep) for c in columns]
    found = _search(seen, logs, shapes, options)
    if found is not None and _improved(found[3], float(found[1].mask(found[0]).mean())):
        # The others got faster, these stayed: what got faster is no evidence for or against a regression.
        model, inside = found[3], found[1].mask(found[0])
        logs = np.where(inside, logs, model.centre + model.shift)
        found = _search(seen, logs, shapes, options)
        if found is not None and _improved(found[3], float(found[1].mask(found[0]).mean())):
            found = None
    if found is None:
        return _spread_out(_by_outliers(seen, logs, shapes, options), keep, n)
    pool, union, candidates, model = found
    inside = union.mask(pool)
    posterior = _posterior(model.weight(logs), inside)
    told = assemble(pool, union, candidates, posterior > 0.5, posterior, options)
    by_name = {c.name: c for c in seen}
    measured = []
    for trigger in told.triggers:
        mine = terms_mask(trigger.terms, by_name, len(keep))
        measured.append(_with_effect(trigger, logs, mine, ~inside, shapes))
    return _spread_out(replace(told, triggers=tuple(measured)), keep, n)


def _search(
    columns: Sequence[Column], logs: Floats, shapes: Sequence[Floats], options: Options
) -> tuple[Pool, Union, list[Conjunction], RatioModel] | None:
    null = fit_groups(logs, None, shapes)
    starts = _starts(logs, shapes, null)
    rows, boost = _sampled(starts[0].weight(logs), options)
    pool = build_pool([c.take(rows) for c in columns], len(rows), _share(starts[0].weight(logs))[rows])
    if not len(pool):
        return None
    found: list[tuple[float, Union, list[Conjunction], RatioModel]] = []
    for start in starts:
        model = before = start
        union: Union | None = None
        candidates: list[Conjunction] = []
        for _ in range(3):
            scorer = Scorer.of_weights(model.weight(logs)[rows] * boost)
            if union is None or _moved(before, model):
                candidates = conjunctions(pool, scorer)
                union = find(pool, scorer, candidates, _NEEDS)
                if union is None:
                    break
            else:
                union = refit(pool, scorer, union.parts)
            before = model
            model = fit_groups(logs, _inside(pool, union, columns, len(logs)), shapes)
            if model.shift < _SMALLEST:
                break
            found.append((model.fit - null.fit - sum(p.cost for p in union.parts), union, candidates, model))
            if len(found) > 1 and found[-1][1].atoms == found[-2][1].atoms:
                break
        if found and max(f[0] for f in found) > _SURE:
            break
    if not found:
        return None
    gained, union, candidates, model = max(found, key=lambda f: f[0])
    if len(rows) < len(logs):
        weight = model.weight(logs)
        pool, union, candidates = in_full(columns, pool, union, candidates, Scorer.of_weights(weight), _share(weight))
        model = fit_groups(logs, union.mask(pool), shapes)
        gained = model.fit - null.fit - sum(p.cost for p in union.parts)
    return (pool, union, candidates, model) if gained >= _FITTED_NEEDS and model.shift >= _SMALLEST else None


def _starts(logs: Floats, shapes: Sequence[Floats], null: RatioModel) -> list[RatioModel]:
    """Models to begin with: the best mixture of two unknown groups, then few rows shifted by a little, then half."""
    mixed = [mixture(logs, shapes[-1], tail, share) for tail in (3.0, 60.0) for share in (0.05, 0.3, 0.7)]
    mixed = [m for m in mixed if m.shift >= _SMALLEST]
    starts = [max(mixed, key=lambda m: m.fit)] if mixed else []
    spread = float(np.median(null.scale))
    return [
        *starts,
        replace(null, shift=2 * spread),
        replace(null, centre=null.centre - spread, shift=2 * spread, scale=null.scale * 0.75),
    ]


def _improved(model: RatioModel, share: float) -> bool:
    """True where the shift is that of rows which got faster against the ``share`` of rows that stayed as they were."""
    inside = model.centre + model.shift
    if share > 0.5:
        return model.centre < 0 and -model.centre > abs(inside)
    return inside < _SMALLEST and model.centre < -_DRIFT


def _moved(old: RatioModel, new: RatioModel) -> bool:
    """True where weights differ so much that another trigger may be the best."""
    spread = float(np.median(new.scale))
    return abs(old.centre - new.centre) > 0.25 * spread or abs(old.shift - new.shift) > 0.5 * spread


def _inside(pool: Pool, union: Union, columns: Sequence[Column], n: int) -> Bools:
    """Rows (n,) of the whole table inside ``union``, which was found in a sample of it."""
    if pool.n == n:
        return union.mask(pool)
    by_name = {c.name: c for c in columns}
    out = np.zeros(n, dtype=np.bool_)
    for part in union.parts:
        out |= terms_mask([pool.term(a) for a in part.atoms], by_name, n)
    return out


def _sampled(weight: Floats, options: Options) -> tuple[Ints, Floats]:
    """Rows that are searched (ascending) and how many rows each stands for: those that speak for a regression first."""
    n = len(weight)
    if n <= options.max_rows:
        return np.arange(n), np.ones(n)
    rng = np.random.default_rng(options.seed)
    boost = np.ones(n)
    chosen: list[Ints] = []
    speaks, silent = np.flatnonzero(weight > 0), np.flatnonzero(weight <= 0)
    for group, most in ((speaks, options.max_rows // 2), (silent, options.max_rows - options.max_rows // 2)):
        some = rng.permutation(group)[:most]
        boost[some] = len(group) / max(1, len(some))
        chosen.append(some)
    rows = np.sort(np.concatenate(chosen))
    return rows, boost[rows]


def _share(weight: Floats) -> Floats:
    """Weights of evidence as shares between 0 and 1."""
    out: Floats = 1 / (1 + np.exp(-np.clip(weight, -30, 30)))
    return out


def _posterior(weight: Floats, inside: Bools) -> Floats:
    """How surely each row (n,) is regressed: its own evidence, and how many are among the rows ``inside`` a trigger and
    among the others, which is learnt from them all."""
    out = np.where(inside, 0.9, 0.02)
    for _ in range(20):
        for group in (inside, ~inside):
            count = int(group.sum())
            if count:
                share = (float(out[group].sum()) + 0.02) / (count + 0.04)
                out[group] = _share(weight[group] + math.log(share / (1 - share)))
    return out


def _by_outliers(columns: Sequence[Column], logs: Floats, shapes: Sequence[Floats], options: Options) -> Explanation:
    """Where no common shift explains the table: triggers of the rows that chance would not have given, by label.

    One cause may cost combinations anything from a little to a multiple, and where rows are few that spread passes for
    noise. Labels forget how much; a scale by the median deviation is not moved by the few.
    """
    shape = shapes[-1]
    scale = _median_scale(logs, shape)
    posterior = _outliers(logs, float(np.median(logs)), scale)
    told = explain_labels(columns, posterior > 0.5, options) if posterior.sum() >= _FEW else None
    if told is None or not told.triggers:
        null = fit_groups(logs, None, shapes)
        posterior = _outliers(logs, null.centre, null.scale)
        return assemble(Pool(len(logs)).close(), None, [], posterior > 0.5, posterior, options)
    by_name = {c.name: c for c in columns}
    masks = [terms_mask(t.terms, by_name, len(logs)) for t in told.triggers]
    outside = ~np.any(masks, axis=0)
    if not outside.any():
        return told
    pairs = zip(told.triggers, masks, strict=True)
    return replace(told, triggers=tuple(_with_effect(t, logs, m, outside, shapes) for t, m in pairs))


def _median_scale(logs: Floats, shape: Floats) -> Floats:
    """Noise per row (n,) by the median absolute deviation, in proportion to ``shape``."""
    off = np.abs(logs - np.median(logs)) / shape
    scale: Floats = 1.4826 * max(float(np.median(off)), 1e-9) * shape
    return scale


def _outliers(logs: Floats, centre: float, scale: Floats) -> Floats:
    """Rows (n,) whose ratio chance would not give even once in the table: 1, the others 0."""
    z = (logs - centre) / scale
    # A Student-t tail beyond z is at most this share, and never heavier than that of three degrees of freedom.
    tail = np.where(z > 0, 0.4 * (1 + z * z / 3) ** -1.5, 1.0)
    rare = (tail * len(logs) < 0.05) & (logs - centre > math.log(1.02))
    return rare.astype(np.float64)


def _everything(ratio: Floats, usable: Bools) -> Explanation:
    rows = tuple(map(int, np.flatnonzero(usable)))
    n = len(rows)
    logs = np.clip(np.log(ratio[usable]), -_WIDEST, _WIDEST)
    middle = float(np.median(logs))
    spread = 1.253 * float(np.std(logs)) / math.sqrt(n)
    interval = (_exp(middle - 1.96 * spread), _exp(middle + 1.96 * spread))
    trigger = Trigger((), "True", n, n, n, n, rows, (), _exp(middle), interval)
    return Explanation((trigger,), (), usable, usable.astype(np.float64))


def _with_effect(trigger: Trigger, logs: Floats, inside: Bools, outside: Bools, shapes: Sequence[Floats]) -> Trigger:
    """The shift of the rows ``inside`` this trigger against those ``outside`` all."""
    seen = inside | outside
    model = fit_groups(logs[seen], inside[seen], [s[seen] for s in shapes])
    error = 0.0
    for group in (inside[seen], ~inside[seen]):
        if group.any():
            # Information of a Student-t location, row by row.
            error += 1 / float((((model.tail + 1) / (model.tail + 3)) / model.scale[group] ** 2).sum())
    half = 1.96 * math.sqrt(error)
    interval = (_exp(model.shift - half), _exp(model.shift + half))
    return replace(trigger, effect=_exp(model.shift), effect_interval=interval)


def _exp(x: float) -> float:
    """Exponential without overflow."""
    return math.exp(min(max(x, -700.0), 700.0))


def _spread_out(told: Explanation, keep: Ints, n: int) -> Explanation:
    """Indices and arrays of the usable rows, put back among all rows."""
    regressed, posterior = np.zeros(n, dtype=np.bool_), np.zeros(n)
    regressed[keep], posterior[keep] = told.regressed, told.posterior
    triggers = tuple(
        replace(t, rows=_back(t.rows, keep), counter_examples=_back(t.counter_examples, keep), total=len(keep))
        for t in told.triggers
    )
    return Explanation(triggers, _back(told.unexplained, keep), regressed, posterior)


def _back(rows: tuple[int, ...], keep: Ints) -> tuple[int, ...]:
    return tuple(int(keep[r]) for r in rows)
