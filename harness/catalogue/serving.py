"""A serving loop in simulated time whose steps are real kernels: their measured durations move the clock.

Requests arrive as a seeded Poisson process, with prompt lengths from a mix; each step decodes one token for every
active request (dynamic batching, up to ``max_batch``). The kernels are handed in as one function of the active lengths.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .estimates import Estimate, quantile
from .traffic import Traffic, drawn

#: Decodes one token for requests with these numbers of valid keys.
Step = Callable[[Sequence[int]], None]


@dataclass
class Served:
    """Seconds of the step that gave each token, and from arrival to the first token."""

    token_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)

    def tails(self) -> dict[str, Estimate]:
        """P50, P95 and P99 of token latency and P99 of the first token's, with intervals."""
        found = {f"p{round(q * 100)}": quantile(self.token_s, q) for q in (0.5, 0.95, 0.99)}
        return found | {"first_p99": quantile(self.first_s, 0.99)}


def serve(
    step: Step, traffic: Traffic, *, max_batch: int = 8, clock: Callable[[], float] = time.perf_counter
) -> Served:
    """Run the loop until every request is done. ``clock`` times the steps: ``time.process_time`` leaves out what other
    processes take, where the kernels run in one thread."""
    arrivals, lengths = drawn(traffic)
    served, now, following = Served(), 0.0, 0
    active: list[list[int]] = []  # request, valid keys, tokens left
    while following < traffic.requests or active:
        while following < traffic.requests and len(active) < max_batch and arrivals[following] <= now:
            active.append([following, int(lengths[following]), traffic.new_tokens])
            following += 1
        if not active:
            now = float(arrivals[following])
            continue
        start = clock()
        step([n for _, n, _ in active])
        seconds = clock() - start
        now += seconds
        for one in active:
            if one[2] == traffic.new_tokens:
                served.first_s.append(now - float(arrivals[one[0]]))
            served.token_s.append(seconds)
            one[1], one[2] = one[1] + 1, one[2] - 1
        active = [one for one in active if one[2]]
    return served


def shapley(values: Mapping[frozenset[str], float]) -> dict[str, float]:
    """Each player's share of value(all) - value(none): its mean contribution over all orders of joining.

    ``ValueError`` where the value of a coalition is missing. The shares add up to the whole rise.
    """
    players = sorted(set().union(*values))
    n = len(players)
    missing = [set(c) for k in range(n + 1) for c in itertools.combinations(players, k) if frozenset(c) not in values]
    if missing:
        raise ValueError(f"no value for {missing}")
    shares = {}
    for player in players:
        others = [p for p in players if p != player]
        shares[player] = sum(
            math.factorial(k) * math.factorial(n - k - 1) / math.factorial(n)
            * (values[frozenset((*c, player))] - values[frozenset(c)])
            for k in range(n) for c in itertools.combinations(others, k)
        )  # fmt: skip
    return shares


@dataclass(frozen=True)
class Attribution:
    """P99 of token latency per set of faults, with intervals, and how the rise is shared, per repetition."""

    p99: dict[frozenset[str], Estimate]
    shares: list[dict[str, float]]

    @property
    def mean_shares(self) -> dict[str, float]:
        """Shares of the rise in seconds, mean over repetitions."""
        return {k: sum(s[k] for s in self.shares) / len(self.shares) for k in self.shares[0]}


def attribute(
    step_with: Callable[[frozenset[str]], Step], faults: Sequence[str], traffic: Traffic, *, repetitions: int = 3,
    max_batch: int = 8, clock: Callable[[], float] = time.perf_counter,
) -> Attribution:  # fmt: skip
    """Serve the same traffic under every subset of ``faults``; subsets take turns, so that a drift of the machine meets
    all alike. P99 pools the repetitions."""
    subsets = [frozenset(c) for k in range(len(faults) + 1) for c in itertools.combinations(faults, k)]
    pooled: dict[frozenset[str], list[float]] = {s: [] for s in subsets}
    steps = {s: step_with(s) for s in subsets}
    for step in steps.values():  # first calls pay for what is set up once
        serve(step, replace(traffic, requests=max_batch), max_batch=max_batch)
    shares = []
    for _ in range(repetitions):
        values = {}
        for subset in subsets:
            served = serve(steps[subset], traffic, max_batch=max_batch, clock=clock)
            pooled[subset] += served.token_s
            values[subset] = float(np.quantile(served.token_s, 0.99))
        shares.append(shapley(values))
    return Attribution({s: quantile(v, 0.99) for s, v in pooled.items()}, shares)
