"""Which backend to take for a kind of work, by how much, and where the samples cannot tell. Pure functions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from db.screens import CaseValues, Pair
from harness.model import Value

#: Less than this is no reason to change anything.
RELEVANT = 0.02


@dataclass(frozen=True)
class Standing:
    """One backend over the works that it and at least one other measured.

    ``slowdown`` is the weighted geometric mean of its time over the best time, ``memory`` the same for peak memory,
    None where a best of zero leaves no ratio. ``tied`` counts works in which its interval meets the best one's;
    ``front`` is True where no other is better in both.
    """

    backend: str
    slowdown: float
    memory: float | None
    works: int
    wins: int
    tied: int
    front: bool = False


def by_work(rows: Sequence[CaseValues], metric: str = "latency_s") -> dict[str, dict[str, CaseValues]]:
    """Work -> backend -> measurement, for works that at least two backends have a number for."""
    out: dict[str, dict[str, CaseValues]] = defaultdict(dict)
    for row in rows:
        if metric in row.values and row.values[metric].value > 0:
            out[f"{row.case.benchmark} {row.case.label}"][row.case.backend] = row
    return {work: sides for work, sides in out.items() if len(sides) > 1}


def standings(rows: Sequence[CaseValues]) -> list[Standing]:
    """Backends, those that do more of the works first, then the faster ones."""
    slow: dict[str, list[tuple[float, float]]] = defaultdict(list)
    heavy: dict[str, list[tuple[float, float]]] = defaultdict(list)
    wins: dict[str, int] = defaultdict(int)
    tied: dict[str, int] = defaultdict(int)
    for sides in by_work(rows).values():
        best = min(sides, key=lambda b: sides[b].values["latency_s"].value)
        top = sides[best].values["latency_s"]
        wins[best] += 1
        memories = [s.values["peak_memory_bytes"].value for s in sides.values() if "peak_memory_bytes" in s.values]
        for backend, row in sides.items():
            weight, value = max(row.case.weight, 1e-9), row.values["latency_s"]
            slow[backend].append((weight, value.value / top.value))
            tied[backend] += backend != best and meet(value, top)
            peak = row.values.get("peak_memory_bytes")
            if peak is not None and min(memories) > 0:
                heavy[backend].append((weight, peak.value / min(memories)))
    found = [
        Standing(b, _mean(parts), _mean(heavy[b]) if heavy[b] else None, len(parts), wins[b], tied[b])
        for b, parts in slow.items()
    ]
    found.sort(key=lambda s: (-s.works, s.slowdown))
    return [
        Standing(s.backend, s.slowdown, s.memory, s.works, s.wins, s.tied, not any(_beats(o, s) for o in found))
        for s in found
    ]


def advice(found: Sequence[Standing]) -> list[str]:
    """Sentences that say what to take, the margin, and what cannot be told apart."""
    if len(found) < 2:
        return ["Only one backend was measured on this work: there is nothing to choose from."]
    most = found[0].works
    full = [s for s in found if s.works == most]
    partial = [s for s in found if s.works < most]
    best = min(full, key=lambda s: s.slowdown)
    told = []
    others = [s for s in full if s is not best]
    rivals = [s for s in others if s.slowdown / best.slowdown < 1 + RELEVANT or s.wins + s.tied == s.works]
    if rivals:
        names = ", ".join(s.backend for s in rivals)
        told.append(f"{best.backend} and {names} are within noise of each other: no reason to choose.")
    else:
        told.append(f"Take {best.backend}: fastest, or within noise of it, on {best.wins + best.tied} of {most} works.")
    for s in others:
        if s not in rivals:
            noise = f", within noise on {s.tied} of {s.works}" if s.tied else ""
            wins = f", faster on {s.wins}" if s.wins else ""
            told.append(f"{s.backend} takes {s.slowdown / best.slowdown:.2f} times as long in the mean{wins}{noise}.")
    lean = min((s for s in found if s.memory is not None), key=lambda s: s.memory or math.inf, default=None)
    if lean is not None and lean is not best and best.memory is not None and lean.memory is not None:
        told.append(f"Short of memory, take {lean.backend}: {best.memory / lean.memory:.2f} times less at the peak.")
    told += [f"{s.backend} was measured on {s.works} of {most} only and is not ranked." for s in partial]
    return told


def meet(a: Value, b: Value) -> bool:
    """Whether two intervals overlap; a value without an interval is a point."""
    low_a, high_a = (a.value if x is None else x for x in (a.low, a.high))
    low_b, high_b = (b.value if x is None else x for x in (b.low, b.high))
    return low_a <= high_b and low_b <= high_a


def verdict(pair: Pair, better: str) -> str:
    """``slower`` means worse; ``within noise`` where intervals meet or the change is too small to matter."""
    if pair.base is None or pair.head is None or pair.ratio is None:
        return "only in one run" if not (pair.base_status and pair.head_status) else "no number"
    if pair.base == pair.head or meet(pair.base, pair.head) or abs(pair.ratio - 1) < RELEVANT:
        return "same" if pair.base.value == pair.head.value else "within noise"
    return "worse" if (pair.ratio > 1) == (better != "higher") else "better"


def _mean(parts: Sequence[tuple[float, float]]) -> float:
    total = sum(w for w, _ in parts)
    return math.exp(sum(w * math.log(x) for w, x in parts) / total)


def _beats(a: Standing, b: Standing) -> bool:
    if a.memory is None or b.memory is None:
        return a is not b and a.slowdown < b.slowdown and a.memory is None and b.memory is None
    no_worse = a.slowdown <= b.slowdown and a.memory <= b.memory
    return no_worse and (a.slowdown < b.slowdown or a.memory < b.memory)
