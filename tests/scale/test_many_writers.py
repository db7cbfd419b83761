"""Sixteen processes ingest into one store at once; a large bundle fits into little memory."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from harness.bundle import BundleWriter
from harness.model import RunEnd
from tests.db.factory import DAY, START, make_case, make_measurement, make_run

pytestmark = [pytest.mark.scale, pytest.mark.timeout(900)]

INGEST = "from harness.cli import main; main()"


def write_bundle(path: Path, number: int, cases: range, *, samples: int = 20) -> None:
    """One run with one measurement for each of ``cases``."""
    run = make_run(number, name=f"run-{number}")
    with BundleWriter(path) as writer:
        writer.run(run)
        for i in cases:
            latency = 1e-3 * (1 + (i * 7919 + number) % 97 / 1000)
            m = make_measurement(
                make_case(i), latency, at=START + DAY * number + i, samples={"latency_s": [latency] * samples}
            )
            writer.measurement(run.id, m)
        writer.end(RunEnd(run.id, START + DAY * number + 9e4, measured=len(cases)))


def test_sixteen_writers_lose_and_double_nothing(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    shared = tmp_path / "shared.jsonl"
    write_bundle(shared, 99, range(150))
    bundles = []
    for number in range(16):
        path = tmp_path / f"b{number}.jsonl"
        write_bundle(path, number, range(150))
        bundles.append(path)
    # Each ingests its own bundle and one that all share, the first half in the other order.
    command = [sys.executable, "-c", INGEST, "ingest", "--db", str(db)]
    processes = [
        subprocess.Popen(
            [*command, *map(str, (shared, own) if i % 2 else (own, shared))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i, own in enumerate(bundles)
    ]  # fmt: skip
    ended = [(p.communicate(timeout=600), p.returncode) for p in processes]
    assert [code for _, code in ended] == [0] * 16, ended
    with sqlite3.connect(db) as connection:
        one = lambda query: connection.execute(query).fetchone()[0]  # noqa: E731
        assert one("select count(*) from run") == 17
        assert one("select count(*) from measurement") == 17 * 150
        assert one('select count(*) from "case"') == 150
        doubled = (
            "select count(*) from (select 1 from measurement group by run_id, case_id, attempt having count(*) > 1)"
        )
        assert one(doubled) == 0
        assert one("pragma integrity_check") == "ok"
        values = connection.execute("select count(*), count(distinct measurement_id) from metric_value").fetchone()
    with sqlite3.connect(db) as connection:
        per = connection.execute("select count(*) from metric_value group by measurement_id").fetchall()
    assert values[1] == 17 * 150
    assert len(set(per)) == 1, "every measurement has all of its values"


def test_a_large_bundle_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    write_bundle(path, 1, range(20_000), samples=1300)
    assert path.stat().st_size > 250e6
    limit = 256 << 20

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    done = subprocess.run(
        [sys.executable, "-c", INGEST, "ingest", str(path), "--db", str(tmp_path / "a.db"), "--json"],
        preexec_fn=small, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"taken": 20000' in done.stdout
