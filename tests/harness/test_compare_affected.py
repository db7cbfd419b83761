"""``attnwatch compare --affected``: what a pull request measures, what it leaves, and what the report says of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.comment.reading import from_json
from harness.comment.render import render

ROOT = Path(__file__).resolve().parents[2]
SHAPE = {"batch": 1, "heads_q": 2, "heads_kv": 2, "q_len": 1, "head_dim": 16, "dtype": "float32", "causal": False}


class Author:
    """A repository with our kernels, and a suite of two operations."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.repo = folder, folder / "clone"
        shutil.copytree(ROOT / "kernels", self.repo / "kernels", ignore=shutil.ignore_patterns("__pycache__", "*.egg*"))
        self.git("init", "-q", "-b", "main")
        self.git("add", ".")
        self.git("commit", "-qm", "base")
        shape = {**SHAPE, "direction": "fwd"}
        workloads = [{"operation": "attention", "params": {**shape, "kv_len": n}} for n in (32, 64)]
        for n in (32, 65):
            more = {"kv_len": n, "page_size": 16, "q_lens": "1", "kv_lens": str(n)}
            workloads.append({"operation": "paged_attention", "params": {**shape, **more}})
        suite = {"format": "attnwatch workloads", "version": 1, "name": "s", "workloads": workloads}
        (folder / "s.suite.json").write_text(json.dumps(suite))

    def git(self, *args: str) -> None:
        command = ["git", "-C", str(self.repo), "-c", "user.name=t", "-c", "user.email=t@example.org", *args]
        subprocess.run(command, check=True, capture_output=True)

    def commit(self, path: str) -> None:
        with (self.repo / path).open("a") as file:
            file.write("\n# changed\n")
        self.git("add", ".")
        self.git("commit", "-qm", path)

    def compare(self, *args: str, expect: int = 0) -> tuple[dict[str, Any], str]:
        """The report and what was said."""
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "OMP_NUM_THREADS": "1"}
        env |= {"ATTNWATCH_RUNTIME_DIR": str(self.folder / "run"), "ATTNWATCH_WORKER_IDLE_S": "5"}
        command = [sys.executable, "-m", "harness.cli", "compare", "--json", "--device", "cpu", *args]
        command += ["--suite", str(self.folder / "s.suite.json")]
        done = subprocess.run(command, cwd=self.repo, env=env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == expect, done.stderr
        return json.loads(done.stdout or "{}"), done.stderr


def spoken(report: dict[str, Any]) -> str:
    return render(from_json(json.dumps(report), "r"))


@pytest.mark.slow
def test_what_the_change_does_not_touch_is_not_measured(tmp_path: Path) -> None:
    author = Author(tmp_path)
    author.commit("README.md")
    report, said = author.compare("--base", "HEAD~1", "--head", "HEAD", "--affected")
    assert report["cases"] == [] and report["unchanged"] is True and "pages alone changed" in said
    assert report["affected"]["changed"] == ["README.md"] and "**Nothing to measure**" in spoken(report)

    author.commit("kernels/paged/pages.py")
    report, said = author.compare("--base", "HEAD~1", "--affected", "--where", "operation == 'attention'")
    assert report["cases"] == [] and report["unchanged"] is False, "another suite would have been touched"
    assert "head changes nothing that any of" in spoken(report)
    _, said = author.compare("--base-env", "A=1", "--affected", expect=2)
    assert "give --base REF" in said
