"""The persistent worker: a process that holds torch and the device, and measures cases for light clients."""

from .client import WorkerClient
from .identity import WorkerSpec
from .protocol import CaseError

__all__ = ["CaseError", "WorkerClient", "WorkerSpec"]
