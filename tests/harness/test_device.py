"""Devices without torch: what is chosen, what is refused."""

import os
import subprocess
import sys

import pytest

from harness import device
from harness.model import InfrastructureError, InputError


@pytest.mark.parametrize(("given", "meant"), [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:3", "cuda:3")])
def test_names(given: str, meant: str) -> None:
    assert device.resolve_device(given) == meant


@pytest.mark.parametrize("given", ["", "tpu", "cuda:x", "cpu:0", "cuda:-1"])
def test_bad_names(given: str) -> None:
    with pytest.raises(InputError, match="--device"):
        device.resolve_device(given)


def test_visible_devices_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,2")
    assert device.physical_index("cuda:1") == 2
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert device.physical_index("cuda:1") == 1


def test_a_foreign_process_on_the_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # The driver's answer is replayed; the process is real.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        monkeypatch.setattr(device, "gpu_processes", lambda index: [other.pid, os.getpid(), 2**22 + 5])
        with pytest.raises(InfrastructureError, match=rf"in use by process {other.pid};"):
            device.refuse_foreign_processes("cuda:0")
        other.kill()
    monkeypatch.setattr(device, "gpu_processes", lambda index: [os.getpid()])
    device.refuse_foreign_processes("cuda:0")
