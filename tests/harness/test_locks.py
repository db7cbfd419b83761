"""Locks between processes, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.locks import device_lock, file_lock, holder, physical_device, sweep_lock
from harness.model import Exit, InfrastructureError

from .workers import eventually

_HOLD = (
    "import sys, time\n"
    "from harness.locks import sweep_lock\n"
    "with sweep_lock('cpu', 'nightly of \"all\"'):\n"
    "    print('held', flush=True)\n"
    "    time.sleep(600)\n"
)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNWATCH_RUNTIME_DIR", str(tmp_path / "rt"))
    return tmp_path / "rt"


def test_second_sweep_names_the_first_and_death_releases(runtime: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", _HOLD], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        with pytest.raises(InfrastructureError) as caught, sweep_lock("cpu", "second"):
            pass
        assert f'pid {child.pid} (nightly of "all")' in str(caught.value)
        assert caught.value.exit_code is Exit.INFRASTRUCTURE
        with sweep_lock("cuda:0", "other device"), device_lock("cpu", "one case"):
            pass
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        if child.stdout:
            child.stdout.close()
    with sweep_lock("cpu", "third"):
        pass


def test_file_names_its_holder_only_while_held(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with file_lock(path, "testing"):
        assert holder(path).pid == os.getpid() and holder(path).purpose == "testing"
    assert holder(path).pid == 0
    path.write_text("{garbage")
    assert str(holder(path)) == "another process"
    with pytest.raises(RuntimeError, match="inside"), file_lock(path, "again"):
        raise RuntimeError("inside")
    with file_lock(path, "after an error", wait_s=0.0):
        pass


def test_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with file_lock(path, "parent"):
        read, write = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        os.close(read)
    try:
        with file_lock(path, "next", wait_s=0.0):
            pass
    finally:
        os.close(write)
        os.waitpid(pid, 0)


def test_contention_counts_every_turn(runtime: Path, tmp_path: Path) -> None:
    """Four processes increment a number in a file under the lock; none is lost."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    script = (
        "import sys, pathlib\n"
        "from harness.locks import device_lock\n"
        "p = pathlib.Path(sys.argv[1])\n"
        "for _ in range(25):\n"
        "    with device_lock('cpu', 'count'):\n"
        "        p.write_text(str(int(p.read_text()) + 1))\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", script, str(counter)]) for _ in range(4)]
    assert [c.wait(60) for c in children] == [0] * 4
    assert counter.read_text() == "100"


def test_waiting_ends_with_the_holder(runtime: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", _HOLD.replace("600", "0.3")], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    with sweep_lock("cpu", "patient", wait_s=60.0):
        assert eventually(lambda: child.poll() == 0)
    child.stdout.close()


@pytest.mark.parametrize(
    ("device", "visible", "physical"),
    [
        ("cpu", "3", "cpu"), ("cuda", None, "cuda:0"), ("cuda:1", None, "cuda:1"), ("cuda", "3", "cuda:3"),
        ("cuda:1", "3, 5", "cuda:5"), ("cuda:0", "GPU-ab/c", "cuda:GPU-ab/c"), ("cuda:4", "1", "cuda:4"),
    ],
)  # fmt: skip
def test_device_is_the_same_whatever_a_process_sees(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, device: str, visible: str | None, physical: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert physical_device(device) == physical
    with device_lock(device, "name is a file name"):
        pass


def test_lock_in_a_missing_folder_is_an_infrastructure_error(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="cannot open lock"), file_lock(tmp_path / "no" / "lock", "x"):
        pass
