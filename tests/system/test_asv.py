"""asv's own commands work on our suites with their own result files."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from .conftest import SUITE, Clone


def asv(clone: Clone, *args: str, expect: tuple[int, ...] = (0,)) -> str:
    env = {**clone.env, "ATTNWATCH_SUITE": str(clone.repo / SUITE)}
    command = [sys.executable, "-m", "asv", *args]
    done = subprocess.run(command, cwd=clone.repo, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode in expect, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_benchmark_type_registers() -> None:
    # asv swallows an ImportError there, and all benchmarks would quietly be gone.
    code = "from asv_runner.benchmarks import benchmark_types as t; print([c.__name__ for c in t])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "AttentionBenchmark" in done.stdout


def test_the_child_imports_no_torch() -> None:
    code = "import sys, harness.asv_child, benchmarks.prefill; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_run_continuous_compare_publish(small_clone: Clone) -> None:
    asv(small_clone, "machine", "--yes")
    first = small_clone.git("rev-parse", "HEAD")
    with (small_clone.repo / "kernels" / "segmented" / "blocks.py").open("a") as file:
        file.write("\n\ndef _later() -> None:\n    pass\n")
    small_clone.git("commit", "-q", "-am", "second")
    second = small_clone.git("rev-parse", "HEAD")
    out = asv(small_clone, "continuous", "--launch-method", "forkserver", first, second, expect=(0, 1))
    assert "SIGNIFICANTLY" in out
    results = sorted((small_clone.repo / ".asv" / "results").glob("*/*-*.json"))
    commits = {json.loads(p.read_text())["commit_hash"] for p in results}
    assert commits == {first, second}
    data = json.loads(results[0].read_text())
    values = data["results"]["imported.attn_attention"][0]
    assert any(isinstance(v, float) and 0 < v < 10 for v in values)
    # Each commit was measured with its own kernels: two bundles, two hashes of what was imported.
    bundles = sorted((small_clone.repo / ".asv" / "bundles").glob("*.jsonl"))
    heads = [json.loads(b.read_text().splitlines()[0]) for b in bundles]
    measured = {h["revision"]["commit"]: h["environment"]["kernels_hash"] for h in heads}
    assert set(measured) == {first, second}
    assert len(set(measured.values())) == 2
    for bundle, head in zip(bundles, heads, strict=True):
        rows = [json.loads(x) for x in bundle.read_text().splitlines() if '"kind":"measurement"' in x[:40]]
        ran = {r["telemetry"]["kernels_hash"] for r in rows if r["status"] == "ok"}
        assert ran == {head["environment"]["kernels_hash"]}
        assert all(os.fspath(small_clone.repo / ".asv" / "env") in r["telemetry"]["kernels_path"] for r in rows
                   if r["status"] == "ok")  # fmt: skip
    assert first[:8] in asv(small_clone, "compare", first, second)
    asv(small_clone, "publish")
    assert (small_clone.repo / ".asv" / "html" / "index.html").exists()
    # And what asv drove is taken into a store like any other bundle.
    report = json.loads(small_clone.run("ingest", str(small_clone.repo / ".asv" / "bundles"), "--json").stdout)
    assert report["taken"] > 0
    assert len(report["runs"]) == 2
