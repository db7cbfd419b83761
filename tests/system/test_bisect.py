"""Sixteen commits of kernels, one of them slow for one predicate, found from the incident on this CPU."""

from __future__ import annotations

import json

import pytest

from .conftest import Clone
from .test_two_commits import SLOW


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_slow_commit_is_found(small_clone: Clone) -> None:
    clone = small_clone
    clone.nightly()
    blocks = clone.repo / "kernels" / "segmented" / "blocks.py"
    guilty = ""
    for i in range(16):
        with blocks.open("a") as file:
            file.write(SLOW if i == 10 else f"\n\ndef _note_{i}() -> None:\n    pass\n")
        if i == 5:  # a commit that cannot even be imported must be skipped, not accused
            blocks.write_text(blocks.read_text() + "\nraise RuntimeError('half done')\n")
        if i == 6:
            blocks.write_text(blocks.read_text().replace("\nraise RuntimeError('half done')\n", "\n"))
        clone.git("commit", "-q", "-am", f"change {i}")
        if i == 10:
            guilty = clone.git("rev-parse", "HEAD")
    report = clone.nightly(expect=1)
    timed = [i for i in report["incidents"] if i["findings"][0]["metric"] == "latency_s" and i["state"] == "new"]
    assert len(timed) == 1
    answer = json.loads(clone.run("bisect", timed[0]["id"], "--device", "cpu", "--json").stdout)
    assert answer["found"] == [guilty]
    assert answer["decided"]
    assert answer["measured"] <= 3 * 4 + 1
    again = clone.run("bisect", timed[0]["id"], "--device", "cpu", "--json")
    assert json.loads(again.stdout)["found"] == [guilty]
    assert clone.run("bisect", "nosuch", "--device", "cpu", expect=2).stderr.count("no incident") == 1
