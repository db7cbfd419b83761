"""asv and all that it starts end with the sweep, whatever ends the sweep; until then the sweep's lock is held."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.asv_drive import _without_kernels
from harness.locks import sweep_lock
from harness.model import InfrastructureError

from .workers import alive, eventually, private_runtime

# Stands in for asv: a tree of processes that leave groups and sessions and take no hint, and note who they are.
_TREE = """
import os, signal, sys, time
def born():
    with open(sys.argv[1], "a") as f:
        f.write(f"{os.getpid()}\\n")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
born()
for leave in (lambda: None, os.setsid, lambda: os.setpgid(0, 0)):
    if os.fork() == 0:
        leave()
        if os.fork() == 0:
            born()
            time.sleep(600)
            os._exit(0)
        os._exit(0)
time.sleep(600)
"""

_SWEEP = """
import os, sys
from pathlib import Path
from harness.asv_drive import _minded
from harness.locks import sweep_lock
with sweep_lock("cpu", "nightly"), open(sys.argv[1], "ab") as out:
    try:
        _minded([sys.executable, "-c", sys.argv[2], sys.argv[3]], Path("/"), dict(os.environ), out, lambda: None)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(130)
"""


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process that holds the sweep lock and minds four others, with their ids."""
    private_runtime(tmp_path, monkeypatch)
    record = tmp_path / "pids"
    process = subprocess.Popen(
        [sys.executable, "-c", _SWEEP, str(tmp_path / "log"), _TREE, str(record)], stdout=subprocess.PIPE, text=True
    )
    assert eventually(lambda: record.exists() and len(record.read_text().split()) == 4)
    pids = [int(p) for p in record.read_text().split()]
    assert all(alive(p) for p in pids)
    yield process, pids
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_nothing_outlives_a_killed_sweep_and_the_next_waits_for_that(
    sweep: tuple[subprocess.Popen[str], list[int]],
) -> None:
    process, pids = sweep
    with pytest.raises(InfrastructureError, match=f"pid {process.pid} \\(nightly\\)"), sweep_lock("cpu", "too early"):
        pytest.fail("two sweeps at once")
    process.kill()
    process.wait()
    with sweep_lock("cpu", "the next"):
        assert not any(alive(p) for p in pids), "the lock was free before they had gone"


@pytest.mark.slow
def test_an_interrupt_ends_everything_before_it_is_raised(sweep: tuple[subprocess.Popen[str], list[int]]) -> None:
    process, pids = sweep
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("interrupted\n", 130)
    assert not any(alive(p) for p in pids)
    with sweep_lock("cpu", "the next"):
        pass


def test_what_asv_started_ends_too_when_the_minder_is_killed(sweep: tuple[subprocess.Popen[str], list[int]]) -> None:
    """At least asv itself: nobody is left to find the others."""
    process, pids = sweep
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    assert eventually(lambda: not alive(pids[0]))
    for pid in pids[1:]:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("code", "given"), [("import sys; sys.exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_code_is_asvs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, given: int) -> None:
    from harness.asv_drive import _minded

    private_runtime(tmp_path, monkeypatch)
    with (tmp_path / "log").open("ab") as out, sweep_lock("cpu", "short"):
        assert _minded([sys.executable, "-c", code], tmp_path, dict(os.environ), out, None) == given


def test_a_worker_started_below_asv_stays_when_asv_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.asv_drive import _minded

    private_runtime(tmp_path, monkeypatch)
    record = tmp_path / "pid"
    script = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "open(sys.argv[1], 'w').write(str(p.pid))\n"
    )
    with (tmp_path / "log").open("ab") as out:
        assert _minded([sys.executable, "-c", script, str(record)], tmp_path, dict(os.environ), out, None) == 0
    pid = int(record.read_text())
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_folders_with_something_named_kernels_are_kept_from_asv(tmp_path: Path) -> None:
    for name in ("good", "package", "module"):
        (tmp_path / name).mkdir()
    (tmp_path / "package" / "kernels").mkdir()
    (tmp_path / "module" / "kernels.py").touch()
    search = os.pathsep.join(str(tmp_path / n) for n in ("package", "good", "module"))
    assert _without_kernels(search) == str(tmp_path / "good")
