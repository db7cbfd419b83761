"""What an explanation says."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .columns import Bools, Floats
from .terms import Term


@dataclass(frozen=True)
class Options:
    """``max_rows`` are searched; a larger table is searched in a stratified sample and judged in full.
    ``alternatives`` is the most that are listed for one trigger; ``seed`` fixes the sample."""

    max_rows: int = 2000
    alternatives: int = 24
    seed: int = 0


def evidence(regressed_inside: int, inside: int, regressed_total: int, total: int) -> str:
    """The counts of a trigger as people read them, for and against."""
    outside = regressed_total - regressed_inside
    return f"{regressed_inside} of {inside} regressed inside, {outside} of {total - inside} outside"


@dataclass(frozen=True)
class Trigger:
    """One conjunction of terms that sets regressions off.

    ``rows`` are the indices of regressed rows inside, ``counter_examples`` those of rows inside that did not regress.
    ``effect`` is the ratio inside over the ratio outside, with its 95 % interval; None for labels.
    ``alternatives`` are texts that the data cannot tell from ``text``, likeliest first; ``rivals`` the same as terms.
    ``score`` is the evidence in nats left after the description is paid for.
    """

    terms: tuple[Term, ...]
    text: str
    regressed_inside: int
    inside: int
    regressed_total: int
    total: int
    rows: tuple[int, ...]
    counter_examples: tuple[int, ...] = ()
    effect: float | None = None
    effect_interval: tuple[float, float] | None = None
    alternatives: tuple[str, ...] = ()
    rivals: tuple[tuple[Term, ...], ...] = ()
    score: float = 0.0


@dataclass(frozen=True, eq=False)
class Explanation:
    """``triggers`` in order of what they explain; ``unexplained`` are indices of regressed rows outside all of them.
    ``regressed`` (n,) is what counted as regressed, ``posterior`` (n,) how surely."""

    triggers: tuple[Trigger, ...] = ()
    unexplained: tuple[int, ...] = ()
    regressed: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    posterior: Floats = field(default_factory=lambda: np.zeros(0))
