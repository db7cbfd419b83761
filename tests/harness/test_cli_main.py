"""Whatever goes wrong, the exit code means what it says: 1 is an adverse finding and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CSV = "case,side,value\n" + "".join(f"é€,{side},{1 + i / 1000}\n" for i in range(9) for side in ("base", "head"))


def run(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.cli", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "a.csv"
    path.write_text(CSV, encoding="utf-8")
    return path


ENDLESS = [
    ("compare", "--csv", "/dev/zero"),
    ("compare", "--csv", "/dev/full"),
    ("workload", "import", "/dev/zero"),
    ("measure", "--suite", "/dev/zero"),
]


@pytest.mark.slow
@pytest.mark.parametrize("args", ENDLESS)
def test_endless_files(args: tuple[str, ...]) -> None:
    import resource

    # 3 GiB at most: a reader without a limit of its own would run into this one.
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))  # noqa: E731
    done = run(*args, preexec_fn=limit)
    assert done.returncode == 2, done.stderr
    assert args[-1] in done.stderr
    assert "Traceback" not in done.stderr


def test_full_standard_output(csv: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "harness.cli", "compare", "--csv", str(csv), "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1


def test_reader_that_goes_away(csv: Path) -> None:
    pipe = subprocess.run(
        f"{sys.executable} -m harness.cli compare --csv {csv} --json | head -c 1; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert pipe.returncode == 0, pipe.stderr
    assert pipe.stderr == ""


def test_a_locale_without_the_characters(csv: Path) -> None:
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run("compare", "--csv", str(csv), env=env, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert "é€" in done.stdout


@pytest.mark.parametrize("place", ["/nonexistent/a.json", "/proc/x.json"])
def test_outputs_that_cannot_be_written(tmp_path: Path, place: str) -> None:
    log = tmp_path / "s.jsonl"
    log.write_text('{"seq_len": 64}\n')
    done = run("workload", "import", str(log), "--out", place)
    assert done.returncode in (2, 3)
    assert place in done.stderr
    assert "Traceback" not in done.stderr


def test_deeply_nested_bundle(tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text('{"kind":"run","x":' + "[" * 200_000 + "\n")
    done = run("ingest", str(path), "--db", str(tmp_path / "a.db"))
    assert done.returncode == 2, done.stderr
    assert "deep.jsonl:1" in done.stderr


@pytest.mark.parametrize(
    "args", [("--nonsense",), ("compare", "--relevant", "x"), ("nosuch",), ("triage", "abc", "new")]
)
def test_usage_errors(args: tuple[str, ...]) -> None:
    done = run(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
