"""Faults that really happen: cut files, full disks, clocks set back, stores that go away and come back, bombs."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from db.copying import digests
from db.engine import open_store
from db.queries import runs
from harness.bundle import BundleWriter, read_bundle
from harness.imports import judge_new
from harness.ingest import ingest_bundle
from harness.model import InfrastructureError, Measurement, MeasureOptions, Status
from tests.db.factory import DAY, START, make_case, make_measurement, make_run, seeded_bundle, write_run
from tests.harness.workers import QUICK, alive, case, client, eventually, private_runtime
from tests.servers import Server
from tests.system.conftest import SUITE, make_clone
from tests.system.test_nightly_faults import wait_for_measurements

pytestmark = [pytest.mark.scale, pytest.mark.timeout(600)]

NIGHTLY = ("nightly", "--suite", SUITE, "--device", "cpu", "--json")
STEPWISE = "import sys; from tests.db.children import ingest; sys.exit(ingest(*sys.argv[1:4]))"
#: The wall clock of every process that preloads it, moved by the seconds that a file says; no other clock is touched.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long moved(void) {
  long seconds = 0;
  FILE *f = fopen(getenv("TEST_CLOCK_FILE"), "r");
  if (f) { if (fscanf(f, "%ld", &seconds) != 1) seconds = 0; fclose(f); }
  return seconds;
}
int clock_gettime(clockid_t which, struct timespec *t) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(which, t);
  if (!code && which == CLOCK_REALTIME) t->tv_sec += moved();
  return code;
}
int gettimeofday(struct timeval *restrict t, void *restrict zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *t) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (t) *t = now.tv_sec;
  return now.tv_sec;
}
"""


def attnwatch(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness.cli", *args], capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, **(env or {})},
    )  # fmt: skip


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# Power


@pytest.mark.parametrize("tail", ["cut", "zeros"])
def test_a_bundle_cut_by_a_power_failure_is_taken_up_to_the_cut(tmp_path: Path, tail: str) -> None:
    """At 40 places: what was whole is taken, the rest is told, and the whole bundle completes it later."""
    whole = seeded_bundle(tmp_path / "whole.jsonl", 11, runs=2, cases=12)
    data = whole.read_bytes()
    with open_store(tmp_path / "calm.db") as calm:
        everything = ingest_bundle(calm, whole).taken
        expected = digests(calm)
    ends = [k + d for k, c in enumerate(data[:-1]) if c == 10 for d in (0, 1)]
    rng = random.Random(5)
    places = sorted({*rng.sample(range(1, len(data)), 36), *rng.sample(ends, 4)})
    for at in places:
        cut = tmp_path / "cut.jsonl"
        cut.write_bytes(data[:at] + (b"\0" * min(4096, len(data) - at) if tail == "zeros" else b""))
        # A line whose newline alone is missing is whole.
        between = b"\n" in data[at - 1 : at + 1] and tail == "cut"
        complete = data[: at + 1 if between else at].split(b"\n")[:-1]
        with open_store(tmp_path / f"{at}.db") as store:
            report = ingest_bundle(store, cut)
            assert report.taken == sum(b'"kind":"measurement"' in line for line in complete), at
            assert ("truncated" in " ".join(report.warnings)) == (not between), (at, report.warnings)
            assert ingest_bundle(store, whole).taken == everything - report.taken
            assert digests(store) == expected, at
        (tmp_path / f"{at}.db").unlink()


def test_a_bundle_cut_by_a_power_failure_is_gone_on_with(tmp_path: Path) -> None:
    """The next sweep appends to it; what was cut is set aside and nothing else is lost."""
    path, run = tmp_path / "b.jsonl", make_run(planned=6)
    write_run(path, run, [make_measurement(make_case(i)) for i in range(4)], end=False)
    data = path.read_bytes()
    path.write_bytes(data[:-30] + b"\0" * 200)
    with BundleWriter(path) as out:
        assert out.recovered is not None and "b.jsonl.cut" in out.recovered
        for i in range(3, 6):
            out.measurement(run.id, make_measurement(make_case(i)))
    kept = [line.record.case for line in read_bundle(path) if isinstance(line.record, Measurement)]
    assert kept == [make_case(i) for i in range(6)]


def test_a_write_ahead_log_cut_anywhere_holds_whole_ingests_only(tmp_path: Path) -> None:
    """The file of the store and a log cut at 40 places, as a power failure leaves them: one of the states between."""
    bundles = [
        write_run(
            tmp_path / f"{n}.jsonl",
            make_run(n),
            [make_measurement(make_case(i), at=START + DAY * n) for i in range(20)],
        )
        for n in range(5)
    ]
    live, states = tmp_path / "live.db", []
    with open_store(live) as store:
        for bundle in bundles:
            states.append(digests(store))
            ingest_bundle(store, bundle)
        states.append(digests(store))
        base, log = live.read_bytes(), live.with_name("live.db-wal").read_bytes()
    assert len(log) > 100_000, "nothing was moved into the file yet"
    rng, seen = random.Random(6), set()
    for at in [0, *sorted(rng.sample(range(1, len(log)), 38)), len(log)]:
        place = tmp_path / f"cut{at}.db"
        place.write_bytes(base)
        place.with_name(f"{place.name}-wal").write_bytes(log[:at])
        with open_store(place) as store:
            with store.read() as connection:
                assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
                assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
            found = digests(store)
            assert found in states, at
            seen.add(states.index(found))
            for bundle in bundles:
                ingest_bundle(store, bundle)
            assert digests(store) == states[-1], "the bundles fill the gap"
    assert len(seen) >= 4, seen


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False) if shutil.which("mount") else None
    if done is None or done.returncode:
        pytest.skip(f"mounting a tmpfs is not allowed here: {done.stderr.strip() if done else 'no mount'}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def grow(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)


def test_a_full_disk_costs_nothing_that_was_there(small_disk: Path, tmp_path: Path) -> None:
    first = seeded_bundle(tmp_path / "first.jsonl", 1, runs=1, cases=20)
    wide = [
        make_measurement(make_case(i), samples={"latency_s": [1e-3 + 1e-9 * i * k for k in range(2000)]})
        for i in range(400)
    ]
    large = write_run(tmp_path / "large.jsonl", make_run(70), wide)
    db = small_disk / "a.db"
    assert attnwatch("ingest", str(first), "--db", str(db)).returncode == 0
    with open_store(db) as store:
        before = digests(store)
    full = attnwatch("ingest", str(large), "--db", str(db))
    assert full.returncode == 3 and "disk is full" in full.stderr and "nothing of this step was kept" in full.stderr
    assert len(full.stderr.splitlines()) == 1
    with open_store(db) as store:
        assert digests(store) == before
    for command in (("db", "backup", str(small_disk / "kept.db")), ("db", "copy", str(db), str(small_disk / "c.db"))):
        with contextlib.suppress(OSError), (small_disk / "filler").open("wb") as file:
            file.write(b"x" * (8 << 20))
        done = attnwatch(*command, *(("--db", str(db)) if command[1] == "backup" else ()))
        assert done.returncode == 3, done
        assert "full" in done.stderr or "No space" in done.stderr
    assert not (small_disk / "kept.db").exists()
    (small_disk / "filler").unlink()
    (small_disk / "c.db").unlink(missing_ok=True)
    grow(small_disk)
    assert attnwatch("ingest", str(large), "--db", str(db)).returncode == 0
    assert attnwatch("db", "backup", str(small_disk / "kept.db"), "--db", str(db)).returncode == 0
    with open_store(db) as store, open_store(tmp_path / "calm.db") as calm:
        for bundle in (first, large):
            ingest_bundle(calm, bundle)
            judge_new(calm)  # as the command does
        assert digests(store) == digests(calm)


def test_a_nightly_on_a_full_disk_ends_clearly_and_is_gone_on_with(small_disk: Path, tmp_path: Path) -> None:
    clone = make_clone(tmp_path, [256])
    clone.db = small_disk / "night.db"
    clone.env["ATTNWATCH_DB"] = str(clone.db)
    clone.run("db", "upgrade")
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as file:
        for _ in range(1 << 12):
            file.write(b"x" * 1024)
    done = clone.run(*NIGHTLY, expect=3)
    assert "full" in done.stderr, done.stderr
    (small_disk / "filler").unlink()
    report = clone.nightly()
    with open_store(clone.db) as store:
        assert [(r.id, r.complete) for r in runs(store)] == [(report["run_id"], True)]


# Clocks


def test_a_clock_that_is_set_back_during_and_between_nightlies(tmp_path: Path) -> None:
    """A day back in the middle of the first one; a week back before the third."""
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    clone = make_clone(tmp_path, [256, 257])
    offset = tmp_path / "offset"
    offset.write_text("0\n")
    clone.env |= {"LD_PRELOAD": str(library), "TEST_CLOCK_FILE": str(offset)}
    told = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time())"], capture_output=True, text=True, check=True,
        env={**clone.env, "TEST_CLOCK_FILE": str(write(tmp_path / "past", "-864000\n"))},
    )  # fmt: skip
    assert float(told.stdout) < time.time() - 800_000, "the clock can be set back here"
    process = clone.start(*NIGHTLY)
    wait_for_measurements(clone, process, 2)
    offset.write_text("-86400\n")
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    first = json.loads(out)
    second = clone.nightly()
    offset.write_text("-604800\n")
    third = clone.nightly()
    assert len({first["run_id"], second["run_id"], third["run_id"]}) == 3
    with open_store(clone.db) as store:
        held = runs(store)
        assert len(held) == 3 and all(r.complete for r in held)
        assert all(r.finished_at is not None and r.finished_at >= r.started_at for r in held)
        assert third["run_id"] == held[-1].id, "by its own clock it was the first"
        with store.read() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM measurement WHERE duration_s < 0").scalar() == 0
            doubled = "SELECT 1 FROM measurement GROUP BY run_id, case_id, attempt HAVING count(*) > 1"
            assert connection.exec_driver_sql(doubled).all() == []


# Several at once


def test_of_five_nightlies_at_once_one_measures(tmp_path: Path) -> None:
    clone = make_clone(tmp_path, [256])
    processes = [clone.start(*NIGHTLY) for _ in range(5)]
    ended = [(*p.communicate(timeout=400), p.returncode) for p in processes]
    codes = sorted(code for *_, code in ended)
    assert codes.count(0) >= 1 and set(codes) <= {0, 3}, ended
    for _, err, code in ended:
        if code == 3:
            assert "pid" in err
    with open_store(clone.db) as store:
        held = runs(store)
        assert len(held) == codes.count(0) and all(r.complete for r in held)


# Stores that go away


def stepwise(database: str, bundle: Path) -> subprocess.Popen[str]:
    """An ingest that has written forty records and waits."""
    child = subprocess.Popen(
        [sys.executable, "-c", STEPWISE, database, str(bundle), "10"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    for _ in range(3):
        assert child.stdout.readline().strip().isdigit()
        child.stdin.write("\n")
        child.stdin.flush()
    assert child.stdout.readline().strip() == "40"
    return child


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced", "folder moved"])
def test_a_store_that_goes_away_during_an_ingest_is_told(tmp_path: Path, how: str) -> None:
    """SQLite itself would write on, into a file that nobody can find."""
    folder, away = tmp_path / "store", tmp_path / "away"
    folder.mkdir()
    away.mkdir()
    db, bundle = folder / "a.db", seeded_bundle(tmp_path / "b.jsonl", 5, runs=2, cases=60)
    with open_store(db) as store:
        ingest_bundle(store, write_run(tmp_path / "before.jsonl", make_run(90), [make_measurement(make_case())]))
        before = digests(store)
    shutil.copy(db, tmp_path / "spare.db")
    child = stepwise(str(db), bundle)
    files = [p for p in folder.iterdir() if p.name.startswith("a.db")]
    if how == "folder moved":
        folder.rename(tmp_path / "elsewhere")
    for path in files if how == "moved" else ():
        path.rename(away / path.name)
    for path in files if how in ("deleted", "replaced") else ():
        path.unlink()
    if how == "replaced":
        shutil.copy(tmp_path / "spare.db", db)
    out, _ = child.communicate("\n" * 50, timeout=120)
    assert child.returncode == 3, out
    assert "moved, deleted or replaced" in out
    if how == "folder moved":
        (tmp_path / "elsewhere").rename(folder)
    if how == "moved":
        for path in away.iterdir():
            path.rename(folder / path.name)
    with open_store(db) as store:
        if how != "deleted":
            assert digests(store) == before, "undone"
        assert ingest_bundle(store, bundle).taken > 100


def test_a_store_that_is_locked_for_a_while_is_waited_for(tmp_path: Path) -> None:
    db, bundle = tmp_path / "a.db", seeded_bundle(tmp_path / "b.jsonl", 5, runs=1, cases=20)
    open_store(db).close()
    other = sqlite3.connect(db, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    child = subprocess.Popen([sys.executable, "-m", "harness.cli", "ingest", str(bundle), "--db", str(db)])
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(4)
    with open_store(db, lock_timeout_s=0.2) as hurried, pytest.raises(InfrastructureError, match="locked by another"):
        ingest_bundle(hurried, bundle)
    other.execute("ROLLBACK")
    other.close()
    assert child.wait(120) == 0
    with open_store(db) as store:
        assert len(runs(store)) == 1


def test_a_server_that_is_gone_when_the_sweep_ends_loses_no_night(
    server: Server, database: str, tmp_path: Path
) -> None:
    clone = make_clone(tmp_path, [256, 257])
    clone.env["ATTNWATCH_DB"] = database
    clone.run("db", "upgrade")
    process = clone.start(*NIGHTLY)
    wait_for_measurements(clone, process, 2)
    server.stop("immediate")
    try:
        _, err = process.communicate(timeout=400)
        assert process.returncode == 3 and "not reached" in err
        clone.run(*NIGHTLY, expect=3)
    finally:
        server.start()
    report = clone.nightly()
    with open_store(database) as store:
        assert [(r.id, r.complete) for r in runs(store)] == [(report["run_id"], True)], "one run, gone on with"


# What a backend may do to its worker


def test_processes_that_multiply_end_with_their_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = private_runtime(tmp_path, monkeypatch)
    record = tmp_path / "pids"
    with client(tmp_path) as c:
        assert c.measure(case(), QUICK).status is Status.OK
        m = c.measure(case(f"multiply:{record}"), MeasureOptions(timeout_s=120.0))
        assert m.status is Status.CRASHED
        assert "processes were running below it" in m.detail
        pids = [int(p) for p in record.read_text().split()]
        assert len(pids) > 100
        assert eventually(lambda: not any(alive(p) for p in pids))
        assert c.measure(case(), QUICK).status is Status.OK, "the next case has a new worker"
    assert runtime.exists()


def test_hangs_one_after_the_other_cost_their_limits_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_runtime(tmp_path, monkeypatch)
    with client(tmp_path) as c:
        pids: list[Any] = []
        for k in range(5):
            assert c.measure(case("hang", batch=k + 1), MeasureOptions(timeout_s=0.3)).status is Status.TIMED_OUT
            m = c.measure(case(batch=k + 1), QUICK)
            assert m.status is Status.OK
            pids.append(m.telemetry["pid"])
        assert len(set(pids)) == 5
        assert eventually(lambda: sum(alive(int(str(p))) for p in pids) <= 1)
