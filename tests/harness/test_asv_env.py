"""The environment type for asv: today's ruler and packages, and of ``kernels`` the commit's alone."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from harness.asv_env import AttnwatchEnvironment, ruler_path_lines

from .outside import install

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty virtual environment with the path file that asv's environments get, and ``kernels`` of its own."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "attnwatch_ruler.pth").write_text("\n".join(ruler_path_lines()) + "\n")
    (site / "kernels").mkdir()
    (site / "kernels" / "__init__.py").write_text("COMMIT = 'under test'\n")
    return folder / "bin" / "python"


def run(python: Path, code: str, **variables: str) -> str:
    env = {**os.environ, **variables}
    done = subprocess.run([python, "-P", "-c", code], cwd="/", env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_the_ruler_and_its_packages_are_todays(python: Path) -> None:
    where = run(python, "import harness, msgspec, asv_runner; print(harness.__file__)")
    assert Path(where).parent == ROOT / "harness"
    assert run(python, "import torch; print(torch.__version__)").startswith("2.")


def test_the_benchmark_type_registers_there(python: Path) -> None:
    code = "from asv_runner.benchmarks import benchmark_types as t; print([c.__name__ for c in t])"
    assert "AttentionBenchmark" in run(python, code)


def test_kernels_are_the_commits_and_there_are_none_without_it(python: Path) -> None:
    assert run(python, "import kernels; print(kernels.COMMIT)") == "under test"
    place = next(python.parents[1].glob("lib/python*/site-packages/kernels"))
    away = place.rename(place.with_name("away"))
    try:
        # The editable install of the working tree must stay out of reach, or a commit without a build measures it.
        assert run(python, "import importlib.util as u; print(u.find_spec('kernels'))") == "None"
    finally:
        away.rename(place)


def test_packages_of_others_come_in_by_a_variable_and_hide_nothing(python: Path, tmp_path: Path) -> None:
    install(tmp_path)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("COMMIT = 'of others'\n")
    code = (
        "import kernels, others_at_work.kernel; from importlib.metadata import entry_points as e;"
        "print(kernels.COMMIT, 'at_work' in e(group='attnwatch.backends').names)"
    )
    assert run(python, code, ATTNWATCH_PATH=str(tmp_path)) == "under test True"


def test_path_lines_lead_nowhere_near_kernels() -> None:
    lines = ruler_path_lines()
    assert not any("kernels" in line for line in lines)
    assert any(Path(line) == Path(p) for line in lines for p in sys.path if p.endswith("site-packages"))


def test_asv_knows_the_type_by_the_name_in_the_configuration() -> None:
    import json

    config = json.loads((ROOT / "asv.conf.json").read_text())
    assert config["environment_type"] == AttnwatchEnvironment.tool_name
    assert ".harness.asv_env" in config["plugins"]
