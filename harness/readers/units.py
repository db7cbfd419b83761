"""Units of others as ours: a metric of SI units, the factor to it, and which way is better."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from harness.model.metrics import METRICS, Direction, declare

_TIMES = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "ms": 1e-3, "msec": 1e-3, "millis": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3,
    "us": 1e-6, "usec": 1e-6, "micros": 1e-6, "microsecond": 1e-6, "microseconds": 1e-6,
    "ns": 1e-9, "nsec": 1e-9, "nanos": 1e-9, "nanosecond": 1e-9, "nanoseconds": 1e-9, "ps": 1e-12,
    "min": 60.0, "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
}  # fmt: skip
_SIZES = {"b": 1.0, "byte": 1.0, "bytes": 1.0} | {
    f"{prefix}{ending}": float(base**power)
    for power, letter in enumerate("kmgt", 1)
    for prefix, base in ((letter, 1000), (f"{letter}i", 1024))
    for ending in ("b", "byte", "bytes")
}
_FLOPS = {"flop": 1.0, "flops": 1.0} | {
    f"{letter}flop{end}": 1000.0**power for power, letter in enumerate("kmgtp", 1) for end in ("", "s")
}
#: What is counted once per turn of a loop says nothing of the unit.
_PER_CALL = re.compile(r"\s*/\s*(iter(ation)?|op|call|run|loop|step|query|inv(ocation)?)s?$")
_DIRECTIONS: dict[Direction, str] = {"lower": "lower", "higher": "higher", "none": "any"}
_PER_SECOND = re.compile(r"\s*(/\s*s(ec(ond)?s?)?|per s(ec(ond)?)?|ps)$")


@dataclass(frozen=True, slots=True)
class Measure:
    """The metric that values of a unit belong to; a stored value is the given one times ``factor``."""

    metric: str
    factor: float = 1.0


@lru_cache(maxsize=4096)
def measure_of(unit: str, better: Direction | None = None, name: str = "value") -> Measure:
    """The metric for a unit such as ``ns/iter`` or ``MB/s``.

    ``better`` is the direction where the source says so; otherwise times and sizes are better lower, rates higher,
    and of others nobody knows. ``name`` begins the names of metrics that have no registered one.
    """
    text = unit.strip().lower().replace("μ", "u").replace("µ", "u")[:60]
    text = _PER_CALL.sub("", text)
    if text in _TIMES:
        return _measure("latency_s" if name == "value" else f"{name}_s", _TIMES[text], "s", better or "lower", "lower")
    if text in _SIZES:
        return _measure(
            "memory_bytes" if name == "value" else f"{name}_bytes", _SIZES[text], "B", better or "lower", "lower"
        )
    if text in ("flops", "gflops", "tflops", "mflops", "pflops"):
        return _measure("flops_per_s", _FLOPS[text], "FLOP/s", better or "higher", "higher")
    if (rate := _PER_SECOND.search(text)) is not None and rate.start() > 0:
        counted = text[: rate.start()].strip()
        if counted in _SIZES:
            return _measure("bytes_per_s", _SIZES[counted], "B/s", better or "higher", "higher")
        if counted in _FLOPS:
            return _measure("flops_per_s", _FLOPS[counted], "FLOP/s", better or "higher", "higher")
        return _measure(f"{_slug(counted) or 'calls'}_per_s", 1.0, f"{counted}/s", better or "higher", "higher")
    ending = _slug(text)
    return _measure(f"{name}_{ending}" if ending else name, 1.0, unit.strip()[:60] or "1", better or "none", "lower")


def _measure(metric: str, factor: float, unit: str, better: Direction, usual: Direction) -> Measure:
    """A registered metric, or one whose name tells a direction that is not the usual one of its unit."""
    if better != (METRICS[metric].better if metric in METRICS else usual):
        metric = f"{metric}_{_DIRECTIONS[better]}"
    if metric not in METRICS:
        declare(metric, unit, better)
    return Measure(metric, factor)


def _slug(text: str) -> str:
    words = text.replace("%", " percent ").replace("/", " per ")
    return re.sub(r"[^a-z0-9]+", "_", words).strip("_")[:40]
