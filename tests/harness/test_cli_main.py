"""Whatever goes wrong, the exit code means what it says: 1 is an adverse finding and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from db.engine import open_store
from harness.cli import main

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


def _shell(text: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = text.replace("attnwatch", f"{sys.executable} -m harness.cli")
    return subprocess.run(
        command, shell=True, executable="/bin/bash", capture_output=True, text=True, timeout=60, check=False, **more
    )


def test_reader_that_goes_away_while_the_parser_watches() -> None:
    # More than a pipe and the buffer before it hold, so that the write fails inside the command.
    done = _shell("attnwatch measure --suite smoke --list | exec 0<&-; exit ${PIPESTATUS[0]}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_broken_pipe_of_something_else(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> int:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("harness.cli._run", broken)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 3
    assert "internal error: BrokenPipeError" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("streams", "why"),
    [
        (">&-", "standard output is closed"),
        ("<&-", "standard input is closed"),
        ("<&- >&-", "standard output is closed"),
    ],
)
def test_closed_streams(streams: str, why: str) -> None:
    done = _shell(f"attnwatch explain --csv - --json {streams}")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert why in done.stderr


def test_closed_standard_error_leaves_the_answer_alone(csv: Path) -> None:
    done = _shell(f"attnwatch compare --csv {csv}.none --json 2>&-")
    assert (done.returncode, done.stdout) == (2, "")


def test_argument_that_is_no_text(tmp_path: Path) -> None:
    open_store(tmp_path / "a.db").close()
    done = _shell(f"attnwatch explain $'\\xff' --json --db {tmp_path / 'a.db'}")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "argument 2: b'\\xff' is not UTF-8" in done.stderr


@pytest.mark.parametrize("place", ["/dev/full", "fifo"])
def test_measuring_into_what_may_never_end(tmp_path: Path, place: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    command = [sys.executable, "-m", "harness.measure", "--suite", "smoke", "--out", str(tmp_path / place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"--out {tmp_path / place}: not a regular file" in done.stderr


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
