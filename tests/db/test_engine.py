"""Opening stores: addresses, schema, and every way in which a file can be wrong."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import inspect, select, text

from db import tables
from db.engine import open_store
from db.queries import runs
from harness.ingest import ingest_bundle
from harness.model import InfrastructureError, InputError

from .factory import dump, make_case, make_measurement, make_run, seeded_bundle, write_run


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_run(tmp_path / "b.jsonl", make_run(), [make_measurement(make_case())])


def test_new_store_has_pragmas_and_tables(tmp_path: Path) -> None:
    with open_store(tmp_path / "new store #1?.db") as store:
        with store.read() as connection:
            assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
            assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
            assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 60000
            assert "metric_value" in inspect(connection).get_table_names()
        assert store.path == tmp_path / "new store #1?.db"
    assert (tmp_path / "new store #1?.db").exists()


def test_default_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNWATCH_DB", raising=False)
    open_store().close()
    assert (tmp_path / "attnwatch.db").exists()
    monkeypatch.setenv("ATTNWATCH_DB", "sqlite:///other.db")
    open_store().close()
    assert (tmp_path / "other.db").exists()


@pytest.mark.parametrize(
    "url",
    [
        "mysql://host/name",
        "sqlite://",
        "sqlite:///:memory:",
        ":memory:",
        "",
        "nonsense://x",
        "sqlite://host/x.db",
        "a\0b",
    ],
)
def test_bad_address(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNWATCH_DB", url if "\0" not in url else "")
    with pytest.raises(InputError, match="--db"):
        open_store(url)
    assert list(tmp_path.iterdir()) == []


def test_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        open_store(tmp_path)


def test_missing_folder_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        open_store(tmp_path / "no" / "x.db")
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(InputError, match="no store here"):
            open_store(tmp_path / "x.db", **options)
    assert not (tmp_path / "x.db").exists()


def test_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database " * 100)
    with pytest.raises(InfrastructureError, match=r"notes\.txt: not a SQLite database"):
        open_store(path)
    assert path.read_text() == "not a database " * 100
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    with pytest.raises(InputError, match=r"foreign\.db: this database holds something else \(songs\)"):
        open_store(foreign)


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    open_store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = dump(path)
    with pytest.raises(InputError, match=r"x\.db: schema 9999 is newer .* upgrade attnwatch"):
        open_store(path)
    assert dump(path) == before


def test_corrupt_store(tmp_path: Path, bundle: Path) -> None:
    path = tmp_path / "x.db"
    with open_store(path) as store:
        ingest_bundle(store, seeded_bundle(tmp_path / "c.jsonl", 1))
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 2048] = os.urandom(2048)
    path.write_bytes(data)
    with pytest.raises(InfrastructureError, match=r"x\.db: the database is corrupt .*restore a backup"):
        open_store(path)


def test_damaged_text(tmp_path: Path) -> None:
    """SQLite itself sees nothing wrong with these, or cannot say what."""
    path = tmp_path / "x.db"
    with open_store(path) as store:
        ingest_bundle(store, seeded_bundle(tmp_path / "c.jsonl", 1))
    good = path.read_bytes()
    # SQLite quotes the damaged word in its message, which then is no UTF-8 either.
    path.write_bytes(good.replace(b"CREATE TABLE machine", b"CREATE \xbfABLE machine"))
    with pytest.raises(InfrastructureError, match=r"x\.db: the database is corrupt .*attnwatch db restore"):
        open_store(path)
    path.write_bytes(good)
    with sqlite3.connect(path) as connection:
        connection.execute("""UPDATE "case" SET params = replace(params, ',', ';')""")
    with (
        open_store(path) as store,
        pytest.raises(InfrastructureError, match=r"x\.db: the database is corrupt .*attnwatch db restore"),
        store.read() as connection,
    ):
        connection.execute(select(tables.Case.params)).all()


def test_damaged_text_elsewhere_is_not_the_stores(tmp_path: Path) -> None:
    with open_store(tmp_path / "x.db") as store:
        with pytest.raises(UnicodeDecodeError), store.read():
            b"\xff".decode()
        with pytest.raises(json.JSONDecodeError), store.write():
            json.loads("{")


def test_damaged_header(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    open_store(path).close()
    data = bytearray(path.read_bytes())
    data[:16] = bytes(16)
    path.write_bytes(data)
    with pytest.raises(InfrastructureError, match="not a SQLite database"):
        open_store(path)


def test_locked_store(tmp_path: Path, bundle: Path) -> None:
    path = tmp_path / "x.db"
    open_store(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with (
            open_store(path, lock_timeout_s=0.05) as store,
            pytest.raises(InfrastructureError, match=r"x\.db: locked by another process"),
        ):
            ingest_bundle(store, bundle)
    finally:
        other.execute("ROLLBACK")
        other.close()
    with open_store(path) as store:
        assert ingest_bundle(store, bundle).taken == 1


def test_read_only_store_refuses_to_write(tmp_path: Path, bundle: Path) -> None:
    path = tmp_path / "x.db"
    with open_store(path) as store:
        ingest_bundle(store, bundle)
    with open_store(path, read_only=True) as store:
        assert [r.id for r in runs(store)] == ["run-000"]
        with pytest.raises(InputError, match="reading only"):
            ingest_bundle(store, bundle)
        # The file itself is opened so: SQLite refuses too.
        with (
            pytest.raises(InfrastructureError, match=r"x\.db: the file or its folder cannot be opened"),
            store.read() as c,
        ):
            c.execute(text("DELETE FROM metric_value"))


def _mount(source: str, target: Path, *options: str) -> bool:
    target.mkdir(exist_ok=True)
    command = ["mount", *options, source, str(target)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def test_read_only_file_system(tmp_path: Path, bundle: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with open_store(folder / "x.db") as store:
        ingest_bundle(store, bundle)
    frozen = tmp_path / "frozen"
    if not _mount(str(folder), frozen, "--bind"):
        pytest.skip("mounting is not permitted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(frozen)], check=True)
        with (
            pytest.raises(InfrastructureError, match=r"x\.db: the file or its folder cannot be opened"),
            open_store(frozen / "x.db") as store,
        ):
            ingest_bundle(store, bundle)
        with pytest.raises(InfrastructureError, match="cannot be opened"):
            open_store(frozen / "new.db")
        with open_store(frozen / "x.db", read_only=True) as store:
            assert len(runs(store)) == 1
    finally:
        subprocess.run(["umount", str(frozen)], check=True)


def test_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    bundle = seeded_bundle(tmp_path / "big.jsonl", 3, runs=10, cases=150)
    if not _mount("tmpfs", disk, "-t", "tmpfs", "-o", "size=600k"):
        pytest.skip("mounting is not permitted here")
    try:
        with open_store(disk / "x.db") as store:
            with pytest.raises(InfrastructureError, match=r"x\.db: the disk is full"):
                ingest_bundle(store, bundle)
            assert runs(store) == []
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        with open_store(disk / "x.db") as store, open_store(tmp_path / "y.db") as other:
            assert ingest_bundle(store, bundle) == ingest_bundle(other, bundle)
        assert dump(disk / "x.db") == dump(tmp_path / "y.db")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_limit_on_file_size(tmp_path: Path) -> None:
    bundle = seeded_bundle(tmp_path / "big.jsonl", 3, runs=10, cases=150)
    path = tmp_path / "x.db"
    open_store(path).close()

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    code = "import sys\nfrom tests.db.children import ingest\nsys.exit(ingest(*sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(bundle)],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "x.db: " in done.stdout
    with open_store(path) as store:
        assert runs(store) == []
        assert ingest_bundle(store, bundle).taken > 1000


@pytest.mark.slow
def test_two_processes_open_a_new_store_at_once(tmp_path: Path) -> None:
    code = "import sys\nfrom tests.db.children import open_when_told\nopen_when_told(sys.argv[1])"
    for attempt in range(3):
        path = tmp_path / f"new{attempt}.db"
        children = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(4)
        ]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        assert [child.communicate()[0] for child in children] == ["open\n"] * 4
        assert dump(path)["alembic_version"] == [("0001",)]
