"""The db commands as people type them: codes, JSON, what they leave behind."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from db.copying import digests
from db.engine import open_store
from harness.cli import main
from harness.ingest import ingest_bundle
from tests.db.factory import seeded_bundle


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of three runs; ``b.jsonl`` beside it is what it was made of."""
    with open_store(tmp_path / "a.db") as made:
        ingest_bundle(made, seeded_bundle(tmp_path / "b.jsonl", 3))
    return tmp_path / "a.db"


def attnwatch(folder: Path, *args: str) -> tuple[int, Any, str]:
    """Exit code, JSON and messages of a command in ``folder``; in this process, since starting one takes longer."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["attnwatch", "db", *args, "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
    text = out.getvalue()
    return int(ended.value.code or 0), json.loads(text) if text else None, err.getvalue()


def content(path: Path) -> dict[str, str]:
    with open_store(path) as opened:
        return digests(opened)


def test_copy(store: Path, tmp_path: Path) -> None:
    code, told, _ = attnwatch(tmp_path, "copy", "a.db", "c.db")
    assert code == 0 and told["verified"] and (told["source"], told["target"]) == ("a.db", "c.db")
    assert {t["name"]: t["digest"] for t in told["tables"]} == content(store) == content(tmp_path / "c.db")
    for args, code, words in (
        (("a.db", "c.db"), 2, "--force"),
        (("a.db", "./a.db", "--force"), 2, "both addresses are of this store"),
        (("none.db", "d.db"), 2, "none.db: no store here"),
        (("a.db", "no/d.db"), 2, "does not exist"),
        (("a.db", "mysql://x/y"), 2, "not supported"),
    ):
        found, out, err = attnwatch(tmp_path, "copy", *args)
        assert (found, out) == (code, None) and words in err and len(err.splitlines()) == 1
    assert not (tmp_path / "none.db").exists()
    assert attnwatch(tmp_path, "copy", "a.db", "c.db", "--force")[0] == 0


def test_backup_and_restore(store: Path, tmp_path: Path) -> None:
    code, told, _ = attnwatch(tmp_path, "backup", "--db", "a.db")
    kept = tmp_path / told["backup"]
    assert code == 0 and kept.name.startswith("attnwatch-backup-") and told["bytes"] == kept.stat().st_size
    assert told["rows"]["runs"] == 3
    code, _, err = attnwatch(tmp_path, "backup", kept.name, "--db", "a.db")
    assert code == 2 and "exists already" in err
    code, _, err = attnwatch(tmp_path, "restore", kept.name, "--db", "a.db")
    assert code == 2 and "--force" in err
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE run SET suite = 'spoilt'")
    connection.close()
    assert attnwatch(tmp_path, "restore", kept.name, "--db", "a.db", "--force")[0] == 0
    assert content(store) == content(kept)
    for name, data in (("text", b"hello"), ("empty.db", b"")):
        (tmp_path / name).write_bytes(data)
        code, _, err = attnwatch(tmp_path, "restore", name, "--db", "new.db")
        assert code in (2, 3) and name in err
        assert not (tmp_path / "new.db").exists(), "nothing is made before the backup was looked at"


def test_prune(store: Path, tmp_path: Path) -> None:
    before = store.read_bytes()
    code, would, _ = attnwatch(tmp_path, "prune", "--samples-older-than", "90d", "--dry-run", "--db", "a.db")
    assert code == 0 and would["dry_run"] and would["runs"] == 3 and store.read_bytes() == before
    code, did, _ = attnwatch(tmp_path, "prune", "--samples-older-than", "90d", "--db", "a.db")
    assert (code, did["measurements"], did["dry_run"]) == (0, would["measurements"], False)
    code, again, _ = attnwatch(tmp_path, "prune", "--samples-older-than", "90d", "--db", "a.db")
    assert (code, again["measurements"]) == (0, 0)
    for age in ("soon", "-1d", "0d", "90"):
        code, out, err = attnwatch(tmp_path, "prune", "--samples-older-than", age, "--db", "a.db")
        assert (code, out) == (2, None) and "--samples-older-than" in err
    with open_store(store) as opened:
        report = ingest_bundle(opened, tmp_path / "b.jsonl")
        assert (report.taken, report.dropped) == (0, 0)
