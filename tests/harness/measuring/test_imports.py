"""The measuring half runs where there is only torch, triton, numpy, NVML and the standard library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

BLOCKER = """
import sys
class Blocker:
    names = {"msgspec", "scipy", "rich", "typer", "sqlalchemy", "alembic", "asv", "asv_runner", "pandas",
             "streamlit", "virtualenv", "hypothesis", "click", "db", "dashboard", "benchmarks"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"blocked: {name}")
sys.meta_path.insert(0, Blocker())
"""

MEASURE = """
from harness.measuring import Bench
from harness.model import Case, MeasureOptions, Status, Workload
import harness.measuring.timing.cuda, harness.revision
params = dict(batch=1, heads_q=1, heads_kv=1, q_len=8, kv_len=8, head_dim=8, dtype="float32", causal=False,
              direction="fwd")
got = Bench("cpu").measure(Case("b", Workload("attention", params), "sdpa_math"), MeasureOptions(max_samples=6))
assert got.status is Status.OK, got.detail
print("measured")
"""

LAZY = """
import harness.measuring, harness.hashing, harness.revision, harness.measuring.counting, harness.measuring.operations
import harness.measuring.backends
from harness.hashing import kernels_location
kernels_location()
assert "torch" not in sys.modules and "kernels" not in sys.modules
print("light")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCKER + code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_case_is_measured_with_nothing_else_installed() -> None:
    done = run(MEASURE)
    assert done.stdout == "measured\n", done.stderr
    assert done.stderr == ""


def test_importing_needs_no_torch() -> None:
    done = run(LAZY)
    assert done.stdout == "light\n", done.stderr
