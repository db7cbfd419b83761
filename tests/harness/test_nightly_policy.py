"""A policy that is edited while a night measures decides what that night tells."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import harness.judge
import harness.nightly
import harness.report
from harness.nightly import Measured, NightlyOptions, nightly
from harness.policy import read_policy
from tests.db.factory import make_case, make_measurement, make_run, write_run


@pytest.mark.parametrize(("later", "effect", "told"), [
    ("minimum_effect = 0.09\n", 0.09, " -> "), ("minimum_efect = 0.5\n", 0.05, "stays in force"),
])  # fmt: skip
def test_the_policy_of_the_end_of_the_sweep_judges(
    later: str, effect: float, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNWATCH_RUNTIME_DIR", str(tmp_path / "rt"))
    path = tmp_path / "attnwatch.toml"
    path.write_text("minimum_effect = 0.05\n")
    options = NightlyOptions("smoke", "cpu", tmp_path, db=str(tmp_path / "n.db"), policy=read_policy(str(path)))
    options.folder.mkdir(parents=True)
    seen: dict[str, Any] = {}

    def measure(*_: object) -> Measured:
        path.write_text(later)
        run = make_run()
        bundle = write_run(tmp_path / "night.jsonl", run, [make_measurement(make_case(), at=run.started_at)])
        return Measured(bundle, run.id, SimpleNamespace(root=tmp_path), [])  # type: ignore[arg-type]

    def judge(store: object, run_id: str, plan: Any, *_: object) -> object:
        seen.update(policy=plan.policy, notes=plan.notes)
        return SimpleNamespace()

    monkeypatch.setattr(harness.nightly, "plan_night", lambda *_: SimpleNamespace(earlier=None, notes=[], cases=[]))
    monkeypatch.setattr(harness.nightly, "measure_night", measure)
    monkeypatch.setattr(harness.judge, "judge_night", judge)
    monkeypatch.setattr(harness.report, "write_reports", lambda *_: [])
    nightly(options, lambda *_: None, lambda text: None)
    assert seen["policy"].minimum_effect({}) == effect
    assert any(told in note for note in seen["notes"]), seen["notes"]
