"""Scores against a count by hand, and the search against all conjunctions there are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.explain import prior
from harness.explain.build import build_pool
from harness.explain.columns import encode_rows
from harness.explain.pool import Pool
from harness.explain.scoring import Scorer
from harness.explain.search import conjunctions, mask_of, score_of
from harness.explain.terms import Term
from harness.explain.union import find, union_of

from . import oracle


def random_pool(rng: np.random.Generator, n: int, atoms: int) -> Pool:
    pool = Pool(n)
    masks = rng.random((atoms, n)) < rng.uniform(0.2, 0.8, (atoms, 1))
    costs = rng.uniform(3, 9, atoms)

    def named(i: int) -> list[Any]:
        return [(float(costs[i]), lambda: Term("column", (f"c{i}",), "==", 1))]

    pool.add(masks, [named(i) for i in range(atoms)])
    pool.end_of_simple()
    return pool.close()


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=4, max_size=60))
def test_label_evidence_is_the_marginal_likelihood(rows: list[tuple[bool, bool]]) -> None:
    inside, regressed = (list(x) for x in zip(*rows, strict=True))
    scorer = Scorer.of_labels(np.array(regressed))
    got = scorer.of_mask(np.array(inside))
    n1, k1, k = sum(inside), sum(i and r for i, r in rows), sum(regressed)
    if k1 * len(rows) <= k * n1:
        assert got < -1e6  # regressions are not more frequent inside
    else:
        assert got == pytest.approx(oracle.label_evidence(inside, regressed, 6.0), abs=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_settled_rows_count_as_inside(seed: int) -> None:
    rng = np.random.default_rng(seed)
    regressed, first, second = (rng.random(80) < p for p in (0.4, 0.3, 0.3))
    for scorer in (Scorer.of_labels(regressed), Scorer.of_weights(rng.normal(size=80))):
        assert scorer.outside(first).of_mask(second) == pytest.approx(scorer.of_mask(first | second), abs=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_the_beam_finds_what_trying_everything_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool = random_pool(rng, 120, 14)
    truth = mask_of(pool, rng.choice(14, int(rng.integers(1, 4)), replace=False).tolist())
    regressed = truth ^ (rng.random(120) < 0.1)
    scorer = Scorer.of_labels(regressed) if seed % 2 else Scorer.of_weights(np.where(regressed, 2.0, -2.0))
    every = [score_of(pool, scorer, c).score for k in (1, 2, 3) for c in itertools.combinations(range(14), k)]
    assert conjunctions(pool, scorer)[0].score == pytest.approx(max(every), abs=1e-3)


def test_large_tables_count_exactly() -> None:
    rng = np.random.default_rng(0)
    regressed = rng.random(9000) < 0.4
    scorer = Scorer.of_labels(regressed)
    assert scorer.table is None
    masks = rng.random((3, 9000)) < 0.5
    masks[0] |= regressed
    got = scorer.gain(masks.astype(np.float32))
    assert got[0] == pytest.approx(oracle.label_evidence(masks[0].tolist(), regressed.tolist(), 6.0), rel=1e-9)


def test_two_causes_are_told_apart_from_their_umbrella() -> None:
    rows = [{"a": a, "b": b, "c": c, "d": d} for a in range(4) for b in range(4) for c in range(4) for d in range(4)]
    regressed = np.array([(r["a"] == 1 and r["b"] == 2) or (r["c"] == 3 and r["d"] == 0) for r in rows])
    pool = build_pool(encode_rows(rows), len(rows), regressed.astype(float))
    found = find(pool, Scorer.of_labels(regressed))
    assert found is not None
    assert len(found.parts) == 2
    assert (found.mask(pool) == regressed).all()
    assert found.score == pytest.approx(union_of(pool, Scorer.of_labels(regressed), found.parts).score)


def test_description_lengths_are_those_of_a_distribution() -> None:
    """Costs that summed to more than one would find triggers in anything."""
    rng = np.random.default_rng(1)
    rows = [
        {"backend": "abcd"[rng.integers(4)], "batch": int(2 ** rng.integers(6)), "kv_len": int(rng.integers(1, 4000)),
         "q_len": int(rng.choice([1, 4, 17, 512])), "causal": bool(rng.integers(2))}
        for _ in range(300)
    ]  # fmt: skip
    pool = build_pool(encode_rows(rows), 300, np.zeros(300))
    assert 0.3 < float(np.exp(-pool.cost).sum()) < 1.3


@settings(max_examples=30)
@given(st.integers(2, 256), st.data())
def test_known_moduli_are_the_cheapest(number: int, data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(prior.KNOWN_MODULI))
    if number not in prior.KNOWN_MODULI:
        assert prior.modulus(known) < prior.modulus(number)
