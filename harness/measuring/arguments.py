"""What one call is given."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: Inputs that hold keys and values.
CACHES = ("k", "v", "k_cache", "v_cache", "cache")


@dataclass(frozen=True)
class Note:
    """What an implementation said of itself; ``at_s`` by the clock of ``time.perf_counter``."""

    what: str
    value: float
    at_s: float


class Notes:
    """Handed to an implementation as ``note(what, value)``. Nothing is kept but :meth:`during` one call."""

    def __init__(self) -> None:
        self._kept: list[Note] | None = None

    @property
    def listening(self) -> bool:
        """Whether anything is kept: what costs time to find out need not be found out otherwise."""
        return self._kept is not None

    def __call__(self, what: str, value: float = 1.0) -> None:
        if self._kept is not None:
            self._kept.append(Note(what, value, time.perf_counter()))

    def during(self, call: Callable[[], Any]) -> list[Note]:
        """What was said while ``call`` ran."""
        kept = self._kept = []
        try:
            call()
        finally:
            self._kept = None
        return kept


@dataclass
class Inputs:
    """Arguments of one call: ``tensors`` go by position in order, ``options`` by keyword.

    ``bytes`` counts each storage once, tensors among the options included.
    """

    tensors: dict[str, torch.Tensor]
    options: dict[str, Any] = field(default_factory=dict)

    def call(self, function: Callable[..., Any]) -> Any:
        """The result of ``function`` on these arguments."""
        return function(*self.tensors.values(), **self.options)

    def everything(self) -> list[torch.Tensor]:
        """All tensors, positional ones first."""
        import torch

        return [*self.tensors.values(), *(v for v in self.options.values() if isinstance(v, torch.Tensor))]

    @property
    def bytes(self) -> int:
        """Bytes of the distinct storages behind the tensors."""
        return _bytes(self.everything())

    @property
    def cache_bytes(self) -> int:
        """Bytes of the distinct storages that hold keys and values."""
        return _bytes([t for name, t in self.tensors.items() if name in CACHES])


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())
