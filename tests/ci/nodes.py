"""Where the tests find what comes from npm, and why they are left out where it is not installed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "node"
MODULES = FOLDER / "node_modules"
INSTALL = "npm install --no-audit --no-fund --no-package-lock --prefix tests/ci/node"


def need(package: str) -> Path:
    """The folder of a package. Skips with the command that installs it; in CI its absence is a failure."""
    found = MODULES / package
    if shutil.which("node") is None or not found.is_dir():
        why = f"{package} is not installed; {INSTALL}"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return found
