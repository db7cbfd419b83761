"""The whole way once: two commits of kernels through asv, the second slower where kv_len % 128 == 1.

Real git, real asv, real worker, real kernels, real store. The report must name the slower cases and no others.
"""

from __future__ import annotations

import pytest

from .conftest import LENGTHS, Clone

# Computes the output ten times where the predicate holds: slower for real, and still right.
SLOW = """

def _slowed(fn):
    def attention(q, k, v, **options):
        if k.shape[-2] % 128 == 1:
            for _ in range(9):
                fn(q, k, v, **options)
        return fn(q, k, v, **options)
    return attention


attention = _slowed(attention)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_report_names_the_slower_cases_and_no_others(clone: Clone) -> None:
    first = clone.nightly()
    assert first["nights"] == 0
    assert first["incidents"] == []
    with (clone.repo / "kernels" / "segmented" / "blocks.py").open("a") as file:
        file.write(SLOW)
    clone.git("commit", "-q", "-am", "slow where kv_len % 128 == 1")
    second = clone.nightly(expect=1)
    confirmed = [f for f in second["findings"] if f["state"] == "confirmed"]
    named = {(f["case"]["backend"], f["case"]["workload"]["params"]["kv_len"], f["metric"]) for f in confirmed}
    slow = {("segmented", n, "latency_s") for n in LENGTHS if n % 128 == 1}
    assert {x for x in named if x[2] == "latency_s"} == slow, (second["findings"], second["notes"])
    # Computing more also calls more operators; an exact metric must say so for the same cases.
    assert {x[:2] for x in named} == {x[:2] for x in slow}
    assert all(f["ratio"] > 1.5 for f in confirmed if f["metric"] == "latency_s")
    assert second["revision"]["commit"] == clone.git("rev-parse", "HEAD")
    assert any("slow where" in text for text in second["what_changed"])
    # Measured with its own kernels: the two runs differ in what they imported, not only in the commit's name.
    assert second["base_revision"]["kernels_hash"] != second["revision"]["kernels_hash"]
    # The next night tells nothing anew, and does not take the slow level for normal either.
    third = clone.nightly()
    assert [i for i in third["incidents"] if i["state"] == "new"] == []
    assert set(third["still_open"]) >= {i["id"] for i in second["incidents"] if i["state"] == "new"}
    clone.git("revert", "--no-edit", "HEAD")
    fourth = clone.nightly()
    told = {i["id"] for i in second["incidents"] if i["state"] == "new"}
    assert set(fourth["recovered"]) >= told, (fourth["findings"], fourth["still_open"], fourth["notes"])
