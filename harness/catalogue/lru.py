"""A set-associative cache with least-recently-used replacement: a model where no hardware counter can be read."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class LRU:
    """``size`` bytes in lines of ``line`` bytes, ``ways`` to a set. Sizes that do not divide are refused."""

    size: int
    ways: int = 16
    line: int = 64
    accesses: int = 0
    misses: int = 0
    _sets: list[dict[int, None]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        count, rest = divmod(self.size, self.ways * self.line)
        if count < 1 or rest:
            raise ValueError(f"{self.size} bytes are no whole number of sets of {self.ways} x {self.line}")
        self._sets = [{} for _ in range(count)]

    def touch(self, lines: Iterable[int]) -> int:
        """Access these lines (addresses over ``line``) in order; how many of them were not there."""
        missed = seen = 0
        sets, count, ways = self._sets, len(self._sets), self.ways
        for one in lines:
            seen += 1
            held = sets[one % count]
            if one in held:
                del held[one]
            else:
                missed += 1
                if len(held) == ways:
                    del held[next(iter(held))]
            held[one] = None
        self.accesses += seen
        self.misses += missed
        return missed


def slice_miss_rate(cache: LRU, samples: int, *, layers: int, weight_lines: int, sample_lines: int) -> float:
    """Share of accesses that miss while one slice of ``samples`` passes through ``layers``.

    Of each layer every sample reads its activations (``sample_lines``), the layer's weights, and writes as many
    activations, which the next layer reads. Two buffers of activations are used in turn. The cache goes on from where
    the slice before left it.
    """
    before, accesses = cache.misses, cache.accesses
    buffers = [layers * weight_lines, layers * weight_lines + samples * sample_lines]
    for layer in range(layers):
        weights = range(layer * weight_lines, (layer + 1) * weight_lines)
        source, target = buffers[layer % 2], buffers[1 - layer % 2]
        for sample in range(samples):
            at = sample * sample_lines
            cache.touch(range(source + at, source + at + sample_lines))
            cache.touch(weights)
            cache.touch(range(target + at, target + at + sample_lines))
    return (cache.misses - before) / (cache.accesses - accesses)


def counted_miss_rate(command: list[str]) -> float | None:
    """Share of cache references that miss while ``command`` runs, by ``perf stat``; None where that cannot count."""
    asked = ["perf", "stat", "-x", ",", "-e", "cache-references,cache-misses", "--", *command]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = {name: int(n) for n, name in re.findall(r"^(\d+),[^,]*,(cache-\w+)", done.stderr, re.MULTILINE)}
    references = found.get("cache-references", 0)
    return found["cache-misses"] / references if references and "cache-misses" in found else None
