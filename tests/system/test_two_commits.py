"""The whole way once: two commits of kernels through asv, the second slower where kv_len % 128 == 1.

Real git, real asv, real worker, real kernels, real store. The report must name the slower cases and no others.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.model import Workload
from harness.model.suite import grid
from harness.model.workloads import write_suite

ROOT = Path(__file__).parents[2]
LENGTHS = [256, 257, 384, 385, 500]

# Computes the output four times where the predicate holds: slower for real, and still right.
SLOW = """

def _slowed(fn):
    def attention(q, k, v, **options):
        if k.shape[-2] % 128 == 1:
            for _ in range(3):
                fn(q, k, v, **options)
        return fn(q, k, v, **options)
    return attention


attention = _slowed(attention)
"""


def git(repo: Path, *args: str) -> str:
    command = ["git", "-C", str(repo), "-c", "user.name=t", "-c", "user.email=t@example.org", *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository of its own with the working tree's kernels, suites and asv configuration."""
    repo = tmp_path / "repo"
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in ("kernels", "benchmarks", "harness"):
        shutil.copytree(ROOT / name, repo / name, ignore=skip)
    for name in ("asv.conf.json", "pyproject.toml"):
        shutil.copy(ROOT / name, repo / name)
    # The same work on both sides of the boundary, big enough that a call is not all overhead.
    workloads: list[Workload] = list(grid("attention", q_len=64, kv_len=LENGTHS, heads_q=4, heads_kv=4))
    write_suite(repo / "mini.suite.json", workloads, "mini")
    git(tmp_path, "init", "-q", "-b", "main", str(repo))
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "fast")
    return repo


def nightly(repo: Path, *args: str, expect: int) -> dict[str, Any]:
    """``attnwatch nightly`` in ``repo``; its JSON. ``HOME`` is private, so that asv's machine file is too."""
    env = {**os.environ, "HOME": str(repo.parent), "ATTNWATCH_DB": str(repo.parent / "night.db")}
    command = [sys.executable, "-m", "harness.cli", "nightly", "--suite", "mini.suite.json", "--device", "cpu", "--json"]
    done = subprocess.run([*command, *args], cwd=repo, env=env, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == expect, done.stdout + done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_report_names_the_slower_cases_and_no_others(clone: Path) -> None:
    first = nightly(clone, expect=0)
    assert first["nights"] == 0
    assert first["incidents"] == []
    with (clone / "kernels" / "segmented" / "blocks.py").open("a") as file:
        file.write(SLOW)
    git(clone, "commit", "-q", "-am", "slow where kv_len % 128 == 1")
    second = nightly(clone, expect=1)
    confirmed = [f for f in second["findings"] if f["state"] == "confirmed"]
    named = {(f["case"]["backend"], f["case"]["workload"]["params"]["kv_len"], f["metric"]) for f in confirmed}
    slow = {("segmented", n, "latency_s") for n in LENGTHS if n % 128 == 1}
    assert {x for x in named if x[2] == "latency_s"} == slow
    # Computing more also calls more operators; an exact metric must say so for the same cases.
    assert {x[:2] for x in named} == {x[:2] for x in slow}
    assert all(f["ratio"] > 1.5 for f in confirmed if f["metric"] == "latency_s")
    assert second["revision"]["commit"] == git(clone, "rev-parse", "HEAD")
    assert any("slow where" in text for text in second["suspects_from"])
    # Measured with its own kernels: the two runs differ in what they imported, not only in the commit's name.
    assert second["base_revision"]["kernels_hash"] != second["revision"]["kernels_hash"]
    # A third night of the same commit has nothing new to tell.
    third = nightly(clone, expect=0)
    assert [i for i in third["incidents"] if i["state"] == "new"] == []
