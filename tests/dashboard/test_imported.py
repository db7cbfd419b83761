"""Every page on a store that holds nothing but results of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.app import VIEWS
from db.engine import open_store
from harness.imports import import_paths, judge_new
from tests.harness.readers.samples import FILES, planted

from .test_views import app, shown


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store with an asv history that has a regression, and one file of every other format; the incident's id."""
    folder = tmp_path_factory.mktemp("imported")
    for name, text in FILES.items():
        (folder / name).write_text(text(), encoding="utf-8")
    with open_store(folder / "s.db") as store:
        import_paths(store, [planted(folder / "results", runs=40, step=25), *(folder / name for name in FILES)])
        (found,) = judge_new(store)
    return folder / "s.db", found


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _, _ in VIEWS])
def test_every_page_shows(imported: tuple[Path, str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNWATCH_DB", str(imported[0]))
    monkeypatch.delenv("ATTNWATCH_READ_ONLY", raising=False)
    at = app(name, id=imported[1]) if name == "incident" else app(name)
    assert not at.exception, [e.value for e in at.exception]
    if name in ("incidents", "incident"):
        assert "size" in shown(at) and "float64" in shown(at)
