"""A sweep over a real Ray cluster of two nodes, one of which is killed while it measures; and a comparison over both.

The nodes stand on one machine and share its CPU, so nothing is said of times here; each has its own runtime folder,
locks and worker, as two hosts would.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from db.engine import open_store
from harness.bundle import read_bundle
from harness.fleet.sweep import MEASURED_ON
from harness.ingest import ingest_bundle
from harness.model import Measurement

pytestmark = [pytest.mark.scale, pytest.mark.timeout(600)]

#: Modest nodes: what Ray takes by default is a share of the machine's memory.
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}
LENGTHS = range(16, 16 * 15, 16)


class Fleet:
    """A cluster of two nodes and the commands that use it."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self.folder = folder
        self.cluster = Cluster(initialize_head=True, head_node_args={**NODE, **self._own(0)})
        self.nodes = [self.cluster.head_node, self.cluster.add_node(**NODE, **self._own(1))]
        shape = {"batch": 1, "heads_q": 2, "heads_kv": 2, "q_len": 1, "head_dim": 16, "dtype": "float32"}
        shape |= {"causal": False, "direction": "fwd"}
        workloads = [{"operation": "attention", "params": {**shape, "kv_len": n}} for n in LENGTHS]
        suite = {"format": "attnwatch workloads", "version": 1, "name": "s", "workloads": workloads}
        (folder / "s.suite.json").write_text(json.dumps(suite))
        self.own = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "ATTNWATCH_RUNTIME_DIR": str(folder / "here")}

    def _own(self, n: int) -> dict[str, Any]:
        variables = {"ATTNWATCH_RUNTIME_DIR": str(self.folder / f"rt{n}"), "ATTNWATCH_WORKER_IDLE_S": "10"}
        return {"env_vars": {**variables, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}}

    def start(self, command: str, *args: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "harness.cli", command, "--suite", "s.suite.json", "--device", "cpu"]
        words += ["--json", "--backend", "sdpa_math", *args]
        return subprocess.Popen(
            words, cwd=self.folder, env=self.own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, command: str, *args: str) -> tuple[dict[str, Any], str]:
        """JSON and what was said; a comparison may find something, two kinds of load on one CPU are no quiet place."""
        running = self.start(command, *args)
        out, said = running.communicate(timeout=280)
        assert running.returncode in (0, 1), said
        return json.loads(out), said

    def sweep(self, *args: str) -> tuple[dict[str, Any], str]:
        told, said = self.run("fleet", "--address", self.cluster.address, *args)
        (run,) = told["runs"]
        return run, said


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if importlib.util.find_spec("ray") is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs ray; .ci/run installs the extra")
        pytest.skip("ray is not installed; pip install -c constraints.txt '.[ray]'")
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    yield made
    made.cluster.shutdown()


def measured(path: Path) -> list[Measurement]:
    return [line.record for line in read_bundle(path) if isinstance(line.record, Measurement)]


def once_each(path: Path) -> None:
    """Every case of the suite is in the bundle, measured well, and none twice."""
    found = measured(path)
    assert {m.status for m in found} == {"ok"}
    counts = Counter(m.case.workload.params["kv_len"] for m in found)
    assert counts == dict.fromkeys(LENGTHS, 1)


def test_both_measure_their_part_and_nothing_is_measured_twice(fleet: Fleet) -> None:
    out, db = fleet.folder / "a.jsonl", fleet.folder / "x.db"
    run, said = fleet.sweep("--out", str(out), "--db", str(db))
    once_each(out)
    assert run["counts"] == {"ok": len(LENGTHS)} and run["remaining"] == 0
    assert sorted(run["by_device"].values()) == [len(LENGTHS) // 2] * 2, "equal costs are shared equally"
    assert {m.telemetry[MEASURED_ON] for m in measured(out)} == set(run["devices"])
    assert all(name in said for name in run["devices"]) and "there is no store" in said
    with open_store(db) as store:
        assert ingest_bundle(store, out).taken == len(LENGTHS)
    again = fleet.folder / "b.jsonl"
    run, said = fleet.sweep("--out", str(again), "--db", str(db))
    assert (run["known"], run["counts"]) == (len(LENGTHS), {}) and measured(again) == []
    assert "were not measured again" in said
    run, _ = fleet.sweep("--out", str(again), "--db", str(db), "--again", "--where", "kv_len < 50", "--costs", str(out))
    assert run["counts"] == {"ok": 3} and run["known"] == 0


def test_pairs_are_shared_out_and_each_host_runs_both_sides(fleet: Fleet) -> None:
    def workers() -> list[set[Path]]:
        return [set((fleet.folder / f"rt{n}").glob("*.log")) for n in range(2)]

    sides = ("--base-env", "ATEN_CPU_CAPABILITY=default", "--head-env", "MKL_CBWR=AUTO")
    before = workers()
    report, said = fleet.run("compare", "--fleet", fleet.cluster.address, "--where", "kv_len < 100", *sides)
    assert [c["kv_len"] for c in sorted(report["cases"], key=lambda c: c["kv_len"])] == [16, 32, 48, 64, 80, 96], said
    assert [len(now - then) for now, then in zip(workers(), before, strict=True)] == [2, 2], "a worker for each side"
    assert all(c["base_status"] == c["head_status"] == "ok" and c["verdict"] for c in report["cases"])
    assert report["left_out"] == []


def hosts_of(out: Path) -> list[str]:
    """Where each case of a bundle that is still written was measured; a line that is not yet whole is left out."""
    lines = out.read_bytes().split(b"\n")[:-1] if out.exists() else []
    records = [json.loads(line) for line in lines]
    return [r["telemetry"][MEASURED_ON] for r in records if r["kind"] == "measurement"]


def test_a_host_that_is_killed_leaves_its_cases_to_the_other(fleet: Fleet) -> None:
    """Last, since the cluster is smaller afterwards."""
    out = fleet.folder / "c.jsonl"
    running = fleet.start("fleet", "--address", fleet.cluster.address, "--out", str(out))
    try:
        while len(hosts := hosts_of(out)) < 3 or len(set(hosts)) < 2:  # one host may start long after the other
            assert running.poll() is None, running.communicate()
            time.sleep(0.1)
        fleet.cluster.remove_node(fleet.nodes[1], allow_graceful=False)
        told, said = running.communicate(timeout=280)
    finally:
        running.kill()
    assert running.returncode == 0, said
    (run,) = json.loads(told)["runs"]
    once_each(out)
    assert run["counts"] == {"ok": len(LENGTHS)} and "is lost with" in said
    few, many = sorted(run["by_device"].values())
    assert few < len(LENGTHS) // 2 < many, "the rest was done by the one that is left"
