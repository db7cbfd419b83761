"""From a slow kernel to the comment and back: measured, told by name, and told to be over. Only GitHub is played."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.harness.comment.server import TOKEN, serving

ROOT = Path(__file__).resolve().parents[2]
FAULT = "ATTNWATCH_FAULTS=decode_boundary_slow"
LENGTHS = (128, 256, 384, 512, 640, 768, 129, 200, 300, 449, 500, 700)


def private(folder: Path) -> dict[str, str]:
    """An environment whose workers and locks nobody else sees."""
    runtime = {"ATTNWATCH_RUNTIME_DIR": str(folder / "run"), "ATTNWATCH_WORKER_IDLE_S": "20"}
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1", **runtime}


def write_suite(folder: Path) -> None:
    """Decode steps over lengths at block boundaries and off them."""
    shape = {"batch": 1, "heads_q": 2, "heads_kv": 2, "q_len": 1, "head_dim": 64, "dtype": "float32", "causal": True}
    workloads = [{"operation": "attention", "params": {**shape, "kv_len": k, "direction": "fwd"}} for k in LENGTHS]
    suite = {"format": "attnwatch workloads", "version": 1, "name": "decode", "workloads": workloads}
    (folder / "decode.suite.json").write_text(json.dumps(suite), encoding="utf-8")


def start(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    held = {**private(folder), **env}
    command = [sys.executable, "-m", "harness.cli", *args]
    return subprocess.run(command, cwd=folder, env=held, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.scale
def test_a_slow_kernel_is_named_and_its_fix_is_told(tmp_path: Path) -> None:
    write_suite(tmp_path)
    told = []
    with serving() as server:
        server.add_pull()
        github = {"GITHUB_API_URL": server.url, "GITHUB_TOKEN": TOKEN, "ATTNWATCH_GITHUB_PAUSE": "0"}
        for head in (FAULT, "ATTNWATCH_FAULTS="):
            args = ("--suite", "decode.suite.json", "--backend", "segmented", "--device", "cpu", "--head-env", head)
            done = start(tmp_path, "compare", *args, "--base-env", "OMP_NUM_THREADS=1", "--json")
            assert done.returncode == (1 if head == FAULT else 0), done.stderr
            (tmp_path / "report.json").write_text(done.stdout, encoding="utf-8")
            args = ("report.json", "--repo", "o/r", "--pr", "7", "--suite", "decode.suite.json", "--json")
            done = start(tmp_path, "comment", *args, **github)
            told.append((done.returncode, json.loads(done.stdout)["comment"]["action"], server.mine()[0]["body"]))
    (code, action, body), (code_after, action_after, after) = told
    assert (code, action) == (1, "created") and (code_after, action_after) == (0, "updated")
    first = body.splitlines()[0]
    assert "kv_len % 128" in first and "6 of 6 combinations" in first
    assert f"--head-env {FAULT}" in body and "--suite decode.suite.json --where" in body
    assert after.startswith("**Recovered.**")
    assert [c["conclusion"] for c in server.checks][-1] in ("success", "neutral")


class Author:
    """A clone with a topic branch whose commits change the segmented kernel."""

    def __init__(self, folder: Path) -> None:
        self.repo = folder / "clone"
        shutil.copytree(ROOT / "kernels", self.repo / "kernels", ignore=shutil.ignore_patterns("__pycache__", "*.egg*"))
        self.git("init", "-q", "-b", "main")
        self.base = self.commit("base")
        self.git("checkout", "-q", "-b", "topic")

    def git(self, *args: str) -> str:
        command = ["git", "-C", str(self.repo), "-c", "user.name=t", "-c", "user.email=t@example.org", *args]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, subject: str) -> str:
        self.git("add", ".")
        self.git("commit", "-q", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def change(self, old: str, new: str) -> str:
        """One commit that points the kernel elsewhere."""
        path = self.repo / "kernels" / "segmented" / "__init__.py"
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        return self.commit(new)


@pytest.mark.scale
def test_a_slow_commit_and_its_fix_go_through_both_workflows(tmp_path: Path) -> None:
    """What pr-bench.yml and pr-comment.yml run, in their order, for a slow commit of a fork and the commit after it."""
    author = Author(tmp_path)
    write_suite(tmp_path)
    sound, slow = (f'"attention": "kernels.{m}"' for m in ("segmented.blocks:attention", "faults.decode_boundary:slow"))
    out, zipped, event = tmp_path / "out", tmp_path / "report.zip", tmp_path / "event.json"
    with serving() as server:
        pull = server.add_pull(repo="fork/r")
        env = {
            **private(tmp_path), "GITHUB_API_URL": server.url, "GITHUB_TOKEN": TOKEN, "ATTNWATCH_GITHUB_PAUSE": "0",
            "GITHUB_REPOSITORY": "o/r", "GITHUB_EVENT_PATH": str(event), "OUT": str(out), "SOURCE": str(author.repo),
            "NUMBER": "7", "BASE_REF": "main", "SUITE": str(tmp_path / "decode.suite.json"),
            "WHERE": "backend == 'segmented'", "ATTNWATCH": str(Path(sys.executable).parent / "attnwatch"),
        }  # fmt: skip
        told = []
        # The fix is another text than before; only then is there something to measure again.
        for old, new in ((sound, slow), (slow, sound.replace(": ", ":  ")), (sound.replace(": ", ":  "), sound)):
            head = author.change(old, new)
            pull["head"]["sha"] = head
            bench = [str(ROOT / "scripts" / "ci" / "pr_bench.sh")]
            done = subprocess.run(
                bench, env={**env, "HEAD_SHA": head}, capture_output=True, text=True, timeout=200, check=False
            )
            assert done.returncode == 0, done.stderr
            with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
                for name in ("report.json", "claim.json"):
                    archive.write(out / name, name)
            run = {"head_sha": head, "head_branch": "topic", "head_repository": {"full_name": "fork/r"}}
            event.write_text(json.dumps({"workflow_run": run}), encoding="utf-8")
            done = start(tmp_path, "comment", str(zipped), "--foreign", "--json", **env)
            told.append((done.returncode, json.loads(done.stdout), server.mine()[0]["body"]))
    (code, first, body), (code_after, second, after), (_, third, last) = told
    assert (code, first["comment"]["action"], first["check"]["conclusion"]) == (1, "created", "failure")
    assert "kv_len % 128" in body.splitlines()[0] and "6 of 6 combinations" in body.splitlines()[0]
    assert f"--base {author.base} --head {first['sha']}" in body and "the pull request's own code" in body
    assert (code_after, second["comment"]["action"]) == (0, "updated") and after.startswith("**Recovered.**")
    assert len(server.mine()) == 1
    assert third["state"] == "unchanged" and last.startswith("**Recovered.** **Nothing to measure**")
