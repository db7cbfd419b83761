"""A trigger's text is the trigger: it evaluates, agrees with the mask, and raises on nothing."""

from __future__ import annotations

import keyword
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.explain.build import build_pool
from harness.explain.columns import encode_rows
from harness.explain.evaluate import term_mask
from harness.explain.terms import Term, join, literal, reference
from harness.model.expr import compile_expr

from .oracle import evaluate

ODD_NAMES = ["kv len", "class", "log2", "col", "head-dim", "größe", "it's", 'say "x"', "2nd", "True", "a.b", "ceil"]
NAMES = st.sampled_from(["kv_len", "batch", "heads_q", "heads_kv", "backend", *ODD_NAMES])
NUMBERS = st.lists(st.integers(-3, 5000) | st.none(), min_size=2, max_size=6, unique=True)
FLOATS = st.lists(st.floats(-1e6, 1e6) | st.just(math.inf) | st.just(math.nan), min_size=2, max_size=4)
SIZES = st.lists(
    st.sampled_from([1, 2, 3, 5, 64, 127, 128, 129, 1000, 1024, 65536]), min_size=2, max_size=6, unique=True
)
TEXTS = st.lists(st.sampled_from(["a", "it's", 'x"y', "new\nline", "", "128"]) | st.none(), min_size=2, max_size=5)
MIXED = st.lists(st.one_of(st.booleans(), st.integers(0, 3), st.text(max_size=3), st.none()), min_size=2, max_size=5)
BOOLS = st.lists(st.booleans() | st.none(), min_size=2, max_size=3)


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    values = [draw(st.one_of(NUMBERS, SIZES, SIZES, FLOATS, TEXTS, MIXED, BOOLS)) for _ in names]
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    return [{n: v[int(rng.integers(len(v)))] for n, v in zip(names, values, strict=True)} for _ in range(24)]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(tables(), st.integers(0, 2**16))
def test_text_agrees_with_the_mask_on_every_row(rows: list[dict[str, Any]], seed: int) -> None:
    columns = encode_rows(rows)
    pool = build_pool(columns, len(rows), np.zeros(len(rows)))
    by_name = {c.name: c for c in columns}
    rng = np.random.default_rng(seed)
    for i in rng.permutation(len(pool))[:40]:
        names = pool.names(int(i))
        for _, term in [names[0], names[int(rng.integers(len(names)))]]:
            said = [evaluate(term.text, row) for row in rows]
            assert said == pool.masks[i].tolist(), term.text
            assert said == [term.holds(row) for row in rows], term.text
            assert said == term_mask(term, by_name, len(rows)).tolist(), term.text
            assert said == [compile_expr(term.text)(row) for row in rows], term.text


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_text_of_numbers_raises_on_no_other_numbers(data: st.DataObject) -> None:
    names = ["kv_len", "page size", "batch", "heads"]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    values = [data.draw(SIZES) for _ in names]
    rows = [{n: v[int(rng.integers(len(v)))] for n, v in zip(names, values, strict=True)} for _ in range(30)]
    pool = build_pool(encode_rows(rows), len(rows), np.zeros(len(rows)))
    others = [dict(zip(names, data.draw(st.lists(st.integers(-2, 10**6), min_size=4, max_size=4)), strict=True))]
    others += [dict.fromkeys(names, 0), dict.fromkeys(names, 1), dict.fromkeys(names, -1)]
    for i in rng.permutation(len(pool))[:60]:
        term = pool.term(int(i))
        for row in others:
            assert evaluate(term.text, row) == term.holds(row), term.text


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_quoted_and_evaluate(name: str) -> None:
    text = Term("column", (name,), "==", 3).text
    assert text.startswith("col[")
    assert evaluate(text, {name: 3})
    assert compile_expr(text)({name: 3})


def test_plain_names_stay_plain() -> None:
    assert reference("kv_len") == "kv_len"
    assert all(reference(k).startswith("col[") for k in keyword.kwlist)


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (Term("column", ("backend",), "==", "flash_attn"), "backend == 'flash_attn'"),
        (Term("residue", ("kv_len",), "!=", 0, 128), "kv_len % 128 != 0"),
        (Term("power", ("kv_len",), "==", 0, 1), "kv_len > 1 and log2(kv_len - 1) % 1 == 0"),
        (Term("product", ("batch", "heads"), ">", 2**31), "batch * heads > 2**31"),
        (Term("ratio", ("heads_q", "heads_kv"), "==", 8), "heads_q == 8 * heads_kv"),
        (Term("rest", ("kv_len", "page_size"), "!=", 0), "page_size != 0 and kv_len % page_size != 0"),
        (Term("ceil", ("kv_len", "page_size"), ">", 4), "page_size != 0 and ceil(kv_len / page_size) > 4"),
        (Term("compare", ("q_len", "kv_len"), "<", None), "q_len < kv_len"),
        (Term("column", ("causal",), "==", False, boolean=True), "not causal"),
        (Term("column", ("window",), ">", 8, maybe_none=frozenset({"window"})), "window != None and window > 8"),
        (Term("column", ("dtype",), "in", ("a", "b")), "dtype in ('a', 'b')"),
    ],
)
def test_reads_as_a_person_would_say_it(term: Term, text: str) -> None:
    assert term.text == text


def test_a_guard_is_said_once() -> None:
    none = frozenset({"window"})
    terms = (
        Term("column", ("window",), ">", 8, maybe_none=none),
        Term("residue", ("window",), "!=", 0, 64, maybe_none=none),
    )
    assert join(terms) == "window != None and window > 8 and window % 64 != 0"
    assert join(()) == "True"


@given(st.one_of(st.integers(), st.floats(allow_nan=False), st.text(), st.booleans(), st.none()))
def test_literals_read_back(value: Any) -> None:
    assert eval(literal(value)) == value
