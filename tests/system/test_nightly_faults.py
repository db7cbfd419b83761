"""Nightlies that are broken off, started twice, or have no place to write: nothing lost, clear words, right codes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time

import pytest

from .conftest import SUITE, Clone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ARGS = ("nightly", "--suite", SUITE, "--device", "cpu", "--json")


def wait_for_measurements(clone: Clone, process: subprocess.Popen[str], count: int) -> None:
    """Until the sweep's bundle holds ``count`` measurements that ran."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        for bundle in (clone.repo / ".asv" / "nightly" / "bundles").glob("*.jsonl"):
            if bundle.read_bytes().count(b'"status":"ok"') >= count:
                return
        time.sleep(0.05)
    raise AssertionError(f"the sweep never got so far: {process.communicate()}")


def stored(clone: Clone) -> list[tuple[str, int]]:
    """Runs with the number of their measurements."""
    with sqlite3.connect(clone.db) as connection:
        query = "select run.name, count(*) from run join measurement on measurement.run_id = run.id group by run.id"
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGKILL])
def test_broken_off_goes_on_where_it_was(small_clone: Clone, sig: signal.Signals) -> None:
    process = small_clone.start(*ARGS)
    wait_for_measurements(small_clone, process, 2)
    if sig is signal.SIGKILL:
        os.killpg(process.pid, sig)
    else:
        process.send_signal(sig)
    _, err = process.communicate(timeout=60)
    if sig is signal.SIGINT:
        assert process.returncode == 130
        assert "the same command goes on from there" in err
    kept = next((small_clone.repo / ".asv" / "nightly" / "bundles").glob("*.jsonl"))
    before = [json.loads(x) for x in kept.read_bytes().splitlines() if b'"kind":"measurement"' in x]
    report = small_clone.nightly()
    runs = stored(small_clone)
    assert len(runs) == 1, "the resumed sweep is the same run"
    assert runs[0][0] == report["run_id"] == before[0]["run_id"]
    assert sum(report["counts"].values()) == runs[0][1]
    with sqlite3.connect(small_clone.db) as connection:
        times = {t for (t,) in connection.execute("select started_at from measurement")}
    assert {m["started_at"] for m in before} <= times, "what was measured before is kept, not measured again"


def test_two_at_once(small_clone: Clone) -> None:
    first = small_clone.start(*ARGS)
    wait_for_measurements(small_clone, first, 1)
    second = small_clone.run(*ARGS, expect=3)
    assert f"pid {first.pid}" in second.stderr
    first.communicate(timeout=300)
    assert first.returncode == 0


def test_without_git(small_clone: Clone) -> None:
    shutil.rmtree(small_clone.repo / ".git")
    report = small_clone.nightly()
    assert report["revision"]["id"].startswith("unversioned.")
    assert any("without asv" in n for n in report["notes"])


def test_shallow_and_detached(small_clone: Clone) -> None:
    (small_clone.repo / "note.txt").write_text("x")
    small_clone.git("add", "-A")
    small_clone.git("commit", "-q", "-m", "second")
    shallow = small_clone.repo.parent / "shallow"
    source = f"file://{small_clone.repo}"
    subprocess.run(["git", "clone", "-q", "--depth", "1", source, str(shallow)], check=True, capture_output=True)
    subprocess.run(["git", "-C", str(shallow), "checkout", "-q", "--detach"], check=True)
    report = Clone(shallow).nightly()
    assert report["revision"]["commit"] == small_clone.git("rev-parse", "HEAD")


def test_a_crashing_kernel_does_not_stop_the_sweep(small_clone: Clone) -> None:
    small_clone.nightly()
    with (small_clone.repo / "kernels" / "segmented" / "blocks.py").open("a") as file:
        file.write(
            "\n\ndef attention(q, k, v, **options):\n    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        )
    small_clone.git("commit", "-q", "-am", "crashes")
    report = small_clone.nightly(expect=1)
    assert report["counts"]["crashed"] == 2
    assert report["counts"]["ok"] >= 4
    found = [f for f in report["findings"] if f["kind"] == "status"]
    assert {(f["case"]["backend"], f["head_status"], f["state"]) for f in found} == {
        ("segmented", "crashed", "confirmed")
    }
    assert any("SIGKILL" in why for _, _, why in report["failures"])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--suite", "smok"), "no suite 'smok'"),
        (("--suite", "none.suite.json"), "no such workload file"),
        (("--suite", SUITE, "--budget", "soon"), "no duration"),
        (("--suite", SUITE, "--device", "tpu"), "give cpu, cuda"),
        (("--suite", SUITE, "--db", "nodialect://x"), "nodialect"),
    ],
)
def test_bad_usage(small_clone: Clone, args: tuple[str, ...], words: str) -> None:
    assert words in small_clone.run("nightly", *args, expect=2).stderr


def test_corrupt_store(small_clone: Clone) -> None:
    small_clone.db.write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)
    done = small_clone.run(*ARGS, expect=3)
    assert str(small_clone.db) in done.stderr
    assert small_clone.db.read_bytes().startswith(b"SQLite format 3\0garbage")
