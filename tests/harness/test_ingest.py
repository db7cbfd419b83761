"""Ingest: all or nothing, once, whatever happens on the way."""

from __future__ import annotations

import gc
import json
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from db.engine import Store, open_store
from db.importer import OK_STORED
from db.queries import cases, controls, measurements_of_run, run, samples
from harness.bundle import BundleWriter
from harness.ingest import IngestReport, ingest_bundle
from harness.model import Environment, InputError, Machine, Revision, RunEnd, Status, Value
from tests.db.factory import dump, make_case, make_measurement, make_run, seeded_bundle, write_run

CHILD = "import sys\nfrom tests.db.children import ingest\nsys.exit(ingest(*sys.argv[1:]))"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "x.db")


def test_everything_comes_back(store: Store, tmp_path: Path) -> None:
    case = make_case(1, weight=2.5)
    m = make_measurement(case, 0.002, discarded={"throttled": 2})
    path = write_run(tmp_path / "b.jsonl", make_run(), [m])
    assert ingest_bundle(store, path) == IngestReport(taken=1, runs=["run-000"])
    (row,) = measurements_of_run(store, "run-000")
    assert (row.case.key, row.case.params, row.case.weight) == (case.key, case.workload.params, 2.5)
    assert (row.status, row.attempt, row.duration_s, row.stop_reason) == ("ok", 1, 0.25, "width")
    assert (row.metrics, row.operators, row.telemetry) == (m.metrics, m.operators, m.telemetry)
    assert row.discarded == {"throttled": 2}
    assert samples(store, row.id) == {"samples": m.samples, "warmup": m.warmup}
    assert controls(store, ["run-000"]) == {
        "run-000": {"control_gemm_s": [Value(0.01, 0.009, 0.011, 5)], "control_copy_s": [Value(0.002)]}
    }
    found = run(store, "run-000")
    assert found is not None
    assert (found.complete, found.measured, found.revision) == (True, 1, "rev0")
    assert found.finished_at == found.started_at + 60
    assert found.machine == Machine("cpu", "Test CPU").fingerprint
    assert found.environment == make_run().environment.hash


def test_second_ingest_changes_nothing(store: Store, tmp_path: Path) -> None:
    path = seeded_bundle(tmp_path / "b.jsonl", 5)
    first = ingest_bundle(store, path, chunk=7)
    before = dump(tmp_path / "x.db")
    second = ingest_bundle(store, path, chunk=11)
    assert (second.taken, second.dropped, second.duplicates) == (0, 0, first.taken)
    assert dump(tmp_path / "x.db") == before
    assert first.taken == sum('"kind":"measurement"' in line for line in path.read_text().splitlines())


def test_chunks_leave_no_trace(tmp_path: Path) -> None:
    path = seeded_bundle(tmp_path / "b.jsonl", 6)
    rows = []
    for chunk in (1, 2, 13, 10_000):
        with open_store(tmp_path / f"{chunk}.db") as store:
            ingest_bundle(store, path, chunk=chunk)
        tables = dump(tmp_path / f"{chunk}.db")
        # Only the numbers given to metrics depend on who came first.
        rows.append({k: v for k, v in tables.items() if k not in ("metric_value", "control_value", "metric")})
        assert len(tables["metric_value"]) == 2 * sum("latency_s" in x for x in path.read_text().splitlines())
    assert rows[0] == rows[1] == rows[2] == rows[3]


def test_bad_line_far_down_changes_nothing(store: Store, tmp_path: Path) -> None:
    path = seeded_bundle(tmp_path / "b.jsonl", 7)
    lines = path.read_text().splitlines()
    at = next(i for i in range(100, len(lines)) if '"kind":"measurement"' in lines[i])
    lines[at] = json.dumps({**json.loads(lines[at]), "started_at": "yesterday"})
    path.write_text("\n".join(lines) + "\n")
    before = dump(tmp_path / "x.db")
    with pytest.raises(InputError, match=rf"b\.jsonl:{at + 1}: .*\$\.started_at"):
        ingest_bundle(store, path, chunk=10)
    assert dump(tmp_path / "x.db") == before


def test_unknown_run_and_reused_run_id(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    with BundleWriter(path) as out:
        out.run(make_run())
        out.measurement("another", make_measurement(make_case()))
    with pytest.raises(InputError, match=r"b\.jsonl:2: field run_id: 'another' is not stored"):
        ingest_bundle(store, path)
    ingest_bundle(store, write_run(tmp_path / "c.jsonl", make_run(), []))
    before = dump(tmp_path / "x.db")
    other = write_run(tmp_path / "d.jsonl", make_run(revision=Revision("else")), [make_measurement(make_case())])
    with pytest.raises(InputError, match=r"d\.jsonl:1: run id 'run-000' is already stored for another"):
        ingest_bundle(store, other)
    assert dump(tmp_path / "x.db") == before


def test_newer_schema_and_cut_line(store: Store, tmp_path: Path) -> None:
    path = write_run(tmp_path / "b.jsonl", make_run(), [make_measurement(make_case(i)) for i in range(3)], end=False)
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    report = ingest_bundle(store, path)
    assert report.taken == 2
    assert len(report.warnings) == 1
    assert "b.jsonl:5: the last line is cut off" in report.warnings[0]
    found = run(store, "run-000")
    assert found is not None
    assert not found.complete
    path.write_bytes(data)
    again = ingest_bundle(store, path)
    assert (again.taken, again.duplicates, again.warnings) == (1, 2, [])
    path.write_text('{"kind": "run", "schema": 2}\n')
    with pytest.raises(InputError, match=r"b\.jsonl:1: field schema: 2 is newer .* upgrade"):
        ingest_bundle(store, path)


def test_empty_bundle_says_so(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text("")
    assert ingest_bundle(store, path).warnings == [f"{path}: holds no records"]


def statuses(store: Store) -> list[tuple[int, str, bool]]:
    rows = measurements_of_run(store, "run-000", superseded=True)
    return sorted((m.attempt, m.status, m.superseded) for m in rows)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 1, 3)])
def test_attempts_supersede(store: Store, tmp_path: Path, apart: bool, order: tuple[int, ...]) -> None:
    case = make_case()
    made = {
        1: make_measurement(case, status=Status.CRASHED, attempt=1, at=1.0),
        2: make_measurement(case, status=Status.TIMED_OUT, attempt=2, at=2.0),
        3: make_measurement(case, attempt=3, at=3.0),
    }
    groups = [[made[i]] for i in order] if apart else [[made[i] for i in order]]
    taken = 0
    dropped = 0
    for i, group in enumerate(groups):
        report = ingest_bundle(store, write_run(tmp_path / f"{i}.jsonl", make_run(), group))
        taken += report.taken
        dropped += report.dropped
        assert set(report.reasons) <= {OK_STORED}
    # Attempts that come after one that is ok are left out; those before it are kept, marked.
    before = order[: order.index(3)]
    assert (taken, dropped) == (len(before) + 1, 2 - len(before))
    assert statuses(store) == sorted([(i, made[i].status.value, True) for i in before] + [(3, "ok", False)])
    (standing,) = measurements_of_run(store, "run-000")
    assert standing.attempt == 3


def test_ok_is_never_overwritten(store: Store, tmp_path: Path) -> None:
    case = make_case()
    ingest_bundle(store, write_run(tmp_path / "a.jsonl", make_run(), [make_measurement(case, 1e-3)]))
    later = [
        make_measurement(case, 5e-3, attempt=2, at=9e9),
        make_measurement(case, status=Status.WRONG, attempt=3),
    ]
    report = ingest_bundle(store, write_run(tmp_path / "b.jsonl", make_run(), later))
    assert (report.taken, report.dropped, report.duplicates) == (0, 2, 0)
    assert report.reasons == {OK_STORED: 2}
    (row,) = measurements_of_run(store, "run-000", superseded=True)
    assert row.metrics["latency_s"].value == 1e-3


CHANGES: dict[str, dict[str, Any]] = {
    "started_at": {"at": 1.7e9 + 1},
    "duration_s": {"duration_s": 0.5},
    "detail": {"detail": "another"},
    "stop_reason": {"stop_reason": "time"},
    "operators": {"operators": ["aten::bmm"]},
    "telemetry": {"telemetry": {"load": 1}},
    "discarded": {"discarded": {"throttled": 1}},
    "samples.latency_s": {"samples": {"latency_s": [1e-3, 2e-3]}},
    "warmup.latency_s": {"warmup": {}},
    "metrics.latency_s": {"metrics": {"latency_s": Value(0.25, n=3), "peak_memory_bytes": Value(4096.0)}},
    "metrics.mine": {
        "metrics": {"latency_s": Value(1e-3, 1e-3 * 0.99, 1e-3 * 1.01, 3), "peak_memory_bytes": Value(4096.0),
                    "mine": Value(1.0)},
    },
    "status": {"status": Status.WRONG, "detail": "it was wrong"},
}  # fmt: skip


@pytest.mark.parametrize("field", CHANGES)
@pytest.mark.parametrize("together", [False, True])
def test_the_same_attempt_with_other_content_is_a_conflict(
    store: Store, tmp_path: Path, field: str, together: bool
) -> None:
    first = make_measurement(make_case(), 1e-3, telemetry={"load": True})
    other = make_measurement(make_case(), 1e-3, **{"telemetry": {"load": True}, **CHANGES[field]})
    path = write_run(tmp_path / "a.jsonl", make_run(), [make_measurement(make_case(9)), first])
    ingest_bundle(store, path)
    before = dump(tmp_path / "x.db")
    # Together with something new, and before or after what it contradicts in one file.
    found = [make_measurement(make_case(5)), *([first] if together else []), other]
    path = write_run(tmp_path / "b.jsonl", make_run(), found)
    with pytest.raises(InputError, match=rf"b\.jsonl:{2 + len(found)}: attempt 1 of prefill sdpa_math") as caught:
        ingest_bundle(store, path)
    assert caught.value.exit_code == 2
    assert "in run 'run-000' is already stored with other content (" in str(caught.value)
    assert field in str(caught.value)
    assert dump(tmp_path / "x.db") == before
    with open_store(tmp_path / "fresh.db") as fresh:
        if together:
            with pytest.raises(InputError, match="is already stored with other content"):
                ingest_bundle(fresh, path)


def test_the_same_content_written_otherwise_is_no_conflict(store: Store, tmp_path: Path) -> None:
    m = make_measurement(make_case(), telemetry={"a": 1, "b": "\u00e9\x00", "c": 10**30, "d": 1e300, "e": None})
    path = write_run(tmp_path / "a.jsonl", make_run(), [m, m])
    report = ingest_bundle(store, path)
    assert (report.taken, report.duplicates) == (1, 1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    turned = [json.dumps(dict(sorted(line.items())), sort_keys=True, ensure_ascii=True) for line in lines]
    (tmp_path / "b.jsonl").write_text("\n".join(turned) + "\n")
    report = ingest_bundle(store, tmp_path / "b.jsonl")
    assert (report.taken, report.duplicates, report.warnings) == (0, 2, [])


def test_what_is_known_of_a_commit_is_kept_and_differences_are_noted(store: Store, tmp_path: Path) -> None:
    def night(number: int, **changes: Any) -> Path:
        revision = Revision("abc", "abc", **changes)
        return write_run(tmp_path / f"{number}.jsonl", make_run(number, revision=revision), [])

    assert ingest_bundle(store, night(0)).warnings == []
    # What was not known is filled in, by whoever knows first.
    assert ingest_bundle(store, night(1, subject="Make it fast", committed_at=1e9)).warnings == []
    report = ingest_bundle(store, night(2, subject="Buy now", committed_at=2e9, dirty=True))
    assert report.warnings == [
        "revision abc: dirty True differs from False, which is stored and kept",
        "revision abc: committed_at 2000000000.0 differs from 1000000000.0, which is stored and kept",
        "revision abc: subject 'Buy now' differs from 'Make it fast', which is stored and kept",
    ]
    assert ingest_bundle(store, night(3)).warnings == [], "a bundle that does not know contradicts nothing"
    for number in range(4):
        found = run(store, f"run-00{number}")
        assert found is not None
        assert (found.subject, found.committed_at, found.dirty) == ("Make it fast", 1e9, False)


def test_a_run_cannot_end_before_it_starts(store: Store, tmp_path: Path) -> None:
    path = write_run(tmp_path / "b.jsonl", make_run(), [make_measurement(make_case())], end=False)
    line = {"kind": "end", "schema": 1, "run_id": "run-000", "finished_at": make_run().started_at - 1}
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    before = dump(tmp_path / "x.db")
    with pytest.raises(InputError, match=r"b\.jsonl:4: field finished_at: 1699999999\.0 is before the start"):
        ingest_bundle(store, path)
    assert dump(tmp_path / "x.db") == before


def test_resumed_run_closes_once(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    write_run(path, make_run(), [make_measurement(make_case(0))], end=False)
    with BundleWriter(path) as out:
        out.end(RunEnd("run-000", 1.7e9 + 100.0, False, 1))
        out.run(make_run(started_at=5e9))
        out.measurement("run-000", make_measurement(make_case(1)))
        out.end(RunEnd("run-000", 5e9 + 200.0, True, 2))
        out.end(RunEnd("run-000", 5e9 + 150.0, False, 1))
    for _ in range(2):
        report = ingest_bundle(store, path)
        assert report.taken + report.duplicates == 2
        found = run(store, "run-000")
        assert found is not None
        assert (found.finished_at, found.complete, found.measured) == (5e9 + 200.0, True, 2)
        assert found.started_at == make_run().started_at


def test_controls_of_several_workers(store: Store, tmp_path: Path) -> None:
    path = write_run(tmp_path / "b.jsonl", make_run(), [])
    with BundleWriter(path) as out:
        out.controls("run-000", {"control_gemm_s": Value(0.02)})
    for _ in range(2):
        ingest_bundle(store, path)
        found = controls(store, ["run-000"])["run-000"]
        assert [v.value for v in found["control_gemm_s"]] == [0.01, 0.02]


def test_weight_follows_new_measurements(store: Store, tmp_path: Path) -> None:
    key = make_case().key
    for number, weight in ((0, 2.0), (1, 3.0)):
        m = make_measurement(make_case(weight=weight))
        ingest_bundle(store, write_run(tmp_path / f"{number}.jsonl", make_run(number), [m]))
        assert cases(store)[key].weight == weight
    ingest_bundle(store, tmp_path / "0.jsonl")
    assert cases(store)[key].weight == 3.0


def test_older_ruler_keeps_its_own_machine(store: Store, tmp_path: Path) -> None:
    for number, ruler in enumerate(("1", "0")):
        environment = Environment(Machine("cpu", "Test CPU"), ruler_version=ruler)
        ingest_bundle(store, write_run(tmp_path / f"{number}.jsonl", make_run(number, environment=environment), []))
    found = [run(store, f"run-00{i}") for i in range(2)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].machine == Machine("cpu", "Test CPU").fingerprint
    assert found[1].machine != found[0].machine
    assert found[1].environment != found[0].environment


HOSTILE = [
    "'; DROP TABLE measurement; --",
    '"><script>alert(1)</script>',
    "a\x00b",
    "\ud800 lone",
    "x" * 500,
    "\u202e\U0001f600 %s %(name)s {0} :name ?",
]


def test_hostile_names(store: Store, tmp_path: Path) -> None:
    for number, text in enumerate(HOSTILE):
        case = make_case(0, text, mine=text)
        m = make_measurement(
            case,
            detail=text,
            metrics={text: Value(1.0)},
            samples={text: [1.0]},
            operators=[text],
            telemetry={text: text},
        )
        new = make_run(number, name=f"{number} {text}", suite=text, machine=Machine(text, text, host=text))
        path = tmp_path / f"{number}.jsonl"
        assert ingest_bundle(store, write_run(path, new, [m])).taken == 1
        report = ingest_bundle(store, path)
        assert (report.taken, report.duplicates) == (0, 1)
        shown = text.replace("\ud800", "\\ud800")
        stored = shown.replace("\x00", "\u2400")
        (row,) = measurements_of_run(store, f"{number} {stored}")
        assert (row.detail, row.case.backend) == (stored, stored)
        assert row.case.params["mine"] == shown
        assert row.operators == [shown]
        assert samples(store, row.id)["samples"] == {shown: [1.0]}
        assert list(row.metrics) == [stored]


@pytest.mark.slow
def test_two_processes_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    shared = [seeded_bundle(tmp_path / f"{seed}.jsonl", seed, runs=6, cases=100) for seed in (1, 2)]
    database = tmp_path / "x.db"
    open_store(database).close()
    code = CHILD.replace("ingest", "ingest_when_told")
    # Each file is taken by two processes, chunk by chunk, all four at once.
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(database), str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for path in shared * 2
    ]  # fmt: skip
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate()[0].splitlines()[-1].split() for child in children]
    assert [child.returncode for child in children] == [0] * 4
    totals = dict.fromkeys((0, 1), 0)
    for i, words in enumerate(said):
        totals[i % 2] += int(words[1])
        assert int(words[1]) + int(words[3]) == measurement_count(shared[i % 2])
    assert totals == {i: measurement_count(shared[i]) for i in (0, 1)}
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM measurement").fetchone()[0] == sum(totals.values())
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def measurement_count(path: Path) -> int:
    return path.read_text().count('"kind":"measurement"')


@pytest.mark.slow
def test_killed_ingest_is_finished_by_the_next(tmp_path: Path) -> None:
    path = seeded_bundle(tmp_path / "b.jsonl", 9)
    with open_store(tmp_path / "calm.db") as store:
        whole = ingest_bundle(store, path, chunk=5)
    calm = dump(tmp_path / "calm.db")
    rng = random.Random(11)
    chunks = -(-len(path.read_text().splitlines()) // 5)
    for moment in [1, chunks, *(rng.randrange(2, chunks) for _ in range(2))]:
        database = tmp_path / f"killed-{moment}.db"
        open_store(database).close()
        empty = dump(database)
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(database), str(path), "5"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stdout is not None
        assert child.stdin is not None
        for i in range(moment):
            assert child.stdout.readline().strip().isdigit()
            if i < moment - 1:
                child.stdin.write("\n")
                child.stdin.flush()
        child.kill()  # SIGKILL, in the transaction, with this many chunks written
        assert child.wait() == -9
        child.stdin.close()
        child.stdout.close()
        assert dump(database) == empty
        with open_store(database) as store:
            assert ingest_bundle(store, path, chunk=5) == whole
        assert dump(database) == calm


def test_cycle_search_is_switched_on_again(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text("nonsense\n")
    with pytest.raises(InputError):
        ingest_bundle(store, path)
    assert gc.isenabled()
