"""Earlier commits measured with today's ruler, in the order of the history, once."""

from __future__ import annotations

import json

import pytest

from db.engine import open_store
from db.queries import runs

from .conftest import Clone

ARGS = ("backfill", "--suite", "mini.suite.json", "--backend", "segmented", "--device", "cpu")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_history_is_filled_once_and_gone_on_with(small_clone: Clone) -> None:
    clone = small_clone
    blocks = clone.repo / "kernels" / "segmented" / "blocks.py"
    sound = blocks.read_text()
    for i in range(3):
        blocks.write_text(sound + f"\n\ndef _note_{i}() -> None:\n    pass\n")
        clone.git("commit", "-q", "-am", f"change {i}", "--date", f"2026-01-0{i + 1}T00:00:00Z")
    blocks.write_text(sound)
    clone.git("commit", "-q", "-am", "as at first")
    none = json.loads(clone.run(*ARGS, "--budget", "0.1s", "--json").stdout)["commits"]
    assert [c["state"] for c in none] == ["left"] * 5
    told = json.loads(clone.run(*ARGS, "--json").stdout)["commits"]
    assert [c["subject"] for c in told] == ["fast", "change 0", "change 1", "change 2", "as at first"]
    # The first commit has the kernels of the last one, which was measured before it.
    assert [c["state"] for c in told] == ["stored", "measured", "measured", "measured", "measured"]
    assert "kernels are those of" in told[0]["why"]
    with open_store(str(clone.db)) as store:
        held = runs(store, reasons=["backfill"])
        assert {r.commit for r in held} == {c["commit"] for c in told[1:]}
        assert all(r.complete and r.started_at == r.committed_at for r in held)
    again = json.loads(clone.run(*ARGS, "--json").stdout)["commits"]
    assert {c["state"] for c in again} == {"stored"}
    assert "no range" in clone.run(*ARGS, "--range", "HEAD", expect=2).stderr
    assert "no commit touches" in clone.run(*ARGS, "--range", "HEAD..HEAD", expect=2).stderr
