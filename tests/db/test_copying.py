"""Copies and backups: equal row by row, whole or not at all."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text

from db import backup as backups
from db import copying, queries
from db.backup import backup, restore
from db.copying import copy_store, digests
from db.engine import Store, open_store
from db.repository import IncidentRecord, RegressionRecord, triage, upsert_incident
from harness.ingest import ingest_bundle
from harness.model import InfrastructureError, InputError, TriageState, VerdictKind

from .conftest import Fresh
from .factory import MACHINE, START, dump, make_case, make_run, seeded_bundle, write_run


def fill(store: Store, folder: Path, seed: int = 1) -> Store:
    """Runs, failures, attempts, incidents; texts and JSON that databases like to change."""
    folder.mkdir(parents=True, exist_ok=True)
    bundle = seeded_bundle(folder / f"{seed}.jsonl", seed)
    odd = make_run(
        50,
        name="odd \u2265 '\\ \u0130",
        options={"nan": "NaN", "\u00fc": 1.0, "big": 2**60, "zero": -0.0, "no": None, "yes": True},
    )
    ingest_bundle(store, write_run(bundle, odd, []))
    rows = [
        RegressionRecord(make_case(0, b).key, "latency_s", VerdictKind.SLOWER, TriageState.NEW, ratio=r)
        for b, r in (("sdpa_math", 1.5), ("segmented", None))
        if make_case(0, b).key in queries.cases(store)
    ]
    incident = IncidentRecord(
        "b-1", "t", "kv_len == 1", MACHINE.fingerprint, evidence={"x": float("nan"), "y": [1.5, 2**70, -0.0]}
    )
    upsert_incident(store, incident, rows, at=START)
    upsert_incident(store, IncidentRecord("B_2", "t", "True", MACHINE.fingerprint), [], at=START)
    triage(store, "b-1", TriageState.ACKNOWLEDGED, "looked at", "team", at=START + 1)
    return store


def test_there_and_back_is_the_same(fresh: Fresh, tmp_path: Path) -> None:
    """SQLite to whichever database and back; then both go on alike."""
    with open_store(tmp_path / "a.db") as first, fresh() as middle, open_store(tmp_path / "b.db") as last:
        fill(first, tmp_path)
        done = copy_store(first, middle)
        assert {x.name: x.rows for x in done}["measurement"] > 100
        assert digests(middle) == digests(first) == {x.name: x.digest for x in done}
        copy_store(middle, last)
        assert dump(last) == dump(first)
        more = seeded_bundle(tmp_path / "more.jsonl", 7)
        for store in (first, middle):
            ingest_bundle(store, more)
            triage(store, "b-1", TriageState.FIXED, "again", "team", at=START + 2)
        assert digests(middle) == digests(first)


def test_a_target_that_holds_something_is_kept_unless_forced(fresh: Fresh, tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as source, fresh() as target:
        fill(source, tmp_path)
        ingest_bundle(target, seeded_bundle(tmp_path / "other.jsonl", 9))
        before = dump(target)
        with pytest.raises(InputError, match=r"already holds rows .*--force"):
            copy_store(source, target)
        assert dump(target) == before
        copy_store(source, target, force=True)
        assert digests(target) == digests(source)


def test_a_copy_onto_itself_is_refused(fresh: Fresh) -> None:
    with fresh() as store, pytest.raises(InputError, match="both addresses are of this store"):
        copy_store(store, store, force=True)


def test_a_row_that_comes_back_otherwise_undoes_the_copy(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "a.db") as source, fresh() as target:
        fill(source, tmp_path)
        before = dump(target)

        class Forgetful(copying.BulkInsert):
            def __call__(self, rows: list[tuple[object, ...]]) -> None:  # type: ignore[override]
                super().__call__(rows[:-1] if len(rows) > 5 else rows)

        monkeypatch.setattr(copying, "BulkInsert", Forgetful)
        with pytest.raises(InfrastructureError, match="came back with"):
            copy_store(source, target)
        assert dump(target) == before


def test_backup_and_restore(fresh: Fresh, tmp_path: Path) -> None:
    with fresh() as store:
        fill(store, tmp_path)
        path, held = backup(store, tmp_path / "kept.db")
        assert held == queries.row_counts(store)
        assert sorted(p.name for p in tmp_path.iterdir() if "kept" in p.name) == ["kept.db"], "one file, no leftovers"
        with pytest.raises(InputError, match="exists already"):
            backup(store, path)
        backup(store, path, force=True)
        name, done = restore(path, str(tmp_path / "new.db"))
        with open_store(name) as back:
            assert digests(back) == digests(store)
        assert sum(x.rows for x in done) > 100


def test_a_backup_while_others_write_is_one_state(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store, open_store(tmp_path / "a.db") as other:
        fill(store, tmp_path)
        before = digests(store)
        with other.write() as connection:
            connection.execute(text("UPDATE run SET suite = 'half done'"))
            backup(store, tmp_path / "kept.db")
        with open_store(tmp_path / "kept.db", read_only=True) as kept:
            assert digests(kept) == before
        assert digests(store) != before


def test_restore_replaces_a_damaged_store_only_when_forced(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        fill(store, tmp_path)
        path, _ = backup(store, tmp_path / "kept.db")
        expected = digests(store)
    damaged = tmp_path / "a.db"
    damaged.write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)
    with pytest.raises(InfrastructureError, match="restore"):
        restore(path, str(damaged))
    assert damaged.read_bytes().startswith(b"SQLite format 3\0garbage")
    restore(path, str(damaged), force=True)
    with open_store(damaged) as back:
        assert digests(back) == expected
    (aside,) = tmp_path.glob("a.db.damaged-*")
    assert aside.read_bytes().startswith(b"SQLite format 3\0garbage"), "what could be rescued from it is kept"


@pytest.mark.parametrize("damage", ["header", "middle", "cut", "reference"])
def test_a_damaged_backup_is_not_restored(tmp_path: Path, damage: str) -> None:
    with open_store(tmp_path / "a.db") as store:
        fill(store, tmp_path)
        path, _ = backup(store, tmp_path / "kept.db")
        before = dump(store)
    data = bytearray(path.read_bytes())
    if damage == "header":
        data[:16] = b"x" * 16
    elif damage == "middle":
        for at in range(len(data) // 2, len(data) // 2 + 40_000):
            data[at] = 0xFF
    elif damage == "cut":
        del data[len(data) // 2 :]
    path.write_bytes(bytes(data))
    if damage == "reference":
        with sqlite3.connect(path) as connection:
            connection.execute('DELETE FROM "case"')
        connection.close()
    with pytest.raises((InfrastructureError, InputError)):
        restore(path, str(tmp_path / "a.db"), force=True)
    assert dump(tmp_path / "a.db") == before


def test_wrong_places_for_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fill(open_store(tmp_path / "a.db"), tmp_path) as store:
        for place, why in ((tmp_path, "folder"), (tmp_path / "no" / "x", "not exist"), (tmp_path / "a.db", "itself")):
            with pytest.raises(InputError, match=why):
                backup(store, place, force=True)
        (tmp_path / "kept.db").write_bytes(b"the older backup")

        def fails(store: Store, part: Path, progress: object) -> None:
            shutil.copy(tmp_path / "a.db", part)
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(backups, "_copy_pages", fails)
        with pytest.raises(InfrastructureError, match="No space left"):
            backup(store, tmp_path / "kept.db", force=True)
        assert (tmp_path / "kept.db").read_bytes() == b"the older backup"
        assert not list(tmp_path.glob(".kept*"))
