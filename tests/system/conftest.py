"""A repository of its own with the working tree's kernels, suites and asv configuration, and a small suite."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.model.suite import grid
from harness.model.workloads import write_suite

ROOT = Path(__file__).parents[2]
LENGTHS = [256, 257, 384, 385, 500]
SUITE = "mini.suite.json"


class Clone:
    """A temporary repository and ``attnwatch`` inside it."""

    def __init__(self, repo: Path) -> None:
        self.repo = repo
        self.db = repo.parent / "night.db"
        # A private home keeps asv's machine file, and a private runtime folder the workers and locks, of this test.
        self.env = {
            **os.environ, "HOME": str(repo.parent), "ATTNWATCH_DB": str(self.db),
            "ATTNWATCH_RUNTIME_DIR": str(repo.parent / "run"), "ATTNWATCH_WORKER_IDLE_S": "20",
        }  # fmt: skip

    def git(self, *args: str) -> str:
        """Output of a git command."""
        command = ["git", "-C", str(self.repo), "-c", "user.name=t", "-c", "user.email=t@example.org", *args]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def command(self, *args: str) -> list[str]:
        """The command line of ``attnwatch``."""
        return [sys.executable, "-m", "harness.cli", *args]

    def start(self, *args: str) -> subprocess.Popen[str]:
        """``attnwatch`` in the background, in a session of its own."""
        return subprocess.Popen(
            self.command(*args), cwd=self.repo, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def run(self, *args: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        """``attnwatch`` to its end; its exit code must be ``expect``."""
        done = subprocess.run(
            self.command(*args), cwd=self.repo, env=self.env, capture_output=True, text=True, timeout=560, check=False
        )
        assert done.returncode == expect, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def nightly(self, *args: str, expect: int = 0) -> dict[str, Any]:
        """One nightly of the small suite; its JSON."""
        done = self.run("nightly", "--suite", SUITE, "--device", "cpu", "--json", *args, expect=expect)
        return json.loads(done.stdout)  # type: ignore[no-any-return]


def make_clone(folder: Path, lengths: list[int]) -> Clone:
    """Copy what a sweep needs and commit it."""
    repo = folder / "repo"
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in ("kernels", "benchmarks", "harness"):
        shutil.copytree(ROOT / name, repo / name, ignore=skip)
    for name in ("asv.conf.json", "pyproject.toml"):
        shutil.copy(ROOT / name, repo / name)
    workloads = list(grid("attention", q_len=64, kv_len=lengths, heads_q=4, heads_kv=4))
    write_suite(repo / SUITE, workloads, "mini")
    clone = Clone(repo)
    subprocess.run(["git", "init", "-q", "-b", "main", str(repo)], check=True)
    clone.git("add", "-A")
    clone.git("commit", "-q", "-m", "fast")
    return clone


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """Five lengths on every backend."""
    return make_clone(tmp_path, LENGTHS)


@pytest.fixture
def small_clone(tmp_path: Path) -> Clone:
    """Two lengths, for tests that care about the process rather than the numbers."""
    return make_clone(tmp_path, LENGTHS[:2])
