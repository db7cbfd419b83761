"""What was measured twice, and whether that helped."""

from __future__ import annotations

from pathlib import Path

from db.engine import open_store
from db.queries import machines
from db.retries import retries, standing_attempts
from harness.ingest import ingest_bundle
from harness.model import Status
from tests.db.factory import make_case, make_measurement, make_run, write_run


def test_cells_of_the_heat_map(tmp_path: Path) -> None:
    with open_store(tmp_path / "x.db") as store:
        for night in range(3):
            run = make_run(night)
            a, b, c, d = (make_case(i, backend) for i, backend in enumerate(["x", "x", "y", "y"]))
            held = [
                make_measurement(a, at=run.started_at),
                make_measurement(b, status=Status.CRASHED, at=run.started_at),
                make_measurement(b, status=Status.OK if night else Status.WRONG, at=run.started_at, attempt=2),
                make_measurement(c, at=run.started_at),
                make_measurement(d, status=Status.UNSUPPORTED, at=run.started_at),
            ]
            ingest_bundle(store, write_run(tmp_path / f"{night}.jsonl", run, held))
        (row,) = machines(store)
        found = retries(store, row.fingerprint)
        assert [(r.backend, r.cases, r.retried, r.recovered, r.reasons) for r in found] == [
            ("x", 2, 1, 0, {"crashed": 1}), ("y", 1, 0, 0, {}),
            ("x", 2, 1, 1, {"crashed": 1}), ("y", 1, 0, 0, {}),
            ("x", 2, 1, 1, {"crashed": 1}), ("y", 1, 0, 0, {}),
        ]  # fmt: skip
        assert [r.started_at for r in found] == sorted(r.started_at for r in found)
        assert {r.run for r in retries(store, row.fingerprint, runs=1)} == {make_run(2).id}
        assert retries(store, "nobody") == []
        assert standing_attempts(store, make_run(2).id, [a.key, b.key, "none"]) == {a.key: 1, b.key: 2}
