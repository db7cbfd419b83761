"""The table of known issues against what is installed."""

from __future__ import annotations

import pytest

from harness.known_issues import KNOWN_ISSUES, found_in
from harness.model.expr import compile_expr


@pytest.mark.parametrize(
    ("version", "concerned"),
    [
        ("2.3.2", False),
        ("2.3.3", True),
        ("2.3.3.post1", True),
        ("2.3.3+cu122", True),
        ("2.3.4", False),
        ("2.10.0", False),
    ],
)
def test_the_boundary_release_and_no_other(version: str, concerned: bool) -> None:
    assert bool(found_in({"flash-attn": version})) is concerned


def test_a_package_that_is_missed_counts() -> None:
    assert [i["remedy"] for i in found_in({"flash-attn-4": "4.0.0b1"})] == [KNOWN_ISSUES[1].remedy]
    assert found_in({"flash-attn-4": "4.0.0b1", "flash-attn": "2.8.0"}) == []
    assert found_in({}) == []


def test_predicates_are_expressions_over_cases() -> None:
    row = {"backend": "flash_attn", "q_len": 1, "kv_len": 129}
    assert compile_expr(KNOWN_ISSUES[0].predicate)(row)
    assert not compile_expr(KNOWN_ISSUES[0].predicate)(row | {"kv_len": 128})
    assert all(i.provenance in ("reported", "verified") and i.remedy for i in KNOWN_ISSUES)
