"""What is planted, in which nights, and what people are played to have decided about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.model import Status, TriageState
from harness.model.expr import Expression, compile_expr

NIGHTS = 90
_MATH_PATH = ("aten::matmul", "aten::bmm", "aten::softmax", "aten::_softmax", "aten::where")


@dataclass(frozen=True)
class Fault:
    """Something planted. Nights count from 0; ``until`` is the first one without it, None where it stays.

    ``when`` is the predicate that a right explanation finds. ``machine`` faults slow everything, kernels unchanged.
    """

    text: str
    since: int
    until: int | None
    when: str
    time: float = 1.0
    memory: float = 1.0
    status: Status = Status.OK
    operators: tuple[str, ...] = ()
    torch: str = ""
    machine: bool = False

    def at(self, night: int) -> bool:
        """Whether it is there in a night."""
        return self.since <= night and (self.until is None or night < self.until)

    @property
    def predicate(self) -> Expression:
        """``when``, compiled."""
        return compile_expr(self.when, "planted fault")


@dataclass(frozen=True)
class Decision:
    """What a person is played to have done about the fault planted in night ``of``, after night ``night``."""

    night: int
    of: int
    state: TriageState
    reason: str
    author: str
    owner: str = ""


FAULTS = (
    Fault("the tail of a partly filled block is computed twice", 20, 30,
          "backend == 'segmented' and q_len == 1 and kv_len % 128 != 0", time=1.32),
    Fault("the newer torch is slower for wide heads on its math path", 41, None,
          "backend == 'sdpa_math' and head_dim == 128", time=1.24, torch="2.13.0"),
    Fault("scratch buffers grow for long caches", 55, None,
          "backend == 'segmented' and kv_len > 512", memory=1.5),
    Fault("another job ran on the machine that night", 63, 64, "True", time=1.3, machine=True),
    Fault("wrong results just above a block boundary", 72, 76,
          "backend == 'sdpa_flash' and q_len == 257", status=Status.WRONG),
    Fault("dispatch falls back to the math path", 89, None,
          "backend == 'sdpa_flash' and q_len == 1 and kv_len % 128 == 1", time=1.38, operators=_MATH_PATH),
)  # fmt: skip

_KERNELS, _SERVING = "team-kernels", "team-serving"

DECISIONS = (
    Decision(21, 20, TriageState.ACKNOWLEDGED, "bisected to the tail loop; a fix is in review", _KERNELS, _KERNELS),
    Decision(42, 41, TriageState.ACKNOWLEDGED, "reported upstream; pinning torch would cost more", _SERVING, _SERVING),
    Decision(
        56, 55, TriageState.EXPECTED, "the larger scratch buffer buys the speed of long caches", _KERNELS, _KERNELS
    ),
)


def shifted(faults: Sequence[Fault], nights: int) -> list[Fault]:
    """Faults of the newest ``nights`` of the ninety, counted from the first of them; those from before are left out."""
    by = nights - NIGHTS
    moved = [replace(f, since=f.since + by, until=None if f.until is None else f.until + by) for f in faults]
    return [f for f in moved if f.since >= 1]
