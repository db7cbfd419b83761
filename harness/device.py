"""Which device to measure on, found without importing torch."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from .model import InputError


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
