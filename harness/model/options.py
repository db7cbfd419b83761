"""How a case is to be measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """Options of one measuring.

    ``rel_width`` is the half-width of the median's 95 % interval, relative to the median, at which sampling
    stops; None means 0.05 on a CPU and 0.01 on a GPU. ``max_seconds`` caps the sampling of one metric and
    ``timeout_s`` the whole case, after which the worker is replaced.
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
