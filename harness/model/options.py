"""How a case is to be measured."""

from __future__ import annotations

from dataclasses import dataclass

from .terms import InputError


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """Options of one measuring.

    ``rel_width`` is the half-width of the median's 95 % interval, relative to the median, at which sampling
    stops; None means 0.05 on a CPU and 0.01 on a GPU. ``max_seconds`` caps the sampling of one metric and
    ``timeout_s`` the whole case, after which the worker is replaced. ``seed`` must fit into 64 bits with a sign, as
    generators of random numbers want it.
    """

    rel_width: float | None = None
    min_samples: int = 6
    max_samples: int = 400
    max_seconds: float = 1.0
    timeout_s: float = 60.0
    seed: int = 0
    hot: bool = True
    memory: bool = True
    check: bool = True

    def __post_init__(self) -> None:
        if not -(2**63) <= self.seed < 2**63:
            raise InputError(f"seed {self.seed} does not fit into 64 bits; give one from 0 to {2**63 - 1}")
