"""``python -m harness.measure`` as people and CI run it: real processes, real signals, real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.bundle import read_bundle
from harness.model import Measurement
from harness.sweep import resume_state

from .workers import FAKE, eventually

_ROOT = Path(__file__).resolve().parents[2]


class Cli:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            **os.environ,
            "ATTNWATCH_RUNTIME_DIR": str(folder / "rt"),
            "ATTNWATCH_BENCH": FAKE,
            "ATTNWATCH_WORKER_IDLE_S": "5",
            "PYTHONPATH": str(_ROOT),
        }

    def start(self, *args: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "harness.measure", *args]
        return subprocess.Popen(
            command, env=self.env, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __call__(self, *args: str) -> tuple[int, str, str]:
        child = self.start(*args)
        out, err = child.communicate(timeout=120)
        return child.returncode, out, err


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def test_a_reader_that_went_away_is_no_traceback(cli: Cli) -> None:
    process = cli.start("--suite", "full", "--list")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.wait(timeout=60)


def suite(folder: Path, n: int = 4) -> str:
    """A workload file with ``n`` workloads."""
    from harness.model import Workload
    from harness.model.workloads import FILE_SUFFIX, write_suite

    path = folder / f"mine{FILE_SUFFIX}"
    shape: dict[str, Any] = {"batch": 1, "heads_q": 1, "heads_kv": 1, "kv_len": 8, "head_dim": 8, "dtype": "float32",
                             "causal": False, "direction": "fwd"}  # fmt: skip
    write_suite(path, [Workload("attention", {**shape, "q_len": i + 1}) for i in range(n)], "mine")
    return str(path)


def test_json_stands_alone_and_matches_the_bundle(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "b.jsonl"
    code, stdout, stderr = cli(
        "--suite", suite(tmp_path), "--backend", "sdpa_math", "--device", "cpu", "--out", str(out), "--json"
    )
    assert code == 0, stderr
    answer = json.loads(stdout)
    assert answer["counts"] == {"ok": 4} and answer["remaining"] == 0 and not answer["interrupted"]
    bundle = [line.record for line in read_bundle(out) if isinstance(line.record, Measurement)]
    assert [c["q_len"] for c in answer["cases"]] == [m.case.workload.params["q_len"] for m in bundle] == [1, 2, 3, 4]
    assert "4 ok" in stderr and "[1/4]" not in stderr, "no progress where standard error is no terminal"


def test_where_list_and_dry_run_measure_nothing(cli: Cli, tmp_path: Path) -> None:
    args = ("--suite", suite(tmp_path), "--backend", "sdpa_m*", "--where", "q_len >= 3")
    code, stdout, _ = cli(*args, "--list", "--json")
    assert code == 0 and [c["q_len"] for c in json.loads(stdout)["cases"]] == [3, 4]
    code, stdout, _ = cli(*args, "--dry-run")
    assert code == 0 and stdout.startswith("2 cases: 2 workloads")
    assert not (tmp_path / "rt").exists() and not list(tmp_path.glob("*.jsonl"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--suite", "nonesuch"], "nonesuch"),
        (["--suite", "smoke", "--backend", "sdpa_mth"], "sdpa_math"),
        (["--suite", "smoke", "--where", "q_len >"], "--where"),
        (["--suite", "smoke", "--where", "qlen > 1"], "q_len"),
        (["--suite", "smoke", "--device", "tpu"], "tpu"),
        (["--suite", "smoke", "--budget", "soon"], "15m"),
        (["--suite", "smoke", "--rel-width", "-1"], "positive"),
        (["--suite", "smoke", "--out", "no/such/folder/b.jsonl"], "no/such/folder"),
        (["--suite", "smoke", "--seed", "x"], "seed"),
        (["--suit", "smoke"], "--suit"),
    ],
)
def test_bad_usage_ends_2_and_names_the_remedy(cli: Cli, args: list[str], message: str) -> None:
    code, stdout, stderr = cli(*args)
    assert code == 2 and message in stderr and not stdout
    assert stderr.startswith("attnwatch: ") and "Traceback" not in stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_keeps_the_bundle_and_the_next_run_resumes(cli: Cli, tmp_path: Path, number: int) -> None:
    out = tmp_path / "b.jsonl"
    (tmp_path / "mymod.py").write_text("def slow():\n    pass\n")
    args = ("--suite", suite(tmp_path, 40), "--backend", "mymod:slow", "--device", "cpu", "--out", str(out), "--json")
    child = cli.start(*args)
    assert eventually(lambda: out.exists() and out.read_bytes().count(b'"kind":"measurement"') >= 2)
    child.send_signal(number)
    stdout, stderr = child.communicate(timeout=60)
    assert child.returncode == 130, stderr
    answer = json.loads(stdout)
    assert answer["interrupted"] and answer["measured"] >= 2 and answer["remaining"] == 40 - answer["measured"]
    assert f"--out {out} goes on from here" in stderr
    run, done, complete, _ = resume_state(out)
    assert run is not None and len(done) == answer["measured"] and not complete

    code, stdout, stderr = cli(*args, "--budget", "1s")
    assert code == 0 and f"resuming run {run.id}" in stderr
    again = json.loads(stdout)
    assert again["run"] == run.id and again["earlier"] == answer["measured"] and again["measured"] >= 1
    keys = [line.record.case.key for line in read_bundle(out) if isinstance(line.record, Measurement)]
    assert len(keys) == len(set(keys)), "nothing was measured twice"


def test_other_options_do_not_resume_but_add_a_run(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "b.jsonl"
    args = ("--suite", suite(tmp_path), "--backend", "sdpa_math", "--device", "cpu", "--out", str(out), "--json")
    assert json.loads(cli(*args, "--budget", "0.001s")[1])["remaining"] == 4
    code, stdout, stderr = cli(*args, "--seed", "5")
    assert code == 0 and "a new run is added" in stderr and json.loads(stdout)["measured"] == 4
    assert len({line.run_id for line in read_bundle(out)}) == 2


def test_second_sweep_on_a_device_ends_3_and_names_the_first(cli: Cli, tmp_path: Path) -> None:
    hold = ("import time\nfrom harness.locks import sweep_lock\n"
            "with sweep_lock('cpu', 'other'):\n    print('held', flush=True)\n    time.sleep(600)\n")  # fmt: skip
    child = subprocess.Popen([sys.executable, "-c", hold], env=cli.env, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        code, stdout, stderr = cli("--suite", suite(tmp_path), "--device", "cpu", "--json")
        assert code == 3 and f"pid {child.pid}" in stderr and not stdout
    finally:
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()


def test_worker_that_cannot_start_ends_3_and_leaves_no_file(cli: Cli, tmp_path: Path) -> None:
    cli.env["FAKE_START"] = "raise"
    code, stdout, stderr = cli("--suite", suite(tmp_path), "--device", "cpu", "--json", "--out", "b.jsonl")
    assert code == 3 and "no device today" in stderr and not stdout and stderr.startswith("attnwatch: ")
    log = next((tmp_path / "rt").glob("*.log"))
    assert str(log) in stderr and "Traceback (most" in log.read_text()
    assert not (tmp_path / "b.jsonl").exists()


def test_runs_without_anything_beyond_the_standard_library(cli: Cli, tmp_path: Path) -> None:
    """The client's half on a bare image: third-party imports fail loudly."""
    place = tmp_path / "bare"
    place.mkdir()
    (place / "sitecustomize.py").write_text(
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'msgspec', 'typer', 'rich', 'sqlalchemy', 'scipy', 'torch', 'asv'}:\n"
        "            raise ImportError('not on a bare image: ' + name)\n"
        "sys.meta_path.insert(0, No())\n"
    )
    cli.env["PYTHONPATH"] = f"{place}{os.pathsep}{_ROOT}"
    code, _, stderr = cli("--suite", suite(tmp_path), "--backend", "sdpa_math", "--device", "cpu")
    assert code == 0, stderr


@pytest.mark.slow
def test_real_smoke_cases_with_a_backend_of_the_users_own(cli: Cli, tmp_path: Path) -> None:
    """No fake: torch, the real bench, and a private backend found from the current folder, wrong and right."""
    del cli.env["ATTNWATCH_BENCH"]
    (tmp_path / "private_backend.py").write_text(
        "import torch\n"
        "def right(q, k, v, *, causal=False, scale=None, **_):\n"
        "    return torch.nn.functional.scaled_dot_product_attention(q, k, v)\n"
        "def wrong(q, k, v, **_):\n"
        "    return q * 0\n"
        "def dies(q, k, v, **_):\n"
        "    import os, signal\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    backends = [a for name in ("right", "wrong", "dies") for a in ("--backend", f"private_backend:{name}")]
    code, stdout, stderr = cli(
        "--suite", suite(tmp_path, 1), *backends, "--backend", "sdpa_math", "--device", "cpu", "--json", "--quick"
    )
    assert code == 0, stderr
    statuses = {c["backend"].rpartition(":")[2]: c["status"] for c in json.loads(stdout)["cases"]}
    assert statuses == {"sdpa_math": "ok", "right": "ok", "wrong": "wrong", "dies": "crashed"}, stderr


@pytest.mark.slow
def test_what_a_store_holds_is_not_measured_again(cli: Cli, tmp_path: Path) -> None:
    from db.engine import open_store
    from harness.ingest import ingest_bundle

    db, out = str(tmp_path / "x.db"), tmp_path / "b.jsonl"
    args = ("--suite", suite(tmp_path), "--backend", "sdpa_math", "--device", "cpu", "--json", "--reuse", db)
    with open_store(db) as store:
        code, told, said = cli(*args, "--out", str(out), "--where", "q_len < 3")
        assert code == 0 and json.loads(told)["counts"] == {"ok": 2} and "0 of 2 cases are in" in said
        ingest_bundle(store, out)
    again = tmp_path / "again.jsonl"
    code, told, said = cli(*args, "--out", str(again))
    assert code == 0 and [c["q_len"] for c in json.loads(told)["cases"]] == [3, 4] and "2 of 4 cases are in" in said
    code, told, _ = cli(*args, "--out", str(tmp_path / "none.jsonl"), "--where", "q_len < 3")
    assert code == 0 and json.loads(told)["measured"] == 0 and not (tmp_path / "none.jsonl").exists()
    code, told, _ = cli(*args, "--out", str(again), "--quick")
    assert json.loads(told)["measured"] == 4, "measured otherwise is another result"
    code, _, said = cli(*args, "--shard", "1/2")
    assert code == 2 and "exclude each other" in said
