"""asv results of every age: what becomes of each row, under which name, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from db.engine import Store, open_store
from db.export import samples_of_run
from db.queries import MeasurementRow, measurements_of_run, runs
from harness.imports import check_paths, import_paths
from harness.model import InputError
from harness.readers.asv_cases import FAILED, INFINITE, NO_NUMBER, NO_PARAMS, NOT_RUN
from tests.db.factory import dump

from .samples import T0, asv_directory, asv_result, put


def taken(tmp_path: Path, root: Path) -> tuple[Store, dict[str, Any]]:
    store = open_store(tmp_path / "s.db")
    return store, import_paths(store, [root])


def rows(store: Store) -> list[MeasurementRow]:
    return [m for r in reversed(runs(store)) for m in measurements_of_run(store, r.id)]


def told(name: str, **more: Any) -> dict[str, Any]:
    return {name: {"name": name, "type": "time", "unit": "seconds", "version": "v", "params": [], **more}}


def test_every_row_is_taken_or_dropped_for_a_reason(tmp_path: Path) -> None:
    grid = [["1", "2", "3"]]
    root = asv_directory(
        tmp_path / "results",
        [
            asv_result(
                {
                    "a.time_ok": [[1.0, 2.0, 3.0], grid, "v"],
                    "a.time_some": [[1.0, None, math.nan], grid, "v"],
                    "a.time_all_failed": [None, [["1", "2"], ["3", "4", "5"]], "v"],
                    "a.time_short": [[1.0], grid, "v"],
                    "a.time_long": [[1.0, 2.0, 3.0, 4.0], grid, "v"],
                    "a.time_plain": [[0.5]],
                    "a.time_gone": [None],
                    "a.track_text": [["fast"], [], "v"],
                    "a.time_open": [[math.inf], [], "v"],
                    "a.track_yes": [[True], [], "v"],
                }
            )
        ],
    )
    store, report = taken(tmp_path, root)
    assert report["taken"] == 3 + 1 + 1 + 3 + 1
    assert report["reasons"] == {FAILED: 1 + 6 + 1, NOT_RUN: 1, NO_PARAMS: 1, NO_NUMBER: 2, INFINITE: 1}
    assert report["dropped"] == sum(report["reasons"].values())
    before = dump(tmp_path / "s.db")
    again = import_paths(store, [root])
    assert (again["taken"], again["duplicates"]) == (0, report["taken"])
    assert (again["dropped"], again["reasons"], again["runs"]) == (report["dropped"], report["reasons"], report["runs"])
    assert dump(tmp_path / "s.db") == before
    store.close()
    checked = check_paths([root])
    assert {k: checked[k] for k in ("taken", "dropped", "reasons")} == {
        k: report[k] for k in ("taken", "dropped", "reasons")
    }


def test_parameters_keep_their_types(tmp_path: Path) -> None:
    params = [
        ["1", "2.5", "'a'", "u'é'", "None", "True", "[1, 2]", "{'k': 1}", "(1, 'x')", "<class 'int'>", "b'x'",
         "<function f at 0x7f00aa>", "1e400", "np.float64(3.5)", "__import__('os')"],
    ]  # fmt: skip
    root = asv_directory(
        tmp_path / "r",
        [asv_result({"a.time_p": [[float(i + 1) for i in range(15)], params, "v"]})],
        told("a.time_p", param_names=["some arg"], params=params),
    )
    store, report = taken(tmp_path, root)
    assert report["taken"] == 15
    values = [m.case.params["some_arg"] for m in rows(store)]
    expected = [
        1, 2.5, "a", "é", None, True, "[1, 2]", "{'k': 1}", "(1, 'x')", "int", "b'x'", "<function f>", "inf", 3.5,
        "__import__('os')",
    ]  # fmt: skip
    assert [(type(v), v) for v in values] == [(type(v), v) for v in expected]


def test_names_of_parameters_that_repeat_or_are_taken(tmp_path: Path) -> None:
    params = [["'cuda'"], ["1", "1", "2"], ["'x'"], ["3"], ["4"]]
    root = asv_directory(
        tmp_path / "r",
        [asv_result({"a.time_p": [[1.0, 2.0, 3.0], params, "v"]})],
        told("a.time_p", param_names=["backend", "n", "n", "class", "python"], params=params),
    )
    store, report = taken(tmp_path, root)
    assert report["taken"] == 3 and {m.case.backend for m in rows(store)} == {"cuda"}
    assert [m.case.params["n"] for m in rows(store)] == ["1 (0)", "1 (1)", 2]
    first = rows(store)[0].case.params
    assert first == {"n": "1 (0)", "n_2": "x", "class_": 3, "python_2": 4, "python": "3.11"}


def test_units_types_and_statistics(tmp_path: Path) -> None:
    results: dict[str, list[Any]] = {
        "a.time_t": [[1.0], [], "v", T0 + 5000, 2.5, [0.9], [1.2], [0.95], [1.05], [7], [3], [[0.9, 1.0, 1.2]]],
        "a.peakmem_m": [[4096]],
        "a.mem_o": [[128]],
        "a.track_ms": [[250]],
        "a.track_rate": [[5.0]],
        "a.track_score": [[0.75]],
        "a.weird": [[1.0]],
    }
    benchmarks = {
        **told("a.track_ms", type="track", unit="ms"), **told("a.track_rate", type="track", unit="MB/s"),
        **told("a.track_score", type="track", unit="%"), **told("a.weird", type="time"),
    }  # fmt: skip
    store, _ = taken(tmp_path, asv_directory(tmp_path / "r", [asv_result(results)], benchmarks))
    found = {m.case.benchmark: m for m in rows(store)}
    values = {k: {n: v.value for n, v in m.metrics.items()} for k, m in found.items()}
    assert values == {
        "a.time_t": {"latency_s": 1.0}, "a.peakmem_m": {"peak_memory_bytes": 4096.0},
        "a.mem_o": {"memory_bytes": 128.0}, "a.track_ms": {"latency_s": 0.25},
        "a.track_rate": {"bytes_per_s": 5e6}, "a.track_score": {"value_percent": 0.75}, "a.weird": {"latency_s": 1.0},
    }  # fmt: skip
    v = found["a.time_t"].metrics["latency_s"]
    assert v.n == 3 and v.low is not None and v.high is not None
    # asv keeps 99 % intervals; ours are 95 %.
    assert v.low == pytest.approx(1 - 0.1 * 1.959964 / 2.575829) and v.high == pytest.approx(
        1 + 0.2 * 0.760908, rel=1e-4
    )
    assert found["a.time_t"].telemetry == {"number": 7, "q_25": 0.95, "q_75": 1.05}
    assert found["a.time_t"].started_at == T0 / 1000 + 5 and found["a.time_t"].duration_s == 2.5
    assert samples_of_run(store, runs(store)[0].id) == {found["a.time_t"].id: {"latency_s": [0.9, 1.0, 1.2]}}


def test_format_1_joins_the_series_of_format_2(tmp_path: Path) -> None:
    old = {
        "commit_hash": "1" * 40, "date": T0, "params": {"machine": "box", "python": "2.7"}, "python": "2.7",
        "requirements": {"numpy": "1.8"}, "version": 1,
        "results": {
            "a.time_bare": 1.5, "a.time_null": None,
            "a.time_grid": {"params": [["1", "2"]], "result": [1.0, None],
                            "stats": [{"ci_99": [0.9, 1.1], "number": 4, "repeat": 10}, None], "samples": [[1.0]]},
            "a.time_one": {"params": [], "result": 3.0},
            "a.time_failed": {"params": [["1", "2"]], "result": None},
        },
    }  # fmt: skip
    oldest = {k: v for k, v in old.items() if k != "version"} | {"commit_hash": "2" * 40, "results": {"a.time_bare": 2}}
    new = asv_result(
        {"a.time_bare": [[1.25], [], "v"], "a.time_grid": [[1.0, 2.0], [["1", "2"]], "v"]}, 3, python="2.7"
    )
    new["params"]["numpy"] = "1.8"
    root = asv_directory(tmp_path / "r", [new], told("a.time_bare") | told("a.time_grid", param_names=["n"]))
    put(root / "box" / "11111111-py2.7.json", old)
    put(root / "box" / "22222222-py2.7.json", oldest)
    store, report = taken(tmp_path, root)
    assert report["taken"] == 3 + 1 + 3 and report["reasons"] == {FAILED: 4}
    by_case: dict[str, int] = {}
    for m in rows(store):
        by_case[m.case.key] = by_case.get(m.case.key, 0) + 1
    assert sorted(by_case.values()) == [1, 1, 2, 3], "without a version a result belongs to that of today"
    grid = next(m for m in rows(store) if m.case.benchmark == "a.time_grid" and m.metrics["latency_s"].n == 10)
    assert grid.case.params == {"n": 1, "python": "2.7", "numpy": "1.8"} and grid.telemetry["number"] == 4


def test_a_benchmark_of_another_version_is_another_case(tmp_path: Path) -> None:
    files = [asv_result({"a.time_x": [[k + 1.0], [], f"v{(k + 1) // 2}"]}, k + 1) for k in range(4)]
    store, _ = taken(tmp_path, asv_directory(tmp_path / "r", files, told("a.time_x")))
    assert [m.case.version for m in rows(store)] == ["v0", "v1", "v1", "v2"]


def test_environments_machines_and_tools(tmp_path: Path) -> None:
    row: dict[str, list[Any]] = {"a.time_x": [[1.0], [], "v"]}
    files = [
        asv_result(row, 1, python="3.10"), asv_result(row, 1, python="3.11"), asv_result(row, 1, tool="conda"),
        asv_result(row, 1, machine="other"), asv_result(row, 2, python="3.11"),
    ]  # fmt: skip
    store, report = taken(tmp_path, asv_directory(tmp_path / "r", files))
    assert report["taken"] == 5 and len(report["runs"]) == 4
    held = runs(store)
    assert {r.device_model for r in held} == {"box", "other"} and len({r.machine for r in held}) == 2
    assert all(r.ruler_version == "imported:asv" and r.device_kind == "imported" for r in held)
    assert {r.commit for r in held} == {f"{1:040x}", f"{2:040x}"}
    assert {r.started_at for r in held} == {T0 / 1000 + 86_400, T0 / 1000 + 2 * 86_400}, "runs stand at their commit"
    assert len({m.case.key for m in rows(store)}) == 2, "the Python is a parameter, the tool is not"


@pytest.mark.parametrize("what", ["root", "machine", "file", "above"])
def test_what_can_be_named(tmp_path: Path, what: str) -> None:
    root = asv_directory(
        tmp_path / "project" / ".asv" / "results",
        [asv_result({"a.track_x": [[2.0], [], "v"]})],
        told("a.track_x", type="track", unit="ms"),
    )
    file = next((root / "box").glob("0*.json"))
    path = {"root": root, "machine": root / "box", "file": file, "above": tmp_path / "project"}[what]
    store, report = taken(tmp_path, path)
    assert (report["taken"], report["formats"]) == (1, ["asv"])
    assert rows(store)[0].metrics["latency_s"].value == 0.002


def test_a_file_that_grew_gives_only_what_is_new(tmp_path: Path) -> None:
    root = asv_directory(tmp_path / "r", [asv_result({"a.time_x": [[1.0], [], "v", T0]})])
    store, _ = taken(tmp_path, root)
    asv_directory(
        root, [asv_result({"a.time_x": [[1.0], [], "v", T0], "a.time_y": [[2.0, None], [["1", "2"]], "v", T0]})]
    )
    report = import_paths(store, [root])
    assert (report["taken"], report["duplicates"], report["dropped"]) == (1, 1, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"date": "yesterday"}, r"-virtualenv-py3.11.json: field date: must be milliseconds"),
        ({"commit_hash": 5}, r"field commit_hash: must be text, not 5"),
        ({"results": [1]}, r"field results must be an object"),
        ({"results": {"a.time_x": 5}}, r"field results.a.time_x: must be a list, not 5"),
        ({"results": {"a.time_x": [[1.0], [5, [1]]]}}, r"results.a.time_x.params\[0\]: must be a list"),
        ({"result_columns": ["params"]}, r"field result_columns: lacks 'result'"),
        ({"version": 3}, r"field version: 3 is none that is known"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_taken(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good, bad = (asv_result({"a.time_x": [[1.0], [], "v"]}, k) for k in (1, 2))
    root = asv_directory(tmp_path / "r", [good, bad])
    put(next((root / "box").glob("*2-virt*.json")), {**bad, **change})
    store = open_store(tmp_path / "s.db")
    before = dump(tmp_path / "s.db")
    with pytest.raises(InputError, match=message):
        import_paths(store, [root])
    assert dump(tmp_path / "s.db") == before


def test_cut_deep_and_foreign_files(tmp_path: Path) -> None:
    root = asv_directory(tmp_path / "r", [asv_result({"a.time_x": [[1.0], [], "v"]})])
    put(root / "box" / "notes.json", {"hello": 1})
    put(root / "notes.json", {"hello": 1})
    assert any("notes.json: no result file of asv" in w for w in check_paths([root])["warnings"])
    path = root / "box" / "0badc0de-py3.json"
    path.write_text('{"commit_hash": "0",\n "results": {"a": [')
    with pytest.raises(InputError, match=r"0badc0de-py3.json:2: not JSON \(.*cut off"):
        check_paths([root])
    path.write_text('{"commit_hash": "0", "results": ' + "[" * 100_000)
    with pytest.raises(InputError, match=r"0badc0de-py3.json"):
        check_paths([root])


def test_links_out_of_the_directory_are_refused(tmp_path: Path) -> None:
    root = asv_directory(tmp_path / "r", [asv_result({"a.time_x": [[1.0], [], "v"]})])
    secret = put(tmp_path / "secret.json", asv_result({"a.time_s": [[1.0], [], "v"]}, 7))
    link = root / "box" / "77777777-x.json"
    link.symlink_to(secret)
    with pytest.raises(InputError, match=r"77777777-x.json: a link out of .*give the file itself"):
        check_paths([root])
    link.unlink()
    (root / "elsewhere").symlink_to(tmp_path)
    with pytest.raises(InputError, match=r"elsewhere: a link out of"):
        check_paths([root])


def test_profiles_are_told_and_a_huge_grid_costs_nothing(tmp_path: Path) -> None:
    grid = [[str(i) for i in range(100)]] * 20
    content = asv_result({"a.time_x": [None, grid, "v"], "a.time_p": [[1.0], [], "v", *[None] * 9, "eJw="]})
    report = check_paths([asv_directory(tmp_path / "r", [content])])
    assert report["taken"] == 1 and report["dropped"] == 100**20
    assert any("1 profiles are not taken" in w for w in report["warnings"])


def test_the_json_of_the_options_says_where_a_run_came_from(tmp_path: Path) -> None:
    store, _ = taken(
        tmp_path, asv_directory(tmp_path / "r", [asv_result({"a.time_x": [[1.0, None], [["1", "2"]], "v"]})])
    )
    options = runs(store)[0].options
    assert (options["format"], options["rows"], json.loads(options["dropped"])) == ("asv", 1, {FAILED: 1})


def test_a_copy_of_a_directory_is_a_duplicate(tmp_path: Path) -> None:
    files = [asv_result({"a.time_x": [[float(k), None], [["1", "2"]], "v"]}, k) for k in (1, 2)]
    first, copy = (asv_directory(tmp_path / name, files) for name in ("a", "b"))
    with open_store(tmp_path / "s.db") as store:
        report = import_paths(store, [first, copy])
        assert (report["taken"], report["duplicates"], report["reasons"]) == (2, 2, {FAILED: 4})
        again = import_paths(store, [copy])
        assert (again["taken"], again["duplicates"], again["reasons"]) == (0, 2, {FAILED: 2})
