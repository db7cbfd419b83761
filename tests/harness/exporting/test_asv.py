"""asv results out and in again give equal rows; asv itself reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from db.engine import Store, open_store
from db.export import run_ids, samples_of_run
from db.queries import measurements_of_run, run
from harness.exporting import write
from harness.imports import import_paths
from harness.ingest import ingest_bundle
from harness.model import Case, InfrastructureError, InputError, Status, Value, Workload
from tests.db.factory import make_case, make_measurement, make_run, write_run
from tests.harness.readers.samples import T0, asv_directory, asv_result


def rows(store: Store) -> list[tuple[Any, ...]]:
    """Everything that a row says, whichever run holds it."""
    out = []
    for name in run_ids(store):
        found, kept = run(store, name), samples_of_run(store, name)
        assert found is not None
        for m in measurements_of_run(store, name):
            for metric, v in m.metrics.items():
                c, samples = m.case, tuple(kept.get(m.id, {}).get(metric, ()))
                what = (c.key, c.benchmark, c.version, c.backend, c.operation, json.dumps(c.params, sort_keys=True))
                out.append((found.revision, found.device_model, *what, metric, v, samples))
    return sorted(out, key=repr)


def there_and_back(store: Store, folder: Path) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    count = write(store, "asv", None, str(folder / "out"))
    with open_store(folder / "back.db") as back:
        report = import_paths(back, [folder / "out"])
        assert report["dropped"] == sum(n for reason, n in report["reasons"].items() if "NaN" in reason)
        after = rows(back)
    before = rows(store)
    assert len(after) == count == len(before)
    return before, after


def test_imported_results_come_back_equal(tmp_path: Path) -> None:
    params = [["1", "2.5", "None"], ["'a'", "[1, 2]", "<class 'int'>"]]
    full: dict[str, list[Any]] = {
        "m.T.time_grid": [
            [0.1 * k or None for k in range(9)], params, "v1", T0 + 1000, 2.0, [0.09 * k for k in range(9)],
            [0.13 * k for k in range(9)], [0.095 * k for k in range(9)], None, [4] * 9, [5] * 9,
            [[0.1 * k] for k in range(9)],
        ],
        "m.T.track_score": [[3.5], [], "2"], "m.T.peakmem_x": [[4096], [], "2"], "m.T.track_rate": [[12.5], [], "2"],
    }  # fmt: skip
    files = [
        asv_result(full, 1), asv_result(full, 1, python="3.12"), asv_result(full, 1, tool="conda"),
        asv_result({**full, "m.T.time_grid": [[1.0], [["7"]], "v2"]}, 2), asv_result(full, 2, machine="other box"),
    ]  # fmt: skip
    told = {
        "m.T.time_grid": {"type": "time", "unit": "seconds", "version": "v1", "param_names": ["n", "what kind"]},
        "m.T.track_score": {"type": "track", "unit": "points", "version": "2"},
        "m.T.track_rate": {"type": "track", "unit": "MB/s", "version": "2"},
    }  # fmt: skip
    with open_store(tmp_path / "s.db") as store:
        assert import_paths(store, [asv_directory(tmp_path / "in", files, told)])["taken"] == 11 * 4 + 4
        before, after = there_and_back(store, tmp_path)
    assert before == after


def test_our_own_measurements_come_back_equal(tmp_path: Path) -> None:
    bundle = tmp_path / "b.jsonl"
    for k in range(3):
        cases = [make_case(i, ("sdpa", "flash")[i % 2], **({"window": i + 1} if i % 3 == 0 else {})) for i in range(12)]
        odd = Case("prefill", Workload("paged", {"layout": "<absent>", "scale": 0.5, "mask": 'it\'s "x"'}), "asv", "7")
        found = [make_measurement(c, 1e-3 * (i + 1) / 3 * 1.1**k, at=1.7e9 + i) for i, c in enumerate([*cases, odd])]
        found.append(make_measurement(make_case(99), status=Status.CRASHED))
        found.append(make_measurement(make_case(98), metrics={"rows_per_s": Value(5.0), "latency_hot_s": Value(1e-4)}))
        write_run(bundle, make_run(k), found)
    with open_store(tmp_path / "s.db") as store:
        ingest_bundle(store, bundle)
        before, after = there_and_back(store, tmp_path)
    assert {row[:9] for row in before} == {row[:9] for row in after} and len(before) == 3 * (13 * 2 + 2)
    # asv keeps 99 % intervals; ours come back from them to the last bits.
    for old, new in zip(before, after, strict=True):
        assert (old[:9], old[9].value, old[9].n, old[10]) == (new[:9], new[9].value, new[9].n, new[10])
        ends = [None if x is None else pytest.approx(x, rel=1e-12) for x in (old[9].low, old[9].high)]
        assert [new[9].low, new[9].high] == ends


def test_asv_reads_what_was_written(tmp_path: Path) -> None:
    from asv.results import Results, iter_results_for_machine

    rows_: dict[str, list[Any]] = {"m.time_x": [[1.0, 2.0], [["1", "2"]], "v", T0]}
    with open_store(tmp_path / "s.db") as store:
        import_paths(store, [asv_directory(tmp_path / "in", [asv_result(rows_, k, machine="a box") for k in (1, 2)])])
        assert write(store, "asv", None, str(tmp_path / "out")) == 4
    found = list(iter_results_for_machine(str(tmp_path / "out"), "a_box"))
    assert all(isinstance(r, Results) for r in found) and {r.commit_hash for r in found} == {
        f"{k:040x}" for k in (1, 2)
    }
    assert found[0].get_result_value("m.time_x", [["1", "2"]]) == [1.0, 2.0]
    told = json.loads((tmp_path / "out" / "benchmarks.json").read_text())
    assert told["version"] == 2 and told["m.time_x"]["type"] == "time" and told["m.time_x"]["params"] == [["1", "2"]]


def test_errors_name_the_folder_and_the_run(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.db") as store:
        with pytest.raises(InputError, match=r"s.db: holds no runs"):
            write(store, "asv", None, str(tmp_path / "out"))
        ingest_bundle(store, write_run(tmp_path / "b.jsonl", make_run(0), [make_measurement(make_case(0))]))
        with pytest.raises(InputError, match=r"--out: asv results are a folder"):
            write(store, "asv", None, "-")
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "x").touch()
        with pytest.raises(InputError, match=r"full: is not empty"):
            write(store, "asv", None, str(tmp_path / "full"))
        with pytest.raises(InfrastructureError, match=r"x: cannot be written"):
            write(store, "asv", None, str(tmp_path / "full" / "x"))
        with pytest.raises(InputError, match=r"no run 'nope'"):
            write(store, "asv", "nope", str(tmp_path / "out"))


def test_names_of_others_lead_nowhere(tmp_path: Path) -> None:
    content = asv_result({"m.time_x": [[1.0], [], "v", T0]}, machine="../../up", tool="../t", python="/etc/x")
    content["commit_hash"] = "../../../evil"
    path = tmp_path / "in" / "box" / "x.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    with open_store(tmp_path / "s.db") as store:
        import_paths(store, [path])
        write(store, "asv", None, str(tmp_path / "deep" / "out"))
        with open_store(tmp_path / "b.db") as back:
            import_paths(back, [tmp_path / "deep" / "out"])
            assert rows(store) == rows(back)
    inside = {p.relative_to(tmp_path / "deep" / "out").parts[0] for p in (tmp_path / "deep").rglob("*.json")}
    assert len(inside) == 2 and sorted(p.name for p in tmp_path.iterdir()) == ["b.db", "deep", "in", "s.db"]
