"""Is the device there? Raised as a reason, never guessed."""

from __future__ import annotations

from ..backend import Unavailable, device_kind


def torch_version(device: str) -> str:
    """Version of torch. Raises :class:`Unavailable` where torch cannot see ``device``."""
    import torch

    version = str(torch.__version__)
    if device_kind(device) == "cuda" and not torch.cuda.is_available():
        remedy = "install a CUDA build of torch on a machine with an NVIDIA driver"
        raise Unavailable(f"torch {version} sees no CUDA device", remedy)
    return version


def compute_capability(device: str) -> tuple[int, int]:
    """(major, minor) of a CUDA device. Raises :class:`Unavailable` where there is none."""
    import torch

    torch_version(device)
    return torch.cuda.get_device_capability(device)
