"""Results of public projects, where they lie beside the checkout: each value is taken, and a round trip is equal."""

from __future__ import annotations

import json
import math
import tarfile
from pathlib import Path
from typing import Any

import pytest

from db.engine import open_store
from harness.exporting import write
from harness.imports import import_paths, judge_new
from tests.harness.exporting.test_asv import rows

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

pytestmark = [
    pytest.mark.scale,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (DATA / "asv").is_dir(), reason="no ../shared/data beside the checkout"),
]


def asv_values(folder: Path) -> tuple[int, int]:
    """(numbers, combinations) of all result files, counted without our readers."""
    numbers = combinations = 0
    for path in folder.rglob("*.json"):
        if path.name in ("machine.json", "benchmarks.json"):
            continue
        content = json.loads(path.read_text())
        for cells in content["results"].values():
            row: dict[str, Any] = dict(zip(content["result_columns"], cells, strict=False))
            combinations += math.prod(len(p) for p in row.get("params") or [])
            numbers += sum(isinstance(v, int | float) and math.isfinite(v) for v in row.get("result") or [])
    return numbers, combinations


@pytest.mark.parametrize("name", ["kedro", "django"])
def test_asv(tmp_path: Path, name: str) -> None:
    with tarfile.open(DATA / "asv" / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    numbers, combinations = asv_values(tmp_path / name)
    with open_store(tmp_path / "a.db") as store, open_store(tmp_path / "b.db") as back:
        report = import_paths(store, [tmp_path / name])
        assert (report["taken"], report["taken"] + report["dropped"]) == (numbers, combinations)
        judge_new(store)
        assert write(store, "asv", None, str(tmp_path / "out")) == numbers
        assert import_paths(back, [tmp_path / "out"])["taken"] == numbers
        assert rows(store) == rows(back)


@pytest.mark.parametrize("name", ["hyper", "safetensors"])
def test_data_js(tmp_path: Path, name: str) -> None:
    path = DATA / "gab" / f"{name}.data.js"
    text = path.read_text(encoding="utf-8")
    history = json.loads(text[text.index("{") :].rstrip().rstrip(";"))
    count = sum(len(entry["benches"]) for entries in history["entries"].values() for entry in entries)
    with open_store(tmp_path / "a.db") as store:
        report = import_paths(store, [path])
        assert (report["taken"], report["dropped"]) == (count, 0)
        judge_new(store)
        assert import_paths(store, [path])["duplicates"] == count
