"""Shards: together the whole, the same for everyone, balanced by what is known, and one run after ingest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.engine import open_store
from db.queries import runs, statuses_of_run
from harness.bundle import BundleWriter, read_bundle
from harness.ingest import ingest_bundle
from harness.model import Case, InputError, Measurement, Run, RunEnd, Status
from harness.rotation import Costs
from harness.sharding import Shard, as_shard, costs, parse, part
from tests.db.factory import make_case, make_measurement, make_run

from .test_measure_cli import Cli, suite

BACKENDS = ("sdpa_math", "segmented", "paged")


def cases(workloads: int, backends: int) -> list[Case]:
    return [make_case(i, b) for i in range(workloads) for b in BACKENDS[:backends]]


@st.composite
def sharded(draw: st.DrawFn) -> tuple[list[Case], int, Costs]:
    found = cases(draw(st.integers(1, 12)), draw(st.integers(1, 3)))
    some = draw(st.lists(st.floats(0, 100), max_size=len(found)))
    return found, draw(st.integers(1, len(found))), Costs({c.key: s for c, s in zip(found, some, strict=False)})


@given(sharded())
def test_the_parts_are_the_whole_and_none_is_empty(given: tuple[list[Case], int, Costs]) -> None:
    found, count, known = given
    parts = [part(found, Shard(i + 1, count), known) for i in range(count)]
    assert sorted(c.key for p in parts for c in p) == sorted(c.key for c in found)
    assert all(parts)
    assert parts == [part(list(found), Shard(i + 1, count), Costs(dict(known.durations))) for i in range(count)]
    for p in parts:
        assert [c for c in found if c in p] == p, "in their order"


@given(sharded())
def test_no_part_costs_more_than_the_rule_promises(given: tuple[list[Case], int, Costs]) -> None:
    """List scheduling: at most the mean load and one more group."""
    found, count, known = given
    loads = [sum(map(known.of, part(found, Shard(i + 1, count), known))) for i in range(count)]
    grouped: dict[str, float] = {}
    for case in found:
        grouped[case.workload.label] = grouped.get(case.workload.label, 0.0) + known.of(case)
    if len(grouped) >= count:
        assert max(loads) <= sum(loads) / count + max(grouped.values()) + 1e-6


def test_what_took_long_is_spread_and_workloads_stay_together() -> None:
    found = cases(8, 3)
    slow = {c.key: 60.0 for c in found[:3]} | {c.key: 1.0 for c in found[3:]}
    first, second = (part(found, Shard(i, 2), Costs(slow)) for i in (1, 2))
    assert [c.workload for c in first] == [found[0].workload] * 3, "the slow one alone outweighs all others"
    assert len(second) == 21
    blind = part(found, Shard(1, 2), Costs())
    assert len(blind) == 12 and len({c.workload.label for c in blind}) == 4


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1", "1/0", "a/b", "1/2/3", "-1/2", "1.0/2", "\u0661/2", "1/9"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(InputError, match=r"--shard: .*(give|at most)"):
        parse(text, cases(2, 2))


def test_costs_come_from_a_bundle(tmp_path: Path) -> None:
    found, path = cases(2, 1), tmp_path / "b.jsonl"
    with BundleWriter(path) as out:
        run = make_run()
        out.run(run)
        for case, took in zip(found, (3.0, 4.0), strict=True):
            out.measurement(run.id, make_measurement(case, duration_s=took))
    known = costs(str(path))
    assert known.of(found[1]) - known.of(found[0]) == pytest.approx(1.0)
    with pytest.raises(InputError, match="--shard-costs: no file"):
        costs(str(tmp_path / "none"))
    path.write_text("nonsense\n")
    with pytest.raises(InputError, match=r"b\.jsonl:1"):
        costs(str(path))


def test_shards_share_a_run_only_where_all_is_alike() -> None:
    run, ci = make_run(), {"GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "1"}
    one, two = (as_shard(run, Shard(i, 2), 9, None, ci) for i in (1, 2))
    assert one.id == two.id != run.id and one.planned == 9 and one.options["shard"] == "1/2"
    others = [
        as_shard(run, Shard(1, 3), 9, None, ci),
        as_shard(run, Shard(1, 2), 9, "mine", ci),
        as_shard(run, Shard(1, 2), 9, None, {**ci, "GITHUB_RUN_ATTEMPT": "2"}),
        as_shard(make_run(1), Shard(1, 2), 9, None, ci),
        as_shard(make_run(options={"seed": 2}), Shard(1, 2), 9, None, ci),
    ]
    assert len({one.id, *(o.id for o in others)}) == 6
    alone = as_shard(run, Shard(1, 2), 9, None, {})
    assert (alone.id, alone.planned) == (run.id, run.planned)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_ingest_puts_shards_together(tmp_path: Path, order: tuple[int, ...]) -> None:
    """In any order, broken off or not, any number of times."""
    found, whole = cases(6, 2), make_run(planned=0)
    paths = []
    for k in range(3):
        run = as_shard(Run(**{**vars(whole), "started_at": whole.started_at - 100 * k}), Shard(k + 1, 3), 12, "ci")
        paths.append(tmp_path / f"{k}.jsonl")
        with BundleWriter(paths[-1]) as out:
            out.run(run)
            mine = part(found, Shard(k + 1, 3), Costs())
            for case in mine:
                out.measurement(run.id, make_measurement(case, at=run.started_at))
            out.end(RunEnd(run.id, run.started_at + 50, measured=len(mine)))
    with open_store(tmp_path / "x.db") as store:
        for done, k in enumerate(order, 1):
            report = ingest_bundle(store, paths[k])
            assert (report.taken, report.warnings) == (4, [])
            (row,) = runs(store)
            assert (row.measured, row.planned, row.complete) == (4 * done, 12, done == 3)
        for k in order:
            assert ingest_bundle(store, paths[k]).taken == 0
        (row,) = runs(store)
        assert (row.measured, row.complete) == (12, True)
        assert (row.started_at, row.finished_at) == (whole.started_at - 200, whole.started_at + 50)
        assert len(statuses_of_run(store, row.id)) == 12


def test_the_command_measures_shards(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    args = ("--suite", suite(tmp_path, 5), "--backend", "sdpa_math", "--device", "cpu")
    listed = [json.loads(cli(*args, "--shard", f"{i}/2", "--list", "--json")[1])["cases"] for i in (1, 2)]
    assert sorted(c["q_len"] for cs in listed for c in cs) == [1, 2, 3, 4, 5]
    for i in (1, 2):
        code, _, err = cli(*args, "--shard", f"{i}/2", "--run", "ci-1")
        assert code == 0, err
    code, out, err = cli(*args, "--shard", "1/2", "--run", "ci-1", "--json")
    assert code == 0 and json.loads(out)["measured"] == 0, "a shard that is there is not measured again"
    with open_store(tmp_path / "x.db") as store:
        for i in (1, 2):
            ingest_bundle(store, tmp_path / f"attnwatch-mine-{i}of2.jsonl")
        (row,) = runs(store)
        assert (row.measured, row.planned, row.complete) == (5, 5, True)
    measured = [
        line.record
        for i in (1, 2)
        for line in read_bundle(tmp_path / f"attnwatch-mine-{i}of2.jsonl")
        if isinstance(line.record, Measurement)
    ]
    assert len(measured) == 5 and {m.status for m in measured} == {Status.OK}
    code, _, err = cli(*args, "--shard", "3/2")
    assert code == 2 and "--shard" in err
