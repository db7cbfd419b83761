"""Small files of every format, as the tools write them; everything follows from the arguments."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

COLUMNS = [
    "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
    "stats_q_75", "stats_number", "stats_repeat", "samples", "profile",
]  # fmt: skip
T0 = 1_600_000_000_000


def put(path: Path, content: object) -> Path:
    """Write JSON, with folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def asv_result(
    results: dict[str, list[Any]], number: int = 0, *, machine: str = "box", python: str = "3.11",
    tool: str = "virtualenv", **changes: Any,
) -> dict[str, Any]:  # fmt: skip
    """A result file of format 2; ``results`` holds rows in the order of COLUMNS."""
    return {
        "commit_hash": f"{number:040x}", "env_name": f"{tool}-py{python}", "date": T0 + number * 86_400_000,
        "params": {"machine": machine, "python": python, "cpu": "Some CPU", "num_cpu": "2"}, "python": python,
        "requirements": {}, "env_vars": {}, "result_columns": COLUMNS, "results": results, "durations": {},
        "version": 2, **changes,
    }  # fmt: skip


def asv_directory(root: Path, results: list[dict[str, Any]], benchmarks: dict[str, Any] | None = None) -> Path:
    """A results directory with ``benchmarks.json`` (where given) and a folder for each machine."""
    for content in results:
        machine = content["params"]["machine"]
        put(root / machine / "machine.json", {"machine": machine, "cpu": "Some CPU", "ram": "8 GB", "version": 1})
        put(root / machine / f"{content['commit_hash'][-8:]}-{content['env_name']}.json", content)
    if benchmarks is not None:
        put(root / "benchmarks.json", {**benchmarks, "version": 2})
    return root


def planted(root: Path, *, runs: int = 60, step: int = 40, seed: int = 1) -> Path:
    """A history of two benchmarks over sizes and dtypes; from ``step`` on one is 30 % slower where size >= 256 and
    dtype is float64."""
    rng = random.Random(seed)
    sizes = ["16", "32", "64", "96", "128", "192", "256", "384", "512", "768", "1024", "1536"]
    dtypes = ["'float32'", "'float64'"]
    names = ["suite.Work.time_run", "suite.Work.time_plan"]
    told = {
        n: {"name": n, "params": [sizes, dtypes], "param_names": ["size", "dtype"], "type": "time", "unit": "seconds",
            "version": "1"}
        for n in names
    }  # fmt: skip
    files = []
    for k in range(runs):
        rows: dict[str, list[Any]] = {}
        for n in names:
            values = []
            for size in sizes:
                for dtype in dtypes:
                    slow = k >= step and n.endswith("run") and int(size) >= 256 and dtype == "'float64'"
                    values.append(1e-6 * int(size) * (1.3 if slow else 1.0) * rng.lognormvariate(0, 0.01))
            rows[n] = [values, [sizes, dtypes], "1", T0 + k * 86_400_000]
        files.append(asv_result(rows, k))
    return asv_directory(root, files, told)


def action_entry(number: int, benches: list[dict[str, Any]], tool: str = "cargo") -> dict[str, Any]:
    """One entry of a ``data.js``."""
    commit = {"id": f"{number:040x}", "message": f"change {number}\n\nmore", "timestamp": "2024-05-01T12:00:00+02:00"}
    return {"commit": commit, "date": T0 + number * 86_400_000, "tool": tool, "benches": benches}


def data_js(path: Path, entries: dict[str, list[dict[str, Any]]]) -> Path:
    """A ``data.js``."""
    plain = {"lastUpdate": T0, "repoUrl": "https://example.org/team/project", "entries": entries}
    return put(path, f"window.BENCHMARK_DATA = {json.dumps(plain, indent=2)}")


def pytest_file(**changes: Any) -> dict[str, Any]:
    """What pytest-benchmark saves."""
    stats = {
        "min": 0.9, "max": 1.4, "mean": 1.1, "stddev": 0.1, "rounds": 3, "median": 1.0, "iqr": 0.1, "q1": 0.9,
        "q3": 1.2, "ops": 0.9, "total": 3.3, "iterations": 1, "data": [0.9, 1.0, 1.4],
    }  # fmt: skip
    bench = {
        "group": None, "name": "test_sort[10-True]", "fullname": "tests/test_sort.py::test_sort[10-True]",
        "params": {"n": 10, "stable": True}, "param": "10-True", "extra_info": {}, "options": {}, "stats": stats,
    }  # fmt: skip
    plain = {**bench, "name": "test_plain", "fullname": "tests/test_sort.py::test_plain", "params": None, "param": None}
    return {
        "machine_info": {
            "node": "runner", "processor": "x86_64", "machine": "x86_64", "python_version": "3.11.9",
            "system": "Linux", "release": "6.1", "cpu": {"brand_raw": "Some CPU", "count": 2},
        },
        "commit_info": {"id": "ab" * 20, "time": "2024-05-01T12:00:00+02:00", "dirty": False, "branch": "main"},
        "benchmarks": [bench, plain], "datetime": "2024-05-01T12:30:00.5+00:00", "version": "5.1.0", **changes,
    }  # fmt: skip


def google_file() -> dict[str, Any]:
    """What Google Benchmark prints: repetitions with aggregates, arguments, an error, rates."""
    base = {"run_type": "iteration", "repetitions": 1, "threads": 1, "iterations": 100, "time_unit": "us"}

    def one(name: str, real: float, **more: Any) -> dict[str, Any]:
        return {"name": name, "run_name": name, **base, "real_time": real, "cpu_time": real * 0.9, **more}

    return {
        "context": {"date": "2024-05-01T12:00:00+00:00", "host_name": "runner", "num_cpus": 2, "mhz_per_cpu": 3000},
        "benchmarks": [
            one("BM_copy<std::map<int, a/b>>/8/n:64", 2.0, bytes_per_second=1e9),
            one("BM_sort/1024/real_time/threads:4", 10.0, threads=4),
            *(one("BM_rep/8", t, repetition_index=i, repetitions=3) for i, t in enumerate((3.0, 1.0, 2.0))),
            {**one("BM_rep/8", 2.0), "run_type": "aggregate", "aggregate_name": "mean", "name": "BM_rep/8_mean"},
            {**one("BM_rep/8", 0.1), "run_type": "aggregate", "aggregate_name": "cv", "name": "BM_rep/8_cv"},
            {"name": "BM_bad", "run_name": "BM_bad", **base, "error_occurred": True, "error_message": "no"},
        ],
    }  # fmt: skip


def hyperfine_file() -> dict[str, Any]:
    """What hyperfine exports."""

    def one(n: str, t: float) -> dict[str, Any]:
        return {
            "command": f"sort -n {n}.txt --size {n}", "mean": t, "stddev": t / 10, "median": t, "user": t / 2,
            "system": t / 4, "min": t, "max": t, "times": [t, t, t * 1.1], "exit_codes": [0, 0, 0],
            "parameters": {"n": n},
        }  # fmt: skip

    return {"results": [one("10", 0.1), one("100", 0.9)]}


def nvbench_file() -> dict[str, Any]:
    """What nvbench writes: numbers as text beside their type, one skipped state, two devices."""

    def value(tag: str, number: float) -> dict[str, Any]:
        return {"tag": tag, "name": tag, "data": [{"name": "value", "type": "float64", "value": repr(number)}]}

    def state(device: int, n: int, seconds: float) -> dict[str, Any]:
        return {
            "name": f"Device={device} N={n}", "device": device, "is_skipped": False,
            "axis_values": [
                {"name": "N{io}", "type": "int64", "value": str(n)}, {"name": "T{ct}", "type": "string", "value": "I32"}
            ],
            "summaries": [
                {"tag": "nv/cold/sample_size", "data": [{"name": "value", "type": "int64", "value": "1000"}]},
                value("nv/cold/time/gpu/mean", seconds), value("nv/cold/bw/global/bytes_per_second", 1e12),
            ],
        }  # fmt: skip

    skipped = {**state(0, 1, 1.0), "is_skipped": True, "skip_reason": "too small", "summaries": None}
    return {
        "meta": {"argv": ["./bench"], "version": {"json": {"string": "1.0.0"}, "nvbench": {"string": "0.1.0"}}},
        "devices": [{"id": 0, "name": "Some GPU", "number_of_sms": 8}, {"id": 1, "name": "Other GPU"}],
        "benchmarks": [
            {"name": "copy", "index": 0, "devices": [0, 1], "axes": [], "states": [
                state(0, 1024, 1e-5), state(0, 4096, 4e-5), state(1, 1024, 2e-5), skipped]},
        ],
    }  # fmt: skip


TRITON_CSV = (
    "(B, H, S);flash-latency;flash-tflops;sdpa-latency;sdpa-speedup\n"
    "(4, 8, 128);0.012 (±1.2%);3.5;0.024;0.5\n"
    "(4, 8, 256);0.03;7.0;CUDA OOM;\n"
    "average;0.021;5.25;0.024;0.5\n"
)


def triton_json() -> dict[str, Any]:
    """What tritonbench's nightly runs save."""
    return {
        "name": "nightly",
        "env": {"benchmark_date": "20240501120000", "device": "Some GPU", "triton_commit": "cd" * 20},
        "metrics": {
            "tritonbench_softmax_fwd[x_(4, 8, 128)-triton_softmax]_latency": "0.5 (±2%)",
            "tritonbench_softmax_fwd[x_(4, 8, 128)-naive_softmax]_latency": 1.5,
            "tritonbench_softmax_fwd[x_(4, 8, 128)-naive_softmax]_accuracy": True,
            "tritonbench_softmax_fwd[x_(4, 8, 128)-naive_softmax]_best_config": "BLOCK: 4",
            "tritonbench_softmax_fwd[naive_softmax]-latency-avg": 1.5,
            "tritonbench_softmax_fwd-pass": 1,
        },
    }


#: name of a file -> its content, one or more for each format but asv.
FILES: dict[str, Callable[[], str]] = {
    "data.js": lambda: f"window.BENCHMARK_DATA = {json.dumps(_history())};\n",
    "pytest.json": lambda: json.dumps(pytest_file()),
    "google.json": lambda: json.dumps(google_file()),
    "hyperfine.json": lambda: json.dumps(hyperfine_file()),
    "nvbench.json": lambda: json.dumps(nvbench_file()),
    "op_flash_attention_ab12cd34.csv": lambda: TRITON_CSV,
    "triton.json": lambda: json.dumps(triton_json()),
    "long.csv": lambda: (
        "series,value,unit,time,n\na,1.5,ms,2024-05-01,1\na,1.6,ms,2024-05-02,1\nb,2,MB/s,2024-05-01,2\n"
    ),
    "00000000-virtualenv-py3.11.json": lambda: json.dumps(
        asv_result({"a.time_x": [[1.0, math.nan, None], [["1", "2", "'x'"]], "1", T0, 1.0, [0.9, None, None]]})
    ),
    "11111111-old.json": lambda: json.dumps(_asv_1()),
}


def _history() -> dict[str, Any]:
    benches = [{"name": "x", "value": 10, "unit": "ns/iter", "range": "± 1"}, {"name": "y", "value": "2", "unit": "%"}]
    return {"repoUrl": "r", "entries": {"s": [action_entry(0, benches), action_entry(1, benches)]}}


def _asv_1() -> dict[str, Any]:
    return {
        "commit_hash": "1" * 40, "date": T0, "params": {"machine": "box"}, "python": "2.7", "requirements": {},
        "results": {
            "a.time_x": 1.5, "a.time_y": None,
            "a.time_z": {"params": [["1", "2"]], "result": [1.0, None], "stats": [{"ci_99": [0.9, 1.2]}, None]},
        },
        "version": 1,
    }  # fmt: skip
