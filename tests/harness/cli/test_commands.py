"""Every command as people and CI run it: help, JSON alone on standard output, exit codes, errors in one line."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from db.engine import open_store
from harness.ingest import ingest_bundle
from harness.measure_flags import FLAGS
from harness.model import Status
from tests.db.factory import make_case, make_measurement, make_run, write_run
from tests.harness.workers import FAKE

ROOT = Path(__file__).resolve().parents[3]


#: As the installed script runs it: under the name that people type.
MAIN = "import sys; sys.argv[0] = 'attnwatch'; from harness.cli import main; main()"


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """``attnwatch`` in a folder of its own, with a worker that needs no torch."""
    env = {
        **os.environ, "ATTNWATCH_RUNTIME_DIR": str(tmp_path / "rt"), "ATTNWATCH_BENCH": FAKE,
        "ATTNWATCH_WORKER_IDLE_S": "5", "PYTHONPATH": str(ROOT), "COLUMNS": "120",
    }  # fmt: skip
    env.pop("ATTNWATCH_DB", None)

    def call(*args: str, **variables: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *args], cwd=tmp_path, env={**env, **variables}, text=True,
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A store with one run: two cases that ran and one that crashed."""
    path = tmp_path / "b.jsonl"
    crashed = make_measurement(make_case(2), status=Status.CRASHED)
    write_run(path, make_run(), [make_measurement(make_case(i)) for i in range(2)] + [crashed])
    with open_store(str(tmp_path / "s.db")) as store:
        ingest_bundle(store, path)
    return str(tmp_path / "s.db")


def commands() -> list[str]:
    """All commands, as the documentation lists them."""
    from typer.main import get_command

    from harness.cli.app import app
    from scripts.check_docs import commands as leaves

    return sorted(leaves(get_command(app)))


@pytest.mark.slow
def test_every_command_has_help_and_exits_0(run: Run) -> None:
    found = commands()
    assert {"nightly", "measure", "ingest", "compare", "doctor", "export", "db upgrade", "workload import"} <= set(
        found
    )
    for name in found:
        done = run(*name.split(), "--help")
        assert done.code == 0 and done.out.startswith(f"Usage: attnwatch {name}") and not done.err, name


@pytest.mark.slow
def test_what_prints_results_takes_json(run: Run) -> None:
    for name in commands():
        if name != "dashboard":  # serves until it is ended
            assert "--json" in run(*name.split(), "--help").out, name


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "Usage: attnwatch"),
        (("nope",), "attnwatch: No such command 'nope'"),
        (("measure", "--nope"), "attnwatch: No such option: --nope"),
        (("ingest",), "attnwatch: Missing argument 'PATH...'"),
        (("compare", "--relevant", "x"), "attnwatch: Invalid value for '--relevant'"),
        (("compare", "--relevant", "-1"), "attnwatch: --relevant"),
        (("compare", "--csv", "gone.csv"), "attnwatch: gone.csv: no such file"),
        (("compare", "--device", "cpu"), "attnwatch: base and head are the same"),
        (("measure", "--suite", "nope"), "attnwatch: --suite: no suite 'nope'"),
        (("measure", "--seed", "x"), "attnwatch: argument --seed"),
        (("nightly", "--suite", "nope"), "attnwatch: --suite: no suite 'nope'"),
        (("nightly", "--budget", "soon"), "attnwatch: --budget: 'soon'"),
        (("doctor", "--device", "tpu"), "attnwatch: --device"),
        (("ingest", "gone"), "attnwatch: gone: no such file"),
        (("import-check", "gone"), "attnwatch: gone: no such file"),
        (("export", "--format", "xml"), "attnwatch: --format: 'xml'"),
        (("export", "--format", "csv", "--json"), "attnwatch: --json and --format csv"),
        (("export", "--db", "gone.db"), "attnwatch: gone.db"),
        (("db", "info", "--db", "gone.db"), "attnwatch: gone.db"),
        (("db", "upgrade", "--db", "nodialect://x"), "attnwatch: "),
        (("workload", "import", "gone.csv"), "attnwatch: gone.csv"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, tuple) else "",
)
def test_bad_usage_ends_2_with_one_line_on_standard_error(run: Run, args: tuple[str, ...], words: str) -> None:
    done = run(*args)
    assert done.code == 2 and not done.out, done
    assert done.err.startswith(words), done.err
    assert not args or len(done.err.strip().splitlines()) == 1, done.err


def test_infrastructure_ends_3(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)
    for args in (("db", "info", "--db", "bad.db"), ("export", "--db", "bad.db"), ("doctor", "--device", "cpu")):
        done = run(*args, FAKE_START="raise")
        assert done.code == 3 and not done.out and done.err.startswith("attnwatch: "), (args, done)
        assert "Traceback" not in done.err.partition("log ")[0]


@pytest.mark.slow
def test_ingest_check_info_and_upgrade_say_json(run: Run, tmp_path: Path, db: str) -> None:
    for args, expect in (
        (("import-check", "b.jsonl"), {"taken": 3, "duplicates": 0}),
        (("ingest", "b.jsonl", "--db", db), {"taken": 0, "duplicates": 3}),
        (("db", "info", "--db", db), {"runs": 1, "measurements": 3}),
        (("db", "upgrade", "--db", "new.db"), {"store": "new.db", "schema": "0001"}),
    ):
        done = run(*args, "--json")
        assert done.code == 0 and not done.err, done
        answer = json.loads(done.out)
        assert {k: answer[k] for k in expect} == expect
        assert run(*args).code == 0
    assert (tmp_path / "new.db").exists()
    (tmp_path / "not.jsonl").write_text("hello\n")
    done = run("ingest", "b.jsonl", "not.jsonl", "--db", "other.db", "--json")
    assert done.code == 2 and not done.out and "not.jsonl: not of a format" in done.err
    assert json.loads(run("db", "info", "--db", "other.db", "--json").out)["measurements"] == 0


@pytest.mark.slow
def test_export_as_csv_and_as_json(run: Run, db: str) -> None:
    plain = run("export", "--db", db)
    rows = list(csv.DictReader(io.StringIO(plain.out)))
    assert plain.code == 0 and [r["status"] for r in rows] == ["ok", "ok", "crashed"] and plain.err == "3 rows\n"
    for args in (("--json",), ("--format", "json")):
        done = run("export", "--db", db, *args)
        assert [m["status"] for m in json.loads(done.out)["measurements"]] == ["ok", "ok", "crashed"]
    assert run("export", "--db", db, "--run", "nope").code == 2


def samples(path: Path, ratio: float) -> str:
    lines = [f"c,{side},{v * (ratio if side == 'head' else 1)}" for v in range(100, 130) for side in ("base", "head")]
    path.write_text("\n".join(["case,side,value", *lines]) + "\n")
    return path.name


@pytest.mark.slow
def test_compare_csv_ends_1_for_slower_0_otherwise_and_refuses_other_modes(run: Run, tmp_path: Path) -> None:
    slow, fast = samples(tmp_path / "slow.csv", 1.5), samples(tmp_path / "fast.csv", 0.5)
    done = run("compare", "--csv", slow, "--json")
    assert done.code == 1 and json.loads(done.out)["cases"]["c"]["verdict"] == "slower" and not done.err
    done = run("compare", "--csv", fast)
    assert done.code == 0 and done.out.startswith("faster")
    (tmp_path / "one.csv").write_text("case,side,value\nc,base,1\nc,head,2\n")
    done = run("compare", "--csv", "one.csv", "--json")
    assert done.code == 0 and json.loads(done.out)["cases"]["c"]["smallest_detectable"] is None
    assert run("compare", "--csv", "one.csv").out.startswith("ambiguous")
    for flag, value in (
        ("--suite", "smoke"), ("--backend", "x"), ("--where", "x"), ("--base", "x"), ("--head", "x"),
        ("--base-python", "x"), ("--head-env", "A=1"), ("--device", "cpu"), ("--budget", "1s"),
    ):  # fmt: skip
        done = run("compare", "--csv", slow, flag, value)
        assert done.code == 2 and flag in done.err and not done.out, flag
    assert run("compare", "--csv", slow, "--relevant", "0.9").code == 0


@pytest.mark.slow
def test_compare_gives_a_backend_of_ones_own_to_both_sides(run: Run, tmp_path: Path) -> None:
    """The fake bench runs whatever it is named; that the module is pinned shows in the worker's key."""
    (tmp_path / "mymod.py").write_text("def ok():\n    pass\n")
    args = ("compare", "--base-env", "OMP_NUM_THREADS=1", "--head-env", "OMP_NUM_THREADS=2", "--device", "cpu",
            "--backend", "mymod:ok", "--where", "benchmark == 'decode' and q_len == 4", "--json")  # fmt: skip
    done = run(*args)
    assert done.code == 0, done.err
    assert [c["backend"] for c in json.loads(done.out)["cases"]] == ["mymod:ok"]
    before = set((tmp_path / "rt").rglob("*.sock"))
    (tmp_path / "mymod.py").write_text("def ok():\n    return 1\n")
    assert run(*args).code == 0
    assert len(set((tmp_path / "rt").rglob("*.sock")) - before) == 2, "changed code is measured by workers of its own"


@pytest.mark.parametrize("json_out", [True, False])
def test_doctor_ends_3_where_nothing_is_usable(run: Run, tmp_path: Path, json_out: bool) -> None:
    args = ("doctor", "--device", "cpu", *(["--json"] if json_out else []))
    done = run(*args)
    assert done.code == 0 and "absent" in done.out, done.err
    if json_out:
        assert [b["usable"] for b in json.loads(done.out)["backends"]] == [True, False]
    # Another runtime folder is another worker, here one whose bench reports nothing usable.
    done = run(*args, FAKE_REPORTS="none", ATTNWATCH_RUNTIME_DIR=str(tmp_path / "rt2"))
    assert done.code == 3 and done.out, done.err
    if json_out:
        assert not any(b["usable"] for b in json.loads(done.out)["backends"])


def test_both_ways_of_measuring_have_the_same_flags_and_defaults(run: Run, tmp_path: Path) -> None:
    typer_help = run("measure", "--help").out
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    plain = subprocess.run(
        [sys.executable, "-m", "harness.measure", "--help"], cwd=tmp_path, env=env, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    for flag in FLAGS:
        for text in (typer_help, plain):
            assert f"{flag.name} {flag.metavar}".strip() in text and flag.help.split(";")[0][:20] in text, flag
    a = json.loads(run("measure", "--list", "--json", "--backend", "sdpa_math").out)
    done = subprocess.run(
        [sys.executable, "-m", "harness.measure", "--list", "--json", "--backend", "sdpa_math"], cwd=tmp_path, env=env,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert a == json.loads(done.stdout) and a["count"] > 0


def test_measure_says_json_alone_and_passes_what_begins_with_a_dash(run: Run) -> None:
    done = run(
        "measure", "--device", "cpu", "--backend", "sdpa_math", "--where", "-q_len < -1000 and not causal", "--json"
    )
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["counts"] == {"ok": len(answer["cases"])} and answer["cases"]
