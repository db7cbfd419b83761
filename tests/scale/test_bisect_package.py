"""Versions of a package, each in an environment of its own: the one that made a backend slow is found."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from db.engine import open_store
from db.queries import measurements_of_run, runs
from db.repository import IncidentRecord, RegressionRecord, upsert_incident
from harness.model import Case, TriageState, VerdictKind, Workload
from tests.system.conftest import Clone, small_clone

__all__ = ["small_clone"]

CODE = """
import torch.nn.functional as F


def attention(q, k, v, *, causal=False, **options):
    for _ in range({extra}):
        F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
"""


def wheel(folder: Path, version: str, code: str) -> None:
    """A pure wheel of the package ``smallpkg``."""
    info = f"smallpkg-{version}.dist-info"
    with zipfile.ZipFile(folder / f"smallpkg-{version}-py3-none-any.whl", "w") as file:
        file.writestr("smallpkg/__init__.py", code)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: smallpkg\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


def incident_of(clone: Clone, case: Case) -> None:
    """An incident about ``case`` in the store of ``clone``, as the judge would have left it."""
    with open_store(str(clone.db)) as store:
        (run,) = runs(store, limit=1)
        upsert_incident(
            store,
            IncidentRecord("slowpkg", "smallpkg got slower", "True", run.machine, TriageState.CONFIRMED),
            [RegressionRecord(case.key, "latency_s", VerdictKind.SLOWER, TriageState.CONFIRMED, None, run.id, 3.0)],
        )


@pytest.mark.scale
@pytest.mark.timeout(600)
def test_the_slow_version_of_a_package_is_found(small_clone: Clone, tmp_path: Path) -> None:
    clone, index = small_clone, tmp_path / "index"
    index.mkdir()
    for version, extra in (("1.0", 0), ("1.1", 0), ("2.0", 3), ("2.1", 3)):
        wheel(index, version, CODE.format(extra=extra))
    clone.env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PYTHONPATH": str(tmp_path / "here")}
    package = tmp_path / "here" / "smallpkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(CODE.format(extra=3))
    clone.run("measure", "--suite", "mini.suite.json", "--backend", "smallpkg:attention", "--device", "cpu", "--quick",
              "--where", "kv_len == 256", "--out", "b.jsonl")  # fmt: skip
    clone.run("ingest", "b.jsonl")
    with open_store(str(clone.db)) as store:
        (run,) = runs(store, limit=1)
        (row,) = measurements_of_run(store, run.id)
        case = Case(row.case.benchmark, Workload(row.case.operation, row.case.params), row.case.backend)
    incident_of(clone, case)
    del clone.env["PYTHONPATH"]
    args = ("bisect", "slowpkg", "--package", "smallpkg", "--versions", "1.0", "1.1", "2.0", "2.1", "--device", "cpu")
    answer = json.loads(clone.run(*args, "--json").stdout)
    assert answer["found"] == ["2.0"] and answer["decided"], answer
    assert "2.0" in clone.run(*args).stdout, "what was measured is remembered"
    bad = clone.run(
        "bisect", "slowpkg", "--package", "smallpkg", "--versions", "1.0", "9.9", "--device", "cpu", expect=3
    )
    assert "9.9" in bad.stderr
    # The same environments as candidates for an upgrade.
    old, new = (
        str(next((clone.repo / ".asv/bisect/environments").glob(f"smallpkg-{v}-*/bin/python"))) for v in ("1.0", "2.1")
    )
    both = ("compare", "--base-python", old, "--head-python", new, "--suite", "mini.suite.json", "--device", "cpu",
            "--backend", "smallpkg:attention", "--json")  # fmt: skip
    report = json.loads(clone.run(*both, expect=1).stdout)
    assert not report["gate"]["go"] and report["gate"]["weighted_ratio"] > 1.5
    assert len(report["gate"]["first_call_s"]) == 2, "caches began empty, so every first call was one"
    assert {c["verdict"] for c in report["cases"]} == {"slower"} and report["triggers"][0]["text"] == "True"
    back = json.loads(clone.run("compare", "--base-python", new, "--head-python", old, *both[5:]).stdout)
    assert back["gate"] | {"go": True, "reasons": []} == back["gate"]
    assert "--versions" in clone.run("bisect", "slowpkg", "extra", "--device", "cpu", expect=2).stderr
