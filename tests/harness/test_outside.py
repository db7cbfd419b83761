"""Backends and suites of others join by entry point alone: they are swept, and broken ones break nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .outside import install
from .test_measure_cli import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    cli = Cli(tmp_path)
    cli.env["PYTHONPATH"] = f"{install(tmp_path / 'site')}:{cli.env['PYTHONPATH']}"
    return cli


def python(cli: Cli, code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], env=cli.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_backend_of_others_is_asked_by_every_suite_and_a_suite_of_others_by_its_name(cli: Cli) -> None:
    code, stdout, stderr = cli("--suite", "smoke", "--backend", "at_work", "--list", "--json")
    assert code == 0, stderr
    assert {c["operation"] for c in json.loads(stdout)["cases"]} == {"attention"}
    code, stdout, stderr = cli("--suite", "ours_at_work", "--list", "--json")
    cases = json.loads(stdout)["cases"]
    assert {(c["benchmark"], c["q_len"]) for c in cases} == {("served", 16), ("served", 24)}
    assert {"at_work", "sdpa_math"} <= {c["backend"] for c in cases}
    assert "lost" not in {c["backend"] for c in cases}
    code, stdout, stderr = cli("--suite", "nonesuch")
    assert code == 2 and "ours_at_work" in stderr and "others_that_are_not_there" in stderr


def test_broken_entry_points_are_told_and_importing_stays_light(cli: Cli) -> None:
    code = (
        "import sys, harness.suites as s; s.load_suite('full'); b = s.find().broken;"
        "print('torch' in sys.modules, len(b), 'others_that_are_not_there' in b[0])"
    )
    assert python(cli, code) == ["False", "1", "True"]


def test_the_worker_that_measures_it_depends_on_its_content(cli: Cli) -> None:
    code = "from harness.suites import outside_modules as m; print(*m(['at_work', 'sdpa_math', 'unheard_of']))"
    assert python(cli, code) == ["others_at_work"]
    code = (
        "from harness.worker.identity import WorkerSpec, identify; from harness.suites import outside_modules as m;"
        "print(identify(WorkerSpec('cpu', modules=m(['at_work']))).key)"
    )
    before = python(cli, code)
    with (cli.folder / "site" / "others_at_work" / "kernel.py").open("a") as file:
        file.write("\nSPEED = 2\n")
    assert python(cli, code) != before


def test_asv_only_counts_what_it_reads(cli: Cli) -> None:
    code = (
        "from harness.suites import asv_keys as a, load_suite as l;"
        "print(len(a('ours_at_work')), len(l('ours_at_work')) > 0, a('full') < {c.key for c in l('full')})"
    )
    assert python(cli, code) == ["0", "True", "True"]


@pytest.mark.slow
def test_both_are_really_measured(cli: Cli) -> None:
    """No fake: the suite of others on a backend of others and one of ours, through the gate."""
    del cli.env["ATTNWATCH_BENCH"]
    code, stdout, stderr = cli(
        "--suite", "ours_at_work", "--backend", "at_work", "--backend", "sdpa_math", "--device", "cpu", "--json",
        "--quick",
    )  # fmt: skip
    assert code == 0, stderr
    found = [(c["backend"], c["q_len"], c["status"]) for c in json.loads(stdout)["cases"]]
    assert sorted(found) == [(b, n, "ok") for b in ("at_work", "sdpa_math") for n in (16, 24)], stderr
