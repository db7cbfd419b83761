"""Which combinations to measure next, so that one explanation remains.

Predicates that agree on every tested row may differ on rows that were not tested: other corners of the grid, and values
that no column has had, as 1153 tells ``% 128`` from ``% 64``. ``candidates`` gathers what the data leaves open,
``next_rows`` picks the rows on which they disagree most, ``refine`` weighs the answers. Nothing here measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .columns import Column, Floats, encode_rows
from .result import Explanation, Trigger
from .spread import off_grid_values, variants
from .terms import Term, join

Row = Mapping[str, Any]
#: True where a combination can be measured at all.
Allowed = Callable[[Row], bool]

#: How often an answer is wrong, unless the caller knows better.
NOISE = 0.03
#: Share of belief at which one candidate has won.
SETTLED = 0.95
_MOST = 400


@dataclass(frozen=True)
class Candidate:
    """One explanation that may be true; ``belief`` are its nats, comparable among candidates only."""

    terms: tuple[Term, ...]
    belief: float

    @property
    def text(self) -> str:
        """The candidate as an expression."""
        return join(self.terms)

    def holds(self, row: Row) -> bool:
        """Its prediction for a combination."""
        return all(t.holds(row) for t in self.terms)


@dataclass(frozen=True)
class Answer:
    """A combination that was measured, and how it came out."""

    row: Row
    regressed: bool


def candidates(trigger: Trigger, rows: Sequence[Row], most: int = _MOST) -> list[Candidate]:
    """What the data leaves open about ``trigger``: itself, its rivals, and its terms with other moduli, limits and
    sets that agree on the values of ``rows``; likeliest first."""
    columns = {c.name: c for c in encode_rows(rows)}
    found: dict[str, Candidate] = {}
    for terms in (trigger.terms, *trigger.rivals):
        for changed, cost in variants(terms, columns):
            text = join(changed)
            if text not in found or -cost > found[text].belief:
                found[text] = Candidate(changed, -cost)
    ranked = sorted(found.values(), key=lambda c: -c.belief)
    return ranked[:most]


def proposals(
    trigger: Trigger, open_: Sequence[Candidate], rows: Sequence[Row], allowed: Allowed | None = None, most: int = 600,
    seed: int = 0,
) -> list[dict[str, Any]]:  # fmt: skip
    """Combinations worth measuring: rows of the table with the columns that candidates read set to other tested
    values, and to values outside the sweep. ``allowed`` leaves out what cannot run."""
    columns = {c.name: c for c in encode_rows(rows)}
    used = list(dict.fromkeys(c for cand in open_ for t in cand.terms for c in t.columns))
    values = {c: _values(columns[c], open_) for c in used if c in columns}
    rng = np.random.default_rng(seed)
    inside = [rows[i] for i in trigger.rows] or list(rows)
    out: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}

    def put(row: dict[str, Any]) -> None:
        if allowed is None or allowed(row):
            out.setdefault(tuple((k, repr(v)) for k, v in row.items()), row)

    bases = [dict(inside[int(i)]) for i in rng.permutation(len(inside))[:6]]
    for base in bases:
        for c, options in values.items():
            for value in options:
                put({**base, c: value})
    names = list(values)
    while names and len(out) < most and rng.random() > 1e-3:
        row = dict(inside[int(rng.integers(len(inside)))])
        for c in rng.permutation(names)[:2]:
            row[str(c)] = values[str(c)][int(rng.integers(len(values[str(c)])))]
        put(row)
    return list(out.values())[:most]


def next_rows(open_: Sequence[Candidate], offered: Sequence[Row], count: int = 4, noise: float = NOISE) -> list[Row]:
    """Up to ``count`` of the ``offered`` combinations that tell most about which candidate is true, each chosen given
    the ones before it. Empty where all candidates agree on everything offered."""
    if not offered or len(open_) < 2:
        return []
    truth = np.array([[c.holds(r) for r in offered] for c in open_], dtype=np.float64)
    groups: Floats = _shares(open_)[None, :]
    chosen: list[Row] = []
    for _ in range(count):
        gain = np.sum([_information(g, truth, noise) for g in groups], axis=0)
        best = int(np.argmax(gain))
        if gain[best] < 1e-3:
            break
        chosen.append(offered[best])
        likely = np.where(truth[:, best] > 0, 1 - noise, noise)
        # What would be believed after either answer; more than a few splits are not looked ahead.
        groups = np.concatenate([groups * likely, groups * (1 - likely)])[:16]
    return chosen


def refine(open_: Sequence[Candidate], answers: Sequence[Answer], noise: float = NOISE) -> list[Candidate]:
    """Candidates with beliefs after ``answers``, likeliest first; those beyond doubt out are left out."""
    weighed = []
    for c in open_:
        right = sum(c.holds(a.row) == a.regressed for a in answers)
        wrong = len(answers) - right
        weighed.append(replace(c, belief=c.belief + right * math.log(1 - noise) + wrong * math.log(noise)))
    weighed.sort(key=lambda c: -c.belief)
    return [c for c in weighed if c.belief > weighed[0].belief - 12.0]


def settled(open_: Sequence[Candidate], offered: Sequence[Row]) -> bool:
    """True where one truth remains: nearly all belief lies on candidates that agree on everything offered."""
    if len(open_) < 2:
        return True
    first = open_[0]
    agree = np.array([all(c.holds(r) == first.holds(r) for r in offered) for c in open_])
    return float(_shares(open_)[agree].sum()) >= SETTLED


def confirm(
    told: Explanation, rows: Sequence[Row], measure: Callable[[Sequence[Row]], Sequence[bool]], *, budget: int = 12,
    batch: int = 4, allowed: Allowed | None = None, noise: float = NOISE,
) -> tuple[list[list[Candidate]], list[Answer]]:  # fmt: skip
    """Drive the loop for all triggers of ``told``: propose, ``measure``, refine, until each is settled or ``budget``
    measurements are spent. Candidates per trigger, likeliest first, and all answers."""
    remain: list[list[Candidate]] = []
    answers: list[Answer] = []
    for at, trigger in enumerate(told.triggers):
        mine = candidates(trigger, rows)
        others = [t.terms for i, t in enumerate(told.triggers) if i != at]

        def free(row: Row, others: Sequence[tuple[Term, ...]] = others) -> bool:
            # Where another trigger holds, a regression says nothing about this one.
            hidden = any(all(t.holds(row) for t in terms) for terms in others)
            return not hidden and (allowed is None or allowed(row))

        allowance = (budget - len(answers)) // (len(told.triggers) - at)
        spent = 0
        while spent < allowance:
            offered = proposals(trigger, mine, rows, free, seed=spent)
            if settled(mine, offered):
                break
            picked = next_rows(mine, offered, min(batch, allowance - spent), noise)
            if not picked:
                break
            new = [Answer(r, bool(y)) for r, y in zip(picked, measure(picked), strict=True)]
            answers += new
            spent += len(new)
            mine = refine(mine, new, noise)
        remain.append(mine)
    return remain, answers


def _values(column: Column, open_: Sequence[Candidate]) -> list[Any]:
    terms = [t for c in open_ for t in c.terms if column.name in t.columns]
    return [*column.values, *off_grid_values(column, terms)]


def _shares(open_: Sequence[Candidate]) -> Floats:
    nats = np.array([c.belief for c in open_])
    weights = np.exp(nats - nats.max())
    out: Floats = weights / weights.sum()
    return out


def _information(share: Floats, truth: Floats, noise: float) -> Floats:
    """Expected nats (offered,) that each answer gives about the candidates; ``share`` need not sum to one."""
    mass = float(share.sum())
    if mass < 1e-9:
        return np.zeros(truth.shape[1])
    yes = (share / mass) @ truth
    p = yes * (1 - noise) + (1 - yes) * noise
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p))
    known = -(noise * math.log(noise) + (1 - noise) * math.log(1 - noise))
    out: Floats = mass * (entropy - known)
    return out
