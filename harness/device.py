"""Which device to measure on, found without importing torch."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .model import InfrastructureError, InputError


def default_device() -> str:
    """``cuda:0`` where torch is a CUDA build and the driver shows a GPU, else ``cpu``."""
    try:
        if "+cpu" in version("torch"):
            return "cpu"
    except PackageNotFoundError:
        return "cpu"
    return "cuda:0" if gpu_count() else "cpu"


def gpu_count() -> int:
    """GPUs that the driver shows; 0 where there is no driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return int(pynvml.nvmlDeviceGetCount())
        finally:
            pynvml.nvmlShutdown()
    except Exception:
        # No library, no driver, no permission: whatever it is, there is no GPU to use.
        return 0


def refuse_foreign_processes(device: str) -> None:
    """InfrastructureError where a process that is not ours computes on the GPU: its work would be in our numbers."""
    if device == "cpu":
        return
    foreign = [pid for pid in gpu_processes(physical_index(device)) if _is_foreign(pid)]
    if foreign:
        pids = ", ".join(str(p) for p in foreign)
        raise InfrastructureError(f"{device} is in use by process {pids}; end it or choose another --device")


def gpu_processes(index: int) -> list[int]:
    """Process ids that hold a compute context on GPU ``index``; empty where the driver does not tell."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            return [int(p.pid) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        finally:
            pynvml.nvmlShutdown()
    except Exception:
        return []


def physical_index(device: str) -> int:
    """Index of the GPU as the driver counts, with ``CUDA_VISIBLE_DEVICES`` applied."""
    number = int(device.partition(":")[2] or 0)
    visible = [v.strip() for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v.strip()]
    chosen = visible[number] if number < len(visible) else str(number)
    return int(chosen) if chosen.isdigit() else number


def _is_foreign(pid: int) -> bool:
    """A process that we can see and that is no worker of ours (an idle worker keeps its context).

    Inside a container the driver tells the host's process ids; one that is not in our ``/proc`` cannot be judged.
    """
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return pid != os.getpid() and b"harness/worker/boot.py" not in command


def resolve_device(text: str | None) -> str:
    """``--device`` as ``cpu`` or ``cuda:N``; InputError for anything else."""
    if text is None:
        return default_device()
    if text == "cpu":
        return text
    name, _, index = text.partition(":")
    if name == "cuda" and (index or "0").isdigit():
        return f"cuda:{int(index or 0)}"
    raise InputError(f"--device: {text!r}; give cpu, cuda or cuda:N")
