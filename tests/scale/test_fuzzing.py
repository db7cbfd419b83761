"""A short, coverage-guided search for input that a reader does not survive."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20


@pytest.mark.scale
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_reader_survives_a_search(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs atheris; .ci/run installs the extra")
        pytest.skip("atheris is not installed; pip install -c constraints.txt '.[fuzz]'")
    command = [sys.executable, "-m", "tests.fuzz", name, str(tmp_path), str(ROOT / "tests/fuzz/seeds" / name)]
    command += [f"-max_total_time={SECONDS}", "-timeout=10", "-rss_limit_mb=2048", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS + 120, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"keep the file that it names as a seed: {said[-3000:]}"
    runs = re.search(r"Done (\d+) runs", said)
    assert runs is not None and int(runs[1]) > 100, said[-500:]
