"""A change of one kernel, measured for real: that kernel alone, boundaries first, and what a budget left is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.test_compare_affected import Author, spoken


@pytest.mark.scale
def test_a_budget_begins_with_what_the_change_most_likely_hits(tmp_path: Path) -> None:
    author = Author(tmp_path)
    author.commit("README.md")
    author.commit("kernels/paged/pages.py")
    # Base against head of one commit further back: the page does not widen it.
    report, said = author.compare("--base", "HEAD~2", "--affected", "--budget", "100s", "--db", str(tmp_path / "no.db"))
    assert {(c["backend"], c["kv_len"]) for c in report["cases"]} == {("paged", 32), ("paged", 65)}
    assert report["affected"]["backends"] == ["paged"] and report["left_out_kinds"] == {}
    assert f"{report['unaffected']} not measured, since head does not touch them" in spoken(report)
    assert "nothing is known from it" in said

    # A budget that ends at once leaves all out, and says what it was.
    report, _ = author.compare("--base", "HEAD~2", "--affected", "--budget", "0.001", expect=3)
    assert report["left_out_kinds"] == {"boundary": 1, "touched": 1} and len(report["left_out"]) == 2
    assert [c["kv_len"] for c in report["left_out"]] == [65, 32], "the boundary comes first"
    assert "2 left out when the budget ended (1 at boundaries, 1 of touched kernels)" in spoken(report)
