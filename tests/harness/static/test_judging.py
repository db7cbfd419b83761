"""Records through bundle, store, judge and comment; nothing is compiled here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from db.engine import Store, open_store
from db.queries import incidents, machines, measurements_of_run, runs
from harness.bisecting import by_commit
from harness.comment.nights import from_store
from harness.comment.reading import from_json
from harness.comment.render import render
from harness.imports import import_paths, judge_new
from harness.jsonout import dumps
from harness.judge.settle import confirm_incident, explain_incident
from harness.model import InputError, Reason, Revision
from harness.model.metrics import METRICS, STATIC
from harness.report import as_plain, summary
from harness.static import StaticRecord
from harness.static.bundle import case_of, run_of, write_bundle

from .samples import NOW, grid, night, record, where


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "s.db") as opened:
        yield opened


def bundle(path: Path, day: int, records: list[StaticRecord]) -> Path:
    revision = Revision(f"{day:040x}", kernels_hash=f"h{day}")
    run = run_of(records, revision, grid="pull_request", started_at=NOW + 86400 * day, reason=Reason.NIGHTLY)
    write_bundle(path, [(run, records)])
    return path


def test_what_was_compiled_for_is_the_machine_and_every_number_is_kept(store: Store, tmp_path: Path) -> None:
    night(store, tmp_path, 1, grid(), grid("sm_80"))
    known = {m.device_model: m for m in machines(store)}
    assert set(known) == {"sm_80", "sm_90"} and {m.device_kind for m in known.values()} == {"compile_target"}
    assert known["sm_80"].fingerprint != known["sm_90"].fingerprint
    (run,) = (r for r in runs(store) if r.device_model == "sm_90")
    assert run.suite == "static" and not run.host and run.planned == run.measured == 48 and run.complete
    row = next(r for r in measurements_of_run(store, run.id) if r.case.params["head_dim"] == 128)
    assert row.case.params["target"] == "sm_90" and row.case.params["kernel"] == "attend"
    assert row.case.backend == "segmented_triton" and row.case.benchmark == "static"
    assert set(row.metrics) == STATIC
    held = {name: row.metrics[name].value for name in ("registers", "occupancy", "matrix_level", "wide_load_share")}
    assert held == {"registers": 200, "occupancy": 0.125, "matrix_level": 2, "wide_load_share": 16 / 17}
    assert row.telemetry["num_warps"] == 8 and row.telemetry["sass_hgmma"] == 32


def test_another_tile_is_the_same_case() -> None:
    assert case_of(record(options={"num_warps": 4})).key == case_of(record()).key
    assert case_of(record(target="sm_80")).key != case_of(record()).key
    assert case_of(record()).columns["configuration"] == "attend d128", "kernels that say no more than their label"


@pytest.mark.parametrize(
    "changes, metric",
    [
        ({"spill_bytes": 900, "stack_bytes": 264}, "spill_bytes"),
        ({"occupancy": 0.0625}, "occupancy"),
        ({"occupancy": 0.0, "blocks_per_sm": 0}, "occupancy"),
        ({"instructions": {"hmma": 256, "ldgsts_128": 16, "ldg_32": 1, "total": 900}}, "matrix_level"),
        ({"instructions": {"hgmma": 32, "ldgsts_64": 32, "ldg_32": 1, "total": 900}}, "wide_load_share"),
        ({"error": "PTXASError: out of registers"}, "status"),
    ],
)
def test_what_alerts_is_told_with_its_trigger_and_recovers(
    store: Store, tmp_path: Path, changes: dict[str, Any], metric: str
) -> None:
    night(store, tmp_path, 1, grid())
    report = night(store, tmp_path, 2, where(grid(), 128, **changes))
    (found,) = report.new_confirmed
    assert {f.metric for f in found.findings} == {metric} and len(found.findings) == 12
    assert found.trigger == "head_dim == 128" and found.evidence.startswith("12 of 12 regressed inside, 0 of 36")
    assert "compiled code, exact" in found.findings[0].how and not report.alarms
    assert "attnwatch static --base" in summary(report) and "ok -> ok" not in summary(report)
    again = night(store, tmp_path, 3, where(grid(), 128, **changes))
    assert again.new_confirmed == [] and again.still_open == [found.id]
    assert night(store, tmp_path, 4, grid()).recovered == [found.id]


@pytest.mark.parametrize(
    "changes",
    [
        {"registers": 230}, {"shared_bytes": 2000}, {"options": {"num_warps": 4}},
        {"instructions": {"hgmma": 16, "ldgsts_128": 32, "ldg_32": 3, "total": 1200}},
    ],
)  # fmt: skip
def test_what_does_not_alert_is_kept(store: Store, tmp_path: Path, changes: dict[str, Any]) -> None:
    night(store, tmp_path, 1, grid())
    report = night(store, tmp_path, 2, where(grid(), 128, **changes))
    assert report.incidents == [] and report.compared == 48
    base, head = (
        {
            r.case.key: {**r.telemetry, **{k: v.value for k, v in r.metrics.items()}}
            for r in measurements_of_run(store, i)
        }
        for i in (report.base_run or "", report.run_id)
    )
    assert sum(base[key] != head[key] for key in base) == 12


def test_what_befalls_some_of_the_cases_belongs_to_the_change_that_befell_all(store: Store, tmp_path: Path) -> None:
    night(store, tmp_path, 1, grid())
    spilling = where(grid(), 128, spill_bytes=900)
    head = [replace(r, occupancy=0.0625) if r.spill_bytes and r.problem["causal"] else r for r in spilling]
    (found,) = night(store, tmp_path, 2, head).new_confirmed
    assert found.trigger == "head_dim == 128" and len(found.findings) == 18
    assert sum(f.metric == "occupancy" for f in found.findings) == 6


def test_what_nobody_can_time_is_explained_and_not_measured_again(store: Store, tmp_path: Path) -> None:
    night(store, tmp_path, 1, grid())
    (found,) = night(store, tmp_path, 2, where(grid(), 128, spill_bytes=900)).new_confirmed
    assert explain_incident(store, found.id)["triggers"][0]["text"] == "head_dim == 128"
    for asked in (
        lambda: confirm_incident(store, found.id, tmp_path, "cpu", measurements=1, deadline=None, say=print),
        lambda: by_commit(store, found.id, tmp_path, "cpu"),
    ):
        with pytest.raises(InputError, match="attnwatch static --base"):
            asked()


def test_an_improvement_is_no_finding(store: Store, tmp_path: Path) -> None:
    night(store, tmp_path, 1, grid(spill_bytes=8, occupancy=0.125))
    assert night(store, tmp_path, 2, grid(occupancy=0.25)).incidents == []


def test_a_new_compiler_is_one_finding_whatever_it_did(store: Store, tmp_path: Path) -> None:
    night(store, tmp_path, 1, grid())
    other = where(where(grid(triton_version="3.8.0"), 64, occupancy=0.0625), 192, spill_bytes=8)
    report = night(store, tmp_path, 2, other)
    (found,) = report.new_confirmed
    assert found.title.startswith("compiled code changed with triton 3.7.1 -> 3.8.0: segmented_triton")
    assert {f.metric for f in found.findings} == {"occupancy", "spill_bytes"} and len(found.findings) == 24
    assert "package triton: 3.7.1 -> 3.8.0" in report.what_changed
    for facts in (from_store(store), from_json(dumps(as_plain(report)), "r")):
        (group,) = facts.groups
        assert group.cause == "triton 3.7.1 -> 3.8.0" and group.confirmed
        assert "with the compiler: `triton 3.7.1 -> 3.8.0`" in render(facts)


def test_the_comment_says_the_same_of_the_report_and_of_the_store(store: Store, tmp_path: Path) -> None:
    night(store, tmp_path, 1, grid())
    report = night(store, tmp_path, 2, where(grid(), 128, spill_bytes=900, occupancy=0.0625))
    told = {render(f) for f in (from_store(store, report.run_id), from_json(dumps(as_plain(report)), "r"))}
    for body in told:
        assert "head_dim == 128" in body and "0 → 900" in body and "`ok` → `ok`" not in body
        assert f"attnwatch static --base {1:040x} --head {2:040x} --where 'head_dim == 128'" in body
    assert any("compiled kernel has less (`occupancy`)" in body for body in told)


def test_a_report_of_compare_carries_the_compiled_part(store: Store, tmp_path: Path) -> None:
    night(store, tmp_path, 1, grid())
    report = night(store, tmp_path, 2, where(grid(), 128, spill_bytes=900))
    plain = {"base": "1" * 40, "head": "2" * 40, "cases": [], "triggers": [], "unexplained": []}
    assert from_json(dumps(plain), "r").groups == ()
    facts = from_json(dumps({**plain, "static": as_plain(report)}), "r")
    (group,) = facts.groups
    assert facts.state == "adverse" and group.metric == "spill_bytes"
    body = render(facts)
    assert "attnwatch static --base" in body and "triage" not in body, "the incident is in no store"
    with pytest.raises(InputError, match="static"):
        from_json(dumps({**plain, "static": [1]}), "r")


def test_bundles_are_ingested_once_and_judged_at_once(store: Store, tmp_path: Path) -> None:
    first, second = (
        bundle(tmp_path / "1.jsonl", 1, grid()),
        bundle(tmp_path / "2.jsonl", 2, where(grid(), 80, spill_bytes=4)),
    )
    assert import_paths(store, [first])["taken"] == 48 and judge_new(store) == []
    assert import_paths(store, [second])["taken"] == 48
    (told,) = judge_new(store)
    (found,) = incidents(store)
    assert found.id == told and found.trigger_text == "head_dim == 80"
    again = import_paths(store, [first, second])
    assert (again["taken"], again["duplicates"]) == (0, 96) and judge_new(store) == []


def test_a_longer_grid_is_another_suite(store: Store, tmp_path: Path) -> None:
    night(store, tmp_path, 1, grid(), grid="full")
    report = night(store, tmp_path, 2, grid()[:10])
    assert report.suite == "static" and not report.coverage


def test_cases_that_left_the_grid_are_lost_coverage(store: Store, tmp_path: Path) -> None:
    night(store, tmp_path, 1, grid())
    report = night(store, tmp_path, 2, grid()[:-1])
    (alarm,) = report.alarms
    assert alarm.kind == "stopped" and alarm.subject == "segmented_triton"


def test_metrics_of_compiled_code_are_registered_exact() -> None:
    assert all(METRICS[name].exact for name in STATIC)
    alerting = {name for name in STATIC if METRICS[name].judged}
    assert alerting == {"spill_bytes", "occupancy", "matrix_level", "wide_load_share"}


def test_what_does_not_compile_says_why(store: Store, tmp_path: Path) -> None:
    broken = replace(grid()[0], error="PTXASError: out of registers")
    report = night(store, tmp_path, 1, [broken, *grid()[1:]])
    assert report.counts == {"ok": 47, "crashed": 1}
    assert "PTXASError: out of registers" in report.failures[0][2]
