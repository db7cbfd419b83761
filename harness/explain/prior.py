"""Description lengths in nats: what a term costs before any data is seen.

A term is chosen in three steps (family, columns, value), each with a probability; its cost is the negative
logarithm. Families and values that kernels are known to depend on (tile, page and warp sizes, powers of two)
are likelier, by little: enough to settle a tie, never enough to outweigh data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from .columns import Floats

FAMILY = {
    "column": 0.8, "residue": 1.2, "power": 4.0, "product2": 2.6, "ratio": 3.0, "rest": 3.5, "ceil": 4.2,
    "compare": 3.0, "product3": 3.8, "product4": 3.6,
}  # fmt: skip

#: Sizes of tiles, pages and warps: moduli that code is written with.
KNOWN_MODULI = (8, 16, 32, 64, 128, 256)

#: Cost of a conjunction's length.
_LENGTH = (0.0, 0.8, 0.9, 1.9)

_ALIKE = {
    "extent": ("len", "length", "lens", "size", "seqlen", "tokens", "window"),
    "heads": ("heads", "head", "nheads", "groups"),
}  # fmt: skip


def choose(n: int, k: int) -> float:
    """Cost of naming ``k`` of ``n`` things."""
    return math.log(max(1, math.comb(n, k)))


@functools.cache
def modulus(number: int) -> float:
    """Known moduli are cheap, and the larger the cheaper: ``% 128`` names the class of ``% 64``, not the reverse.
    128 goes before 256: far more tiles have that size."""
    if number in KNOWN_MODULI:
        return 2.3 - 0.06 * math.log2(min(number, 128) / 8) + (0.03 if number == 256 else 0.0)
    if number in (2, 4):
        return 3.0 - 0.1 * number
    if number % 8 == 0:
        return 5.3 - (0.3 if number % 16 == 0 else 0.0) - number / 4000
    return 6.6 - number / 8000


def residue(number: int, rest: int, equal: bool) -> float:
    """Cost of comparing ``a % number`` with ``rest``."""
    if rest == 0:
        return 0.9 if equal else 0.8
    side = 1.9 if rest == 1 or 2 * rest == number else 2.2 if rest == number - 1 else 1.6 + math.log(number)
    return side if equal else side + 1.2


def alike(names: Sequence[str]) -> float:
    """A rebate where columns measure the same kind of thing, as ``q_len`` and ``kv_len`` do."""
    kinds: list[set[str]] = []
    for name in names:
        words = set(name.lower().replace("-", "_").replace(" ", "_").split("_"))
        kinds.append(words | {kind for kind, members in _ALIKE.items() if words & set(members)})
    shared = set.intersection(*kinds)
    return 1.2 if shared else 0.0


def conjunction(costs: Sequence[float] | Floats) -> float:
    """Cost of a conjunction of terms; their order carries nothing. Three are rarer than one or two."""
    return float(sum(costs)) + _LENGTH[len(costs)] - math.log(math.factorial(len(costs)))
