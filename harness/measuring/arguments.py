"""What one call is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


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
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in self.everything()}
        return sum(storages.values())
