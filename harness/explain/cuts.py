"""Where to put a threshold between two tested values."""

from __future__ import annotations

import math

#: A cut: (operator of the upper side, value, extra cost in nats).
Cut = tuple[str, float, float]

_FLIP = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}


def flip(op: str) -> str:
    """The complement of an order."""
    return _FLIP[op]


def cuts_between(low: float, high: float) -> list[Cut]:
    """Ways to write "at least ``high``, more than ``low``", best first: at a power of two where the gap has one."""
    powers = powers_in(low, high)
    out: list[Cut] = []
    for p in powers:
        if p == low:
            out.append((">", p, 0.0))
        elif p == high:
            out.append((">=", p, 0.05))
        else:
            out += [(">", p, 0.3), (">=", p, 0.3)]
    edge = [(">", low, 1.2), (">=", high, 1.2)]
    if _roundness(high) > _roundness(low):
        edge.reverse()
    edge[1] = (edge[1][0], edge[1][1], edge[1][2] + 0.1)
    for cut in edge:
        if all((cut[0], cut[1]) != (op, value) for op, value, _ in out):
            out.append(cut)
    return sorted(out, key=lambda c: c[2])


def powers_in(low: float, high: float) -> list[float]:
    """Powers of two in the closed interval, 2 and above (0 and 1 are limits too, but say nothing)."""
    if high < 2 or not math.isfinite(high):
        return []
    first = max(1, math.ceil(math.log2(low) - 1e-9) if low > 0 else 1)
    last = math.floor(math.log2(high) + 1e-9)
    return [float(2**k) for k in range(first, min(last, 62) + 1) if low <= 2**k <= high]


def simple_between(low: float, high: float) -> float:
    """The number with the fewest decimals strictly between."""
    for digits in range(16):
        step = 10.0**-digits
        value = round((math.floor(low / step) + 1) * step, digits)
        if low < value < high:
            return value
    return (low + high) / 2


def _roundness(value: float) -> int:
    if not math.isfinite(value) or value != math.floor(value) or value == 0 or abs(value) > 2**53:
        return -1
    n = int(abs(value))
    return (n & -n).bit_length()
