"""A million measurements, sent twice by many writers at once: none is lost and none is there twice."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from harness.bundle import BundleWriter
from harness.model import RunEnd
from tests.db.factory import DAY, START, make_case, make_measurement, make_run

pytestmark = [pytest.mark.scale, pytest.mark.timeout(3000)]

#: Fewer where somebody is in a hurry: ATTNWATCH_TEST_ROWS=50000.
ROWS = int(os.environ.get("ATTNWATCH_TEST_ROWS", "1000000"))
WRITERS, CASES, RUNS_A_BUNDLE = 8, 500, 10

WRITER = """
import json, sys
from db.engine import open_store
from harness.ingest import ingest_bundle

taken = duplicates = 0
with open_store(sys.argv[1], lock_timeout_s=600.0) as store:
    for path in sys.argv[2:]:
        report = ingest_bundle(store, path)
        taken, duplicates = taken + report.taken, duplicates + report.duplicates
print(json.dumps({"taken": taken, "duplicates": duplicates}))
"""


def bundles(folder: Path) -> list[Path]:
    """Of RUNS_A_BUNDLE runs of CASES measurements each."""
    found, cases = [], [make_case(i) for i in range(CASES)]
    for first in range(0, ROWS // CASES, RUNS_A_BUNDLE):
        path = folder / f"{first}.jsonl"
        with BundleWriter(path) as out:
            for number in range(first, min(first + RUNS_A_BUNDLE, ROWS // CASES)):
                run = make_run(number, name=f"run-{number}", planned=CASES)
                out.run(run)
                for i, case in enumerate(cases):
                    m = make_measurement(case, 1e-3 * (1 + i / 1e3), at=START + DAY * number, samples={}, warmup={})
                    out.measurement(run.id, m)
                out.end(RunEnd(run.id, START + DAY * number + 60, measured=CASES))
        found.append(path)
    return found


def test_a_million_rows_sent_twice_by_many_writers(tmp_path: Path) -> None:
    db, paths = tmp_path / "a.db", bundles(tmp_path)
    # Every bundle is sent by two writers, by one of them in the opposite order.
    orders = [paths[k::WRITERS] + paths[(k + 1) % WRITERS :: WRITERS][::-1] for k in range(WRITERS)]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(db), *map(str, order)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for order in orders
    ]  # fmt: skip
    ended = [(w.communicate(), w.returncode) for w in writers]
    assert [code for _, code in ended] == [0] * WRITERS, ended
    told = [json.loads(out) for (out, _), _ in ended]
    total = ROWS // CASES * CASES
    assert sum(t["taken"] for t in told) == total
    assert sum(t["duplicates"] for t in told) == total, "the second of each is recognised"
    with sqlite3.connect(db) as connection:
        one = lambda query: connection.execute(query).fetchone()[0]  # noqa: E731
        rows = one("select count(*) from measurement")
        distinct = one("select count(*) from (select distinct run_id, case_id, attempt from measurement)")
        print(f"{rows} rows of {2 * total} sent, duplicate rate {(rows - distinct) / rows:.4%}")
        assert rows == distinct == total
        assert one("select count(*) from metric_value") == 2 * total
        assert one("pragma integrity_check") == "ok"
