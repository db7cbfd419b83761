"""Simulated nights through what ``attnwatch nightly`` does: its screens, then base and head interleaved.

Values and pairs are simulated, and labelled so wherever they are shown; screens, test and options are the judge's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.ab import LEAST_PAIRS, LOOK_EVERY
from harness.detection.sequential import SequentialOptions, decide
from harness.judge.confirm import FALSE_ALARMS
from harness.judge.suspects import judge_values
from harness.model import VerdictKind
from harness.policy import DEFAULT_EFFECT

from .nights import KINDS, Array, Count, noise, suite

#: Standard error of a night's value within its run; the noise from night to night is what the kinds say.
_WITHIN = 0.003


@dataclass(frozen=True)
class Nights:
    """Over so many series-nights without any change: adverse suspects, those kept after interleaving, and series that
    were called noisier."""

    suspects: Count
    kept: Count
    noisier: Count
    pairs: float

    def __add__(self, other: Nights) -> Nights:
        return Nights(self.suspects + other.suspects, self.kept + other.kept, self.noisier + other.noisier, self.pairs)


def mixed(series: int, nights: int, rng: np.random.Generator) -> tuple[Array, list[str]]:
    """A suite whose quarters have the four kinds of noise; values on the log scale, and the kind of each series."""
    parts = [suite(kind, series // 4, nights, rng) for kind in KINDS]
    return np.concatenate(parts), [kind for kind, p in zip(KINDS, parts, strict=True) for _ in range(len(p))]


def unchanged(
    x: Array, kinds: list[str], history: int, seed: int, say: Callable[[str], None] = lambda text: None
) -> Nights:
    """Judge ``x`` [series, nights] (log values, nothing changes) after each night from ``history`` on."""
    rng = np.random.default_rng(seed)
    suspects = kept = noisier = 0
    took: list[int] = []
    for n in range(history + 1, x.shape[1] + 1):
        values = np.exp(x[:, :n])
        told, _, wider = judge_values(
            values, np.full(values.shape, _WITHIN), np.zeros(n), 1.0, ["all"] * len(x), DEFAULT_EFFECT
        )
        adverse = [i for i, s in told.items() if s.adverse]
        rule = SequentialOptions(alpha=FALSE_ALARMS, relevant=DEFAULT_EFFECT, family=max(len(adverse), 1))
        verdicts = [_interleaved(kinds[i], rule, rng) for i in adverse]
        took += [pairs for _, pairs in verdicts]
        kept += sum(verdict is VerdictKind.SLOWER for verdict, _ in verdicts)
        suspects, noisier = suspects + len(adverse), noisier + len(wider)
        say(f"night {n - history}: {suspects} suspects so far, {kept} kept")
    total = len(x) * (x.shape[1] - history)
    return Nights(
        Count(suspects, total), Count(kept, total), Count(noisier, total), float(np.median(took)) if took else 0.0
    )


def _interleaved(kind: str, rule: SequentialOptions, rng: np.random.Generator) -> tuple[VerdictKind | None, int]:
    """Pairs without a difference until the test of ``harness.ab`` settles; samples scatter as nights do."""
    base, head = noise(kind, 2, rule.futile, rng)
    for pairs in range(LEAST_PAIRS, rule.futile + 1, LOOK_EVERY):
        told = decide(np.exp(base[:pairs]), np.exp(head[:pairs]), rule)
        if told.verdict is not None:
            return told.verdict, pairs
    return None, rule.futile


def wider(kind: str, fold: float, within: int, seed: int, *, series: int = 300, planted: int = 10) -> Count:
    """Series whose noise grows ``fold`` times after 60 nights: how many are told within so many nights."""
    x = suite(kind, series, 60 + within, np.random.default_rng(seed))
    level = np.median(x[:planted], axis=1, keepdims=True)
    x[:planted, 60:] = level + fold * (x[:planted, 60:] - level)
    seen: set[int] = set()
    for n in range(63, 60 + within + 1):
        values = np.exp(x[:, :n])
        _, _, told = judge_values(values, np.full(values.shape, np.nan), np.zeros(n), 1.0, [], DEFAULT_EFFECT)
        seen |= {i for i in told if i < planted}
    return Count(len(seen), planted)


def to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
