"""Sixteen processes write into PostgreSQL at once; connections are cut and the server is restarted under an ingest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from db.copying import digests
from db.engine import open_store
from db.queries import row_counts
from harness.ingest import ingest_bundle
from harness.model import InfrastructureError
from tests.db.factory import make_case, make_measurement, make_run, seeded_bundle, write_run
from tests.servers import Server

pytestmark = [pytest.mark.scale, pytest.mark.timeout(600)]

INGEST = [sys.executable, "-m", "harness.cli", "ingest"]
STEPWISE = "import sys; from tests.db.children import ingest; sys.exit(ingest(*sys.argv[1:4]))"


def name_of(url: str) -> str:
    return url.rsplit("/", 1)[1]


def test_sixteen_writers_lose_and_double_nothing(server: Server, database: str, tmp_path: Path) -> None:
    """Each ingests its own bundle and one that all share, half of them in the other order, into an empty database."""
    shared = seeded_bundle(tmp_path / "shared.jsonl", 99, runs=1, cases=150)
    bundles = [seeded_bundle(tmp_path / f"{n}.jsonl", n, runs=1, cases=150) for n in range(16)]
    processes = [
        subprocess.Popen(
            [*INGEST, *map(str, (shared, own) if i % 2 else (own, shared)), "--db", database],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i, own in enumerate(bundles)
    ]  # fmt: skip
    ended = [(p.communicate(timeout=500), p.returncode) for p in processes]
    assert [code for _, code in ended] == [0] * 16, ended
    with open_store(tmp_path / "calm.db") as calm, open_store(database) as store:
        for bundle in (shared, *bundles):
            ingest_bundle(calm, bundle)
        assert row_counts(store) == row_counts(calm)
        with store.read() as connection:
            doubled = "SELECT 1 FROM measurement GROUP BY run_id, case_id, attempt HAVING count(*) > 1"
            assert connection.exec_driver_sql(doubled).all() == []
            standing = "SELECT 1 FROM measurement WHERE NOT superseded GROUP BY run_id, case_id HAVING count(*) <> 1"
            assert connection.exec_driver_sql(standing).all() == []
            ids, top = connection.exec_driver_sql("SELECT count(*), max(id) FROM measurement").one()
            assert ids == top, "keys were given once and without gaps"


@pytest.mark.parametrize("how", ["terminated", "restarted", "crashed", "stopped"])
def test_a_cut_ingest_leaves_nothing_and_is_repeated(server: Server, database: str, tmp_path: Path, how: str) -> None:
    bundle = seeded_bundle(tmp_path / "b.jsonl", 5, runs=2, cases=60)
    with open_store(database) as store:
        ingest_bundle(store, write_run(tmp_path / "before.jsonl", make_run(), [make_measurement(make_case())]))
        before = digests(store)
    child = subprocess.Popen(
        [sys.executable, "-c", STEPWISE, database, str(bundle), "10"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    for _ in range(3):  # three chunks are written and waited for
        assert child.stdout.readline().strip().isdigit()
        child.stdin.write("\n")
        child.stdin.flush()
    assert child.stdout.readline().strip() == "40"
    if how == "terminated":
        with server.connect() as connection:
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            assert connection.execute(cut, (name_of(database),)).fetchall()
    else:
        server.stop("immediate" if how == "crashed" else "fast")
        if how != "stopped":
            server.start()
    try:
        out, _ = child.communicate("\n" * 50, timeout=60)
        assert child.returncode == 3, out
        said = out.strip().splitlines()[-1]
        assert name_of(database) in said
        assert "nothing of this step was kept" in said
        if how == "stopped":
            done = subprocess.run([*INGEST, str(bundle), "--db", database], capture_output=True, text=True, check=False)
            assert done.returncode == 3 and "not reached" in done.stderr
    finally:
        if how == "stopped":
            server.start()
    with open_store(database) as store:
        assert digests(store) == before, "nothing half-written"
        report = ingest_bundle(store, bundle)
        assert report.taken > 100 and report.duplicates == 0
        assert ingest_bundle(store, bundle).taken == 0


def test_a_reader_sees_one_state_and_a_pool_survives_a_restart(server: Server, database: str, tmp_path: Path) -> None:
    with open_store(database) as store, open_store(database) as other:
        ingest_bundle(store, seeded_bundle(tmp_path / "a.jsonl", 1, runs=1, cases=20))
        with store.read() as connection:
            count = "SELECT count(*) FROM measurement"
            first = connection.exec_driver_sql(count).scalar()
            ingest_bundle(other, seeded_bundle(tmp_path / "b.jsonl", 2, runs=1, cases=20))
            assert connection.exec_driver_sql(count).scalar() == first
        server.stop()
        server.start()
        assert row_counts(store)["runs"] == 2, "a dashboard that was open all the time goes on"


def test_a_writer_that_never_ends_is_not_waited_for_for_ever(database: str) -> None:
    with (
        open_store(database) as busy,
        open_store(database, lock_timeout_s=0.3) as hurried,
        busy.write(),
        pytest.raises(InfrastructureError, match="another process holds a lock"),
        hurried.write(),
    ):
        pass
