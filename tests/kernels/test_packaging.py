"""``kernels`` is ours, not the registry's package of that name, and builds on its own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernels

ROOT = Path(__file__).resolve().parents[2]


def test_kernels_resolves_to_the_repository_from_anywhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import kernels; print(kernels.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={n: v for n, v in os.environ.items() if n != "PYTHONPATH"},
    )
    assert Path(done.stdout.strip()).resolve() == ROOT / "kernels" / "__init__.py"
    assert Path(str(kernels.__file__)).resolve() == ROOT / "kernels" / "__init__.py"


def test_kernels_imports_nothing_of_ours() -> None:
    for path in (ROOT / "kernels").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            tops = {n.partition(".")[0] for n in names}
            assert not tops & {"harness", "db", "dashboard", "benchmarks", "tests"}, path


@pytest.mark.slow
def test_a_wheel_of_the_folder_alone_holds_every_module(tmp_path: Path) -> None:
    import shutil
    import zipfile

    source = tmp_path / "kernels_only"
    shutil.copytree(ROOT / "kernels", source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), "."]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("attnwatch_kernels-*.whl")
    held = {n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".py")}
    wanted = {
        f"kernels/{p.relative_to(ROOT / 'kernels').as_posix()}"
        for p in (ROOT / "kernels").rglob("*.py")
        if p.name != "setup.py" and "build" not in p.parts
    }
    assert wanted <= held
