"""Whole tables: the cause is named, noise is not."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from harness.explain import Explanation, Options, explain
from harness.model.expr import compile_expr

from .oracle import evaluate

GRID: dict[str, list[Any]] = {
    "backend": ["sdpa_flash", "flash_attn", "xformers"],
    "dtype": ["float16", "bfloat16"],
    "batch": [1, 3, 16, 64],
    "heads_q": [8, 12, 32],
    "heads_kv": [1, 4, 8],
    "q_len": [1, 4, 512],
    "kv_len": [64, 127, 1000, 1024, 1025, 2048, 4096],
    "causal": [False, True],
}
PREDICATES = [
    "backend == 'flash_attn' and q_len == 1 and kv_len % 128 != 0",
    "batch * heads_q > 256",
    "heads_q % heads_kv != 0",
    "backend != 'xformers' and kv_len > 1024",
    "(q_len == 4 and causal) or heads_q == 12",
    "q_len > kv_len",
]


def table(predicate: str, n: int, seed: int) -> tuple[list[dict[str, Any]], np.ndarray[Any, np.dtype[np.bool_]]]:
    rng = np.random.default_rng(seed)
    rows = [{k: v[int(rng.integers(len(v)))] for k, v in GRID.items()} for _ in range(n)]
    test = compile_expr(predicate)
    return rows, np.array([test(r) for r in rows])


def said(told: Explanation) -> str:
    return " or ".join(f"({t.text})" for t in told.triggers) or "False"


def exact(told: Explanation, predicate: str) -> bool:
    a, b = compile_expr(predicate), compile_expr(said(told))
    used = sorted(a.names | b.names)
    points = (dict(zip(used, p, strict=True)) for p in itertools.product(*(GRID[c] for c in used)))
    return all(a(p) == b(p) for p in points)


@pytest.mark.parametrize("predicate", PREDICATES)
def test_clean_and_noisy_labels(predicate: str) -> None:
    rows, truth = table(predicate, 600, 1)
    told = explain(rows, truth)
    assert exact(told, predicate), said(told)
    assert not told.unexplained
    for t in told.triggers:
        assert t.regressed_inside == t.inside == len(t.rows)
        assert not t.counter_examples
    flipped = np.random.default_rng(2).random(600) < 0.05
    told = explain(rows, truth ^ flipped)
    assert exact(told, predicate), said(told)


@pytest.mark.parametrize("predicate", PREDICATES[::2])
@pytest.mark.parametrize("kind", ["gauss", "t3"])
def test_ratios(predicate: str, kind: str) -> None:
    rows, truth = table(predicate, 600, 3)
    rng = np.random.default_rng(4)
    noise = 0.02 * (rng.standard_normal(600) if kind == "gauss" else rng.standard_t(3, 600))
    told = explain(rows, ratio=np.exp(noise + math.log(1.1) * truth))
    assert exact(told, predicate), said(told)
    for t in told.triggers:
        assert t.effect is not None
        assert t.effect_interval is not None
        assert t.effect_interval[0] < 1.1 < t.effect_interval[1] or abs(t.effect - 1.1) < 0.01


def test_small_effect_among_most_rows() -> None:
    """Where most rows are slower, the middle of the table is not the base."""
    rows, truth = table("kv_len % 128 != 0 or q_len == 1", 700, 5)
    assert truth.mean() > 0.55
    noise = 0.02 * np.random.default_rng(6).standard_normal(700)
    told = explain(rows, ratio=np.exp(noise + math.log(1.05) * truth))
    assert exact(told, "kv_len % 128 != 0 or q_len == 1"), said(told)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["labels", "gauss", "t3", "understated", "shift", "spikes"])
def test_nothing_is_said_of_noise(kind: str) -> None:
    for seed in range(3):
        rows, _ = table("True", 500, 10 + seed)
        rng = np.random.default_rng(20 + seed)
        if kind == "labels":
            told = explain(rows, rng.random(500) < 0.2)
        else:
            noise = 0.02 * (rng.standard_normal(500) if kind in ("gauss", "shift") else rng.standard_t(3, 500))
            if kind == "spikes":  # seen on shared machines: a row in twelve far off, for no reason
                noise += np.where(rng.random(500) < 0.08, rng.exponential(0.5, 500), 0.0)
            se = np.full(500, 0.02 / 1.5) if kind == "understated" else None
            told = explain(rows, ratio=np.exp(noise + (0.04 if kind == "shift" else 0.0)), ratio_se=se)
        assert not told.triggers, said(told)


def test_a_cause_is_found_among_spikes() -> None:
    rows, truth = table("kv_len % 128 != 0 and q_len == 1", 700, 5)
    rng = np.random.default_rng(8)
    noise = 0.02 * rng.standard_normal(700) + np.where(rng.random(700) < 0.05, rng.exponential(0.5, 700), 0.0)
    told = explain(rows, ratio=np.exp(noise + math.log(1.15) * truth))
    assert exact(told, "kv_len % 128 != 0 and q_len == 1"), said(told)


def test_all_and_none() -> None:
    rows, _ = table("True", 40, 0)
    assert explain(rows, [False] * 40).triggers == ()
    (every,) = explain(rows, [True] * 40).triggers
    assert every.text == "True"
    assert every.regressed_inside == every.total == 40
    (every,) = explain(rows, ratio=[1.3] * 40).triggers
    assert every.text == "True"
    assert explain(rows, ratio=[1.02] * 40).triggers == ()


@pytest.mark.parametrize("regressed", [True, False])
def test_one_row(regressed: bool) -> None:
    told = explain([{"a": 1}], [regressed])
    assert [t.text for t in told.triggers] == (["True"] if regressed else [])
    assert explain([{"a": 1}], ratio=[1.01]).triggers == ()


def test_columns_that_say_nothing_do_no_harm() -> None:
    rows, truth = table(PREDICATES[0], 500, 7)
    rng = np.random.default_rng(8)
    for i, row in enumerate(rows):
        row.update(constant=3, unique=i, name=f"case-{i}", real=float(rng.random()), empty=None)
    told = explain(rows, truth)
    assert [t.text for t in told.triggers] == [PREDICATES[0]]


@pytest.mark.slow
def test_two_hundred_columns() -> None:
    rows, truth = table(PREDICATES[0], 300, 9)
    rng = np.random.default_rng(10)
    wide = [{**row, **{f"x{i}": int(rng.integers(5)) for i in range(192)}} for row in rows]
    assert said(explain(wide, truth)) == f"({PREDICATES[0]})"


def test_missing_cells_mixed_types_and_odd_names() -> None:
    rng = np.random.default_rng(11)
    rows: list[dict[str, Any]] = [
        {"kv len": [None, 100, 128, 300, 1024][rng.integers(5)], "class": ["x", 1, None, True][rng.integers(4)],
         "it's": ["yes", "0", "true", "1"][rng.integers(4)]}
        for _ in range(200)
    ]  # fmt: skip
    truth = [r["kv len"] is not None and r["kv len"] % 128 != 0 and r["class"] == "x" for r in rows]
    told = explain(rows, truth)
    (trigger,) = told.triggers
    assert trigger.text == "col['class'] == 'x' and col['kv len'] != None and col['kv len'] % 128 != 0"
    assert [evaluate(trigger.text, r) for r in rows] == truth
    for text in trigger.alternatives:
        assert [evaluate(text, r) for r in rows] == truth


def test_duplicates_that_disagree() -> None:
    rows, truth = table("q_len == 1", 300, 12)
    twice = [*rows, *rows[:20]]
    told = explain(twice, [*truth.tolist(), *(not t for t in truth[:20])])
    assert [t.text for t in told.triggers] == ["q_len == 1"]


def test_alternatives_are_those_that_rows_cannot_tell() -> None:
    rows, truth = table("q_len == 1", 300, 13)
    (trigger,) = explain(rows, truth).triggers
    assert "q_len < 4" in trigger.alternatives
    assert trigger.text not in trigger.alternatives
    assert len(set(trigger.alternatives)) == len(trigger.alternatives) <= Options().alternatives
    for text in trigger.alternatives:
        assert [evaluate(text, r) for r in rows] == truth.tolist()


def test_large_tables_are_sampled_and_judged_in_full() -> None:
    for ratio in (False, True):
        rows, truth = table(PREDICATES[0], 4000, 14)
        noise = 0.02 * np.random.default_rng(15).standard_normal(4000)
        options = Options(max_rows=800)
        if ratio:
            told = explain(rows, ratio=np.exp(noise + 0.1 * truth), options=options)
        else:
            told = explain(rows, truth, options=options)
            assert told.triggers[0].regressed_inside == truth.sum()
        assert told.triggers[0].total == 4000
        assert exact(told, PREDICATES[0]), said(told)


def test_the_order_of_rows_does_not_matter() -> None:
    rows, truth = table(PREDICATES[4], 300, 16)
    order = np.random.default_rng(17).permutation(300)
    assert said(explain(rows, truth)) == said(explain([rows[i] for i in order], truth[order]))


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="regressed has 2 entries for 1 rows"):
        explain([{"a": 1}], [True, False])
    with pytest.raises(ValueError, match="either"):
        explain([{"a": 1}])
