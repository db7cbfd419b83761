"""Imported history is judged: what regressed, since when, for which parameters, by the commands that people use."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from db.engine import open_store
from db.imported import unjudged_machines
from db.queries import incidents
from db.repository import triage
from harness.imports import import_paths, judge_new
from harness.model import TriageState
from harness.model.expr import compile_expr
from tests.harness.readers.samples import T0, asv_directory, planted


def attnwatch(*args: str) -> tuple[int, Any]:
    """Exit code and JSON of a command."""
    done = subprocess.run([sys.executable, "-m", "harness.cli", *args, "--json"], capture_output=True, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_a_planted_step_is_found_with_its_trigger(tmp_path: Path) -> None:
    root, db = planted(tmp_path / "results", runs=60, step=40), str(tmp_path / "s.db")
    code, checked = attnwatch("import-check", str(root))
    code, report = attnwatch("ingest", str(root), "--db", db)
    assert (code, report["taken"], report["dropped"]) == (0, 60 * 48, 0)
    assert (checked["taken"], checked["dropped"], checked["reasons"]) == (report["taken"], 0, {})
    assert len(report["incidents"]) == 1

    code, told = attnwatch("detect", "--db", db)
    assert code == 1
    (incident,) = told["incidents"]
    assert (incident["state"], incident["cases"]) == ("new", 6)
    assert incident["first_bad_revision"] == f"{40:040x}" and incident["last_good_revision"] == f"{39:040x}"
    assert incident["effect"] == pytest.approx(1.3, rel=0.02)
    inside = {"benchmark": "suite.Work.time_run", "size": 512, "dtype": "float64"}
    outside = [{**inside, "size": 128}, {**inside, "dtype": "float32"}, {**inside, "benchmark": "suite.Work.time_plan"}]
    holds = compile_expr(incident["trigger"])
    for row, expected in [(inside, True), *((r, False) for r in outside)]:
        assert holds(row) is expected

    code, explained = attnwatch("explain", incident["id"], "--db", db)
    assert code == 0 and explained["unexplained"] == []
    (trigger,) = explained["triggers"]
    assert (trigger["regressed_inside"], trigger["inside"], trigger["regressed_total"]) == (6, 6, 6)
    assert {c["size"] for c in trigger["combinations"]} == {256, 384, 512, 768, 1024, 1536}

    code, again = attnwatch("ingest", str(root), "--db", db)
    assert (code, again["taken"], again["duplicates"], again["incidents"]) == (0, 0, 60 * 48, [])
    assert len(attnwatch("detect", "--db", db)[1]["incidents"]) == 1


def test_no_change_gives_no_incident_and_each_history_is_judged_once(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.db") as store:
        import_paths(store, [planted(tmp_path / "r", runs=30, step=99)])
        assert len(unjudged_machines(store)) == 1
        assert judge_new(store) == [] and incidents(store) == []
        assert unjudged_machines(store) == {}


@pytest.mark.slow
def test_the_same_regression_is_told_once_and_closed_when_it_is_gone(tmp_path: Path) -> None:
    whole = planted(tmp_path / "all", runs=60, step=20)
    files = sorted((whole / "box").glob("*-virtualenv*.json"))
    growing = tmp_path / "growing"
    (growing / "box").mkdir(parents=True)
    shutil.copy(whole / "benchmarks.json", growing)
    with open_store(tmp_path / "s.db") as store:
        for path in files[:40]:
            shutil.copy(path, growing / "box")
        import_paths(store, [growing])
        (first,) = judge_new(store)
        for path in files[40:]:
            shutil.copy(path, growing / "box")
        import_paths(store, [growing])
        assert judge_new(store) == []
        assert [(i.id, i.state) for i in incidents(store)] == [(first, "new")]
        # Back at the old level, in commits that come later.
        healed = []
        for k, path in enumerate(sorted((planted(tmp_path / "b", runs=20, step=99, seed=9) / "box").glob("*-v*.json"))):
            content = json.loads(path.read_text())
            healed.append({**content, "commit_hash": f"{100 + k:040x}", "date": T0 + (100 + k) * 86_400_000})
        asv_directory(growing, healed)
        import_paths(store, [growing])
        assert judge_new(store) == []
        assert [i.state for i in incidents(store)] == ["fixed"]


@pytest.mark.slow
def test_what_people_have_settled_stays_settled(tmp_path: Path) -> None:
    root = planted(tmp_path / "r", runs=50, step=30)
    with open_store(tmp_path / "s.db") as store:
        import_paths(store, [root])
        (first,) = judge_new(store)
        triage(store, first, TriageState.FALSE_POSITIVE, "the machine was replaced", "team")
        asv_directory(root, [])
        for path in list((root / "box").glob("*-virtualenv*.json"))[:1]:
            content = json.loads(path.read_text())
            asv_directory(root, [{**content, "commit_hash": f"{77:040x}"}])
        import_paths(store, [root])
        assert unjudged_machines(store)
        assert judge_new(store) == []
        assert [i.state for i in incidents(store)] == ["false_positive"]


@pytest.mark.slow
def test_old_starts_are_explained_on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.judge import imported
    from harness.judge.settle import explain_incident

    root = planted(tmp_path / "r", runs=60, step=20)
    for k, path in enumerate(sorted((root / "box").glob("*-virtualenv*.json"))):
        if k >= 45:  # a second step, of the other benchmark, later
            content = json.loads(path.read_text())
            row = content["results"]["suite.Work.time_plan"]
            row[0] = [v * 1.5 for v in row[0]]
            path.write_text(json.dumps(content))
    monkeypatch.setattr(imported, "_EXPLAINED", 1)
    with open_store(tmp_path / "s.db") as store:
        import_paths(store, [root])
        judge_new(store)
        old, new = sorted(incidents(store), key=lambda i: i.first_bad_revision or "")
        assert new.trigger_text == "benchmark == 'suite.Work.time_plan'" and old.trigger_text == ""
        assert old.title == "suite.Work.time_run slower in 6 of 48 cases"
        assert len(explain_incident(store, old.id)["triggers"]) == 1
