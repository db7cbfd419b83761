"""Two commits of our kernels, the second with one number of the tile table changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
_BEFORE, _AFTER = "128: (128, 128, 8, 2),", "128: (128, 128, 4, 2),"


def planted(folder: Path) -> Path:
    """A repository with our kernels; its newest commit halves the warps of dense heads of 128 on sm_90."""
    repo = folder / "repo"
    shutil.copytree(ROOT / "kernels", repo / "kernels", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    _git(repo, "init", "-q")
    _git(repo, "add", ".")
    _git(repo, "commit", "-qm", "Kernels")
    tiles = repo / "kernels" / "triton_support" / "tiles.py"
    text = tiles.read_text()
    assert text.count(_BEFORE) == 1
    tiles.write_text(text.replace(_BEFORE, _AFTER))
    _git(repo, "commit", "-qam", "Half the warps for heads of 128")
    return repo


def _git(repo: Path, *args: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", *who, *args], cwd=repo, check=True, capture_output=True)


def static(repo: Path, *args: str, expect: int = 0) -> dict[str, Any]:
    """What ``attnwatch static --json`` prints in the repository."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ATTNWATCH_RUNTIME_DIR": str(repo.parent / "rt")}
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", "static", *args, "--targets", "90", "--jobs", "1", "--json"],
        cwd=repo, env=env, capture_output=True, text=True, timeout=560, check=False,
    )  # fmt: skip
    assert done.returncode == expect, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
