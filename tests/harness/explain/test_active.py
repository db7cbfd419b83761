"""Active confirmation: the rows chosen separate what the table left open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.explain import explain
from harness.explain.active import Answer, candidates, confirm, next_rows, proposals, refine, settled
from harness.explain.columns import encode
from harness.explain.spread import off_grid_values, variants
from harness.explain.terms import Term
from harness.model.expr import compile_expr

from .test_recovery import table

TRUTHS = ["kv_len % 64 != 0 and q_len == 1", "q_len <= 3 and causal", "batch >= 32", "kv_len % 128 != 0"]


@pytest.mark.slow
@pytest.mark.parametrize("truth", TRUTHS)
def test_settles_on_the_truth_beyond_the_sweep(truth: str) -> None:
    rows, hit = table(truth, 500, 1)
    test = compile_expr(truth)
    remain, answers = confirm(explain(rows, hit), rows, lambda asked: [test(r) for r in asked])
    assert len(answers) <= 12
    found = compile_expr(remain[0][0].text)
    for kv_len in (1153, 1152, 1088, 192, 320, 129, 4097, 640):
        for q_len in (1, 2, 3, 5):
            for batch in (2, 17, 32, 33):
                row = {**rows[0], "kv_len": kv_len, "q_len": q_len, "batch": batch}
                assert found(row) == test(row), (found.text, row)


@pytest.mark.slow
def test_candidates_agree_on_the_table_and_the_chosen_row_splits_them() -> None:
    rows, hit = table("q_len == 1 and kv_len % 128 != 0", 400, 2)
    (trigger,) = explain(rows, hit).triggers
    open_ = candidates(trigger, rows)
    assert len(open_) > 5
    assert open_[0].text == trigger.text
    for c in open_[:40]:
        assert [c.holds(r) for r in rows] == hit.tolist(), c.text
    offered = proposals(trigger, open_, rows)
    assert not settled(open_, offered)
    (row,) = next_rows(open_, offered, 1)
    answers = {c.holds(row) for c in open_}
    assert answers == {True, False}
    left = refine(open_, [Answer(row, open_[0].holds(row))] * 4)
    assert len(left) < len(open_)


def test_rows_that_cannot_run_are_not_offered() -> None:
    rows, hit = table("kv_len % 128 != 0", 300, 3)
    (trigger,) = explain(rows, hit).triggers
    offered = proposals(trigger, candidates(trigger, rows), rows, lambda r: r["kv_len"] < 2000)
    assert offered
    assert all(r["kv_len"] < 2000 for r in offered)


def test_a_wrong_answer_does_not_decide() -> None:
    rows, hit = table("q_len == 1", 300, 4)
    (trigger,) = explain(rows, hit).triggers
    open_ = candidates(trigger, rows)
    wrong = Answer({**rows[0], "q_len": 1}, False)
    assert any(c.text == "q_len == 1" for c in refine(open_, [wrong]))


def test_off_grid_values_are_new_and_in_range() -> None:
    column = encode("kv_len", [64, 127, 1024, 2048, None])
    assert column is not None
    values = off_grid_values(column, [Term("residue", ("kv_len",), "!=", 0, 128)])
    assert values
    assert not set(values) & {64, 127, 1024, 2048}
    assert min(values) >= 1
    assert any(v % 128 == 0 for v in values)
    assert any(v % 128 == 64 for v in values)
    text = encode("backend", ["a", "b"])
    assert text is not None
    assert off_grid_values(text, []) == []


def test_variants_keep_the_truth_on_tested_values() -> None:
    cells: list[Any] = [1, 4, 17, 512, 1, 4]
    column = encode("q_len", cells)
    assert column is not None
    term = Term("column", ("q_len",), "==", 1)
    found = variants((term,), {"q_len": column})
    texts = {t[0].text for t, _ in found}
    assert {"q_len == 1", "q_len < 4", "q_len <= 2"} <= texts
    for (one,), _ in found:
        assert [one.holds({"q_len": c}) for c in cells] == [c == 1 for c in cells], one.text


def test_nothing_to_ask_where_one_remains() -> None:
    rows, hit = table("causal", 200, 5)
    told = explain(rows, hit)
    remain, answers = confirm(told, rows, lambda asked: np.zeros(len(asked), dtype=bool).tolist())
    assert remain[0][0].text == "causal"
    assert len(answers) <= 4
