"""Finding backends and oracles by name. The package under test is reached through importlib only."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.model import BackendReport, InfrastructureError, Params, Status

from .failures import CaseFailed, guarded

_REGISTRY = "kernels.registry"


def registry() -> Any:
    """The module that lists backends. Raises ``InfrastructureError`` where it cannot be imported."""
    try:
        return importlib.import_module(_REGISTRY)
    except Exception as error:
        raise InfrastructureError(
            f"cannot import {_REGISTRY}: {type(error).__name__}: {error}; install it with `pip install ./kernels`"
        ) from error


@dataclass(frozen=True)
class Implementation:
    """A function that runs an operation, and what it was loaded from."""

    function: Callable[..., Any]
    target: str
    path: str


class Backends:
    """Backends of one device. What was found out about a backend is kept: asking may import a library."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._known: dict[str, Any] = {}
        self._availability: dict[str, Any] = {}
        self._found: dict[tuple[str, str], Implementation] = {}

    def implementation(self, name: str, operation: str, params: Params) -> Implementation:
        """The function of backend ``name``. Raises :class:`CaseFailed` with the reason where there is none."""
        backend = self._backend(name)
        try:
            reason = backend.unsupported(operation, dict(params), self._device)
        except ValueError as error:
            raise CaseFailed(Status.INVALID, f"bad workload: {error}") from error
        if reason is not None:
            raise CaseFailed(Status.UNSUPPORTED, str(reason))
        available = self._available(name, backend)
        if not available.usable:
            how = f"; {available.remedy}" if available.remedy else ""
            raise CaseFailed(Status.UNSUPPORTED, f"not available here: {available.reason}{how}")
        if (name, operation) not in self._found:
            self._found[name, operation] = self._load(backend, operation)
        return self._found[name, operation]

    def reports(self) -> list[BackendReport]:
        """Every registered backend, and whether it can be used on this device."""
        found = []
        for name, backend in registry().all_backends().items():
            a = self._available(name, backend)
            found.append(BackendReport(name, a.usable, a.reason, a.version, tuple(backend.operations), a.remedy))
        return found

    def _backend(self, name: str) -> Any:
        if name not in self._known:  # looking for entry points costs more than measuring some cases
            try:
                self._known[name] = registry().get(name)
            except KeyError as error:
                raise CaseFailed(Status.UNSUPPORTED, str(error)) from error
        return self._known[name]

    def _available(self, name: str, backend: Any) -> Any:
        if name not in self._availability:
            self._availability[name] = backend.availability(self._device)
        return self._availability[name]

    def _load(self, backend: Any, operation: str) -> Implementation:
        with guarded("loading"):
            function: Callable[..., Any] = backend.load(operation)
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        # Commits from before there were faults have no ``target``.
        told = backend.target(operation) if hasattr(backend, "target") else backend.operations[operation]
        return Implementation(function, told, getattr(module, "__file__", None) or "")


def oracle(operation: str) -> Callable[..., Any]:
    """The function that tells right from wrong for ``operation``."""
    target = registry().ORACLES.get(operation)
    if target is None:
        raise CaseFailed(Status.INVALID, f"there is no oracle for operation {operation!r}; add it to ORACLES")
    module, _, name = target.partition(":")
    with guarded("loading the oracle"):
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function
