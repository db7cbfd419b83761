"""What is taken of github-action-benchmark, pytest-benchmark, Google Benchmark, hyperfine, nvbench, tritonbench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from db.engine import Store, open_store
from db.export import metric_rows, samples_of_run
from db.queries import MeasurementRow, measurements_of_run, runs
from harness.imports import check_paths, import_paths
from harness.model import InputError

from .samples import (
    T0,
    TRITON_CSV,
    action_entry,
    data_js,
    google_file,
    hyperfine_file,
    nvbench_file,
    put,
    pytest_file,
    triton_json,
)  # fmt: skip


def taken(tmp_path: Path, path: Path) -> tuple[Store, dict[str, Any]]:
    """The store and the report; taking the same again must change nothing."""
    store = open_store(tmp_path / "s.db")
    report = import_paths(store, [path])
    again = import_paths(store, [path])
    assert (again["taken"], again["duplicates"]) == (0, report["taken"])
    assert (again["reasons"], sorted(again["runs"])) == (report["reasons"], sorted(report["runs"]))
    return store, report


def rows(store: Store) -> list[MeasurementRow]:
    return [m for r in reversed(runs(store)) for m in measurements_of_run(store, r.id)]


def values(store: Store) -> dict[str, dict[str, float]]:
    """Benchmark, backend and parameters -> metric -> value."""
    return {
        f"{m.case.benchmark}|{m.case.backend}|{m.case.label}": {k: v.value for k, v in m.metrics.items()}
        for m in rows(store)
    }


def test_data_js(tmp_path: Path) -> None:
    bench = {"name": "x", "value": 10, "unit": "ns/iter", "range": "± 1"}
    history = {
        "micro": [
            action_entry(
                1, [bench, {"name": "x", "value": 12, "unit": "ns/iter"}, {"name": "y", "value": None, "unit": "s"}]
            ),
            action_entry(2, [{**bench, "value": "11.5"}]),
            action_entry(2, [{**bench, "value": 13}]),
        ],
        "macro": [action_entry(1, [{"name": "z", "value": 5, "unit": "%"}], "customBiggerIsBetter")],
    }
    store, report = taken(tmp_path, data_js(tmp_path / "data.js", history))
    assert report["taken"] == 5 and report["dropped"] == 1 and report["formats"] == ["github-action-benchmark"]
    held = sorted(runs(store), key=lambda r: r.started_at)
    assert [r.commit for r in held] == [f"{k:040x}" for k in (1, 2, 2)], "a commit measured twice gives two runs"
    assert held[0].started_at == T0 / 1000 + 86_400 and held[0].committed_at == 1714557600.0
    assert held[0].subject == "change 1" and held[0].device_model == "CI of https://example.org/team/project"
    first = {m.case.label: m for m in measurements_of_run(store, held[0].id)}
    assert {m.case.operation for m in first.values()} == {"micro", "macro"}, "suites of a commit are one run"
    assert first["occurrence=2"].metrics["latency_s"].value == pytest.approx(12e-9)
    meanings = metric_rows(store)
    assert (meanings["value_percent_higher"].unit, meanings["value_percent_higher"].better) == ("%", "higher")


def test_a_history_that_grew_and_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "data.js"
    bench = [{"name": "x", "value": 10, "unit": "ns/iter"}]
    store, _ = taken(tmp_path, data_js(path, {"s": [action_entry(1, bench)]}))
    data_js(path, {"s": [action_entry(1, bench), action_entry(2, bench)]})
    report = import_paths(store, [path])
    assert (report["taken"], report["duplicates"]) == (1, 1)
    data_js(path, {"s": [action_entry(1, [{**bench[0], "value": 99}]), action_entry(2, bench)]})
    report = import_paths(store, [path])
    assert (report["taken"], report["duplicates"], report["dropped"]) == (0, 1, 1)
    assert "differs from what was taken from this source before" in next(iter(report["reasons"]))
    data_js(path, {"s": [{**action_entry(1, bench), "date": None}]})
    with pytest.raises(InputError, match=r"data.js: field entries.s\[0\].date: must be milliseconds"):
        check_paths([path])
    path.write_text("window.BENCHMARK_DATA = {\n'entries': {}}")
    with pytest.raises(InputError, match=r"data.js:2: not JSON"):
        check_paths([path])


def test_pytest_benchmark(tmp_path: Path) -> None:
    store, report = taken(tmp_path, put(tmp_path / "x.json", pytest_file()))
    assert report["taken"] == 2 and report["formats"] == ["pytest-benchmark"]
    assert values(store) == {
        "tests/test_sort.py::test_sort|pytest|n=10 stable=True": {"latency_s": 1.0},
        "tests/test_sort.py::test_plain|pytest|": {"latency_s": 1.0},
    }
    run = runs(store)[0]
    assert (run.commit, run.started_at, run.device_model) == ("ab" * 20, 1714566600.5, "Some CPU")
    assert {m.metrics["latency_s"].n for m in rows(store)} == {3}
    assert next(iter(samples_of_run(store, run.id).values())) == {"latency_s": [0.9, 1.0, 1.4]}
    dirty = pytest_file(commit_info={"id": "cd" * 20, "dirty": True}, datetime="2024-05-02T00:00:00")
    assert import_paths(store, [put(tmp_path / "y.json", dirty)])["taken"] == 2
    assert runs(store)[0].dirty and runs(store)[0].revision.startswith("cd" * 20 + "+dirty.")
    with pytest.raises(InputError, match=r"z.json: field datetime: must be an ISO 8601 time"):
        check_paths([put(tmp_path / "z.json", pytest_file(datetime="today"))])


def test_google_benchmark(tmp_path: Path) -> None:
    store, report = taken(tmp_path, put(tmp_path / "x.json", google_file()))
    assert report["taken"] == 3 and report["formats"] == ["google-benchmark"]
    assert report["reasons"] == {
        "repetition, kept as a sample of its case": 2, "aggregate (mean, stddev, cv ...) of repetitions": 2,
        "the benchmark reported an error or was skipped": 1,
    }  # fmt: skip
    found = values(store)
    assert found["BM_copy<std::map<int, a/b>>|c++|arg0=8 n=64"]["bytes_per_s"] == 1e9
    assert found["BM_sort/real_time|c++|arg0=1024 threads=4"]["latency_s"] == pytest.approx(10e-6)
    assert found["BM_rep|c++|arg0=8"] == {"latency_s": pytest.approx(2e-6), "cpu_s": pytest.approx(1.8e-6)}


def test_google_benchmark_with_aggregates_only(tmp_path: Path) -> None:
    content = google_file()
    base = content["benchmarks"][1]
    content["benchmarks"] = [
        {**base, "run_type": "aggregate", "aggregate_name": name, "real_time": t, "name": f"x_{name}"}
        for name, t in (("mean", 3.0), ("median", 2.0), ("stddev", 0.1))
    ]
    store, report = taken(tmp_path, put(tmp_path / "x.json", content))
    assert (report["taken"], report["dropped"]) == (1, 2)
    assert rows(store)[0].metrics["latency_s"].value == pytest.approx(2e-6)


def test_hyperfine(tmp_path: Path) -> None:
    store, report = taken(tmp_path, put(tmp_path / "x.json", hyperfine_file()))
    assert report["taken"] == 2 and report["formats"] == ["hyperfine"]
    found = values(store)
    assert found["sort -n {n}.txt --size {n}|hyperfine|n=10"]["latency_s"] == 0.1
    assert found["sort -n {n}.txt --size {n}|hyperfine|n=100"] == {
        "latency_s": 0.9, "user_time_s": 0.45, "system_time_s": 0.225
    }  # fmt: skip
    assert runs(store)[0].device_model == "unknown (hyperfine)"


def test_hyperfine_values_within_words(tmp_path: Path) -> None:
    content = hyperfine_file()
    for result, n in zip(content["results"], ("10", "100"), strict=True):
        result["command"] = f"sleep 0.0{n}"
    store, _ = taken(tmp_path, put(tmp_path / "x.json", content))
    assert {(m.case.benchmark, m.case.params["n"]) for m in rows(store)} == {
        ("sleep 0.0{n}", 10),
        ("sleep 0.0{n}", 100),
    }


def test_nvbench(tmp_path: Path) -> None:
    store, report = taken(tmp_path, put(tmp_path / "x.json", nvbench_file()))
    assert report["taken"] == 3 and report["reasons"] == {"the state was skipped": 1}
    assert {(r.device_model, r.device_kind) for r in runs(store)} == {("Some GPU", "cuda"), ("Other GPU", "cuda")}
    row = next(m for m in rows(store) if m.case.params["N"] == 4096)
    assert row.case.params == {"N": 4096, "T": "I32"} and row.metrics["latency_s"].n == 1000
    assert (row.metrics["latency_s"].value, row.metrics["bytes_per_s"].value) == (4e-5, 1e12)


def test_tritonbench(tmp_path: Path) -> None:
    table = tmp_path / "op_flash_attention_ab12cd34.csv"
    table.write_text(TRITON_CSV)
    store, report = taken(tmp_path, table)
    assert report["taken"] == 3 and report["dropped"] == 4 + 2
    found = values(store)
    assert found["flash_attention|flash|B=4 H=8 S=128"] == {
        "latency_s": pytest.approx(12e-6), "flops_per_s": 3.5e12
    }  # fmt: skip
    assert found["flash_attention|sdpa|B=4 H=8 S=128"] == {"latency_s": pytest.approx(24e-6), "speedup_higher": 0.5}
    report = import_paths(store, [put(tmp_path / "x.json", triton_json())])
    assert report["taken"] == 2 and report["dropped"] == 3
    run = max(runs(store), key=lambda r: r.commit or "")
    assert (run.commit, run.device_model, run.started_at) == ("cd" * 20, "Some GPU", 1714564800.0)


@pytest.mark.parametrize("content", ["{}", "[]", '{"benchmarks": 5}', '{"a": {"b": []}}', "null", "\ufeff{}"])
def test_json_of_no_format_is_refused(tmp_path: Path, content: str) -> None:
    path = put(tmp_path / "x.json", content)
    with pytest.raises(InputError, match=r"x.json: not of a format that can be taken in"):
        check_paths([path])


def test_a_file_beyond_the_limit_and_a_pipe_are_refused(tmp_path: Path) -> None:
    import os

    path = put(tmp_path / "x.json", json.dumps(hyperfine_file()))
    os.truncate(path, (64 << 20) + 1)
    with pytest.raises(InputError, match=r"x.json: not of a format|more than 64 MiB"):
        check_paths([path])
    with pytest.raises(InputError, match=r"x.json: more than 64 MiB; split the file"):
        check_paths([path], "hyperfine")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match=r"pipe.json: not of a format"):
        check_paths([tmp_path / "pipe.json"])
