"""A demonstration: ninety nights made from a short, real measuring on this machine, with faults planted in them.

A small suite is measured once. Each night resamples those samples, moves them by the faults that are planted, and goes
the usual way: bundle, store, judge. Only measuring again is answered from the same samples, since the earlier kernels
do not exist. Runs carry ``demo`` among their options, and the first night of a fault says what was ``planted``.
Run as ``python -m harness.demo``; the same samples and seed give the same nights.
"""

from __future__ import annotations

from .faults import DECISIONS, FAULTS, NIGHTS, Decision, Fault, shifted
from .nights import fill
from .world import World, measure, suite

__all__ = ["DECISIONS", "FAULTS", "NIGHTS", "Decision", "Fault", "World", "fill", "measure", "shifted", "suite"]
