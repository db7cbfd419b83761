"""The action's script on a repository of others: two commits built, measured in environments of their own, judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.comment.render import marker_state

ROOT = Path(__file__).resolve().parents[2]
FAST = """\
import torch


def attention(q, k, v, *, causal=False, **_):
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return out
"""
SLOW = """\
    for _ in range(5):
        out = out + 0 * torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return out"""
PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "theirs"
version = "1"
[tool.setuptools]
py-modules = ["theirs"]
"""


def git(folder: Path, *args: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    return subprocess.run(["git", *who, *args], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.scale
def test_a_slow_commit_of_others_is_told(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    (repo / "pyproject.toml").write_text(PROJECT)
    (repo / "theirs.py").write_text(FAST)
    params = {"batch": 1, "heads_q": 2, "heads_kv": 2, "q_len": 256, "kv_len": 256, "head_dim": 64, "dtype": "float32"}
    params |= {"causal": False, "direction": "fwd"}
    suite = {"format": "attnwatch workloads", "version": 1, "name": "s"}
    workloads = [{"operation": "attention", "params": params}]
    (repo / "s.suite.json").write_text(json.dumps({**suite, "workloads": workloads}))
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "fast")
    base = git(repo, "rev-parse", "HEAD")
    # Five commits, the second of which cannot be built and the fourth of which is slow.
    for subject, file, text in (
        ("a page", "README", "x"), ("no build", "pyproject.toml", "broken ["), ("a build", "pyproject.toml", PROJECT),
        ("slow", "theirs.py", FAST.replace("    return out", SLOW)), ("another page", "README", "y"),
    ):  # fmt: skip
        (repo / file).write_text(text)
        git(repo, "add", ".")
        git(repo, "commit", "-qm", subject)
    slow = git(repo, "rev-parse", "HEAD~1")
    out = tmp_path / "out"
    env = {
        "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ATTNWATCH_RUNTIME_DIR": str(tmp_path / "run"),
        "ATTNWATCH_WORKER_IDLE_S": "20", "OMP_NUM_THREADS": "1", "WORK": str(tmp_path / "work"),
        "OUT": str(out), "RULER": str(Path(sys.prefix)), "BASE": base, "HEAD": "HEAD", "SUITE": "s.suite.json",
        "BACKEND": "theirs:attention", "DEVICE": "cpu", "ACTION_PATH": str(ROOT),
        "BUILD": 'python -m pip wheel --no-deps --no-build-isolation --no-index -q -w "$WHEELS" .',
    }  # fmt: skip
    script = [str(ROOT / "scripts" / "ci" / "action_compare.sh")]

    def start(expect: int, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            script, cwd=repo, env={**env, **more}, capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    start(1)
    (case,) = json.loads((out / "report.json").read_text())["cases"]
    assert case["backend"] == "theirs:attention" and case["verdict"] == "slower" and case["ratio"] > 2
    assert (out / "comment.md").read_text().startswith("**1 regression**: slower")
    wheels = sorted((tmp_path / "work" / "wheels").glob("*/*.whl"))
    assert len(wheels) == 2
    assert "left no wheel" in start(2, BUILD="mkdir -p $WHEELS").stderr
    start(1, BUILD=env["BUILD"], CACHE=str(tmp_path / "work" / "wheels"))
    assert sorted((tmp_path / "work" / "wheels").glob("*/*.whl")) == wheels, "built again"
    assert not (out / "bisect.json").exists()
    told = start(1, BISECT="true")
    answer = json.loads((out / "bisect.json").read_text())
    assert slow in answer["found"] and len(answer["found"]) <= 2, answer
    assert answer["found"] == [slow] or not answer["decided"], answer
    assert any(text.endswith("no build") for text in answer["skipped"]), "what cannot be built is passed over and told"
    comment = (out / "comment.md").read_text()
    assert f"Brought by `{slow}`." in comment or not answer["decided"]
    assert marker_state(comment) == "adverse" and "not found" not in told.stdout
    assert len(list((tmp_path / "work" / "wheels").glob("*/*.whl"))) > 2, "what was built is kept by commit"
