"""A case made ready for interleaved sampling."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from harness.model import Case, Status

from .failures import CaseFailed, guarded
from .timing.clock import PREEMPTED, Account, Clock, no_collector

#: A call that takes longer does not feel what another process left in caches, tables and predictors.
_LONG_S = 0.02


class PreparedCase:
    """A case that has passed the gate, ready to be sampled. Holds its inputs until :meth:`release`."""

    def __init__(
        self,
        case: Case,
        call: Callable[[], Any],
        clock: Clock,
        check: Callable[[object], None] | None = None,
        first_call_s: float | None = None,
        place: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.case = case
        #: Seconds of the first call, compilation included; None where this worker had called the case before.
        self.first_call_s = first_call_s
        self._call: Callable[[], Any] | None = call
        self._clock = clock
        self._check = check
        self._place = place
        self._last_s = 0.0
        self._batches = 0

    def sample(self, n: int) -> list[float]:
        """``n`` cold samples in seconds, preempted ones only where ten times as many tries gave no others.

        One more is taken before them and left out where calls are short: whichever process runs after another one
        pays for what that one displaced (seen: 20 % of 250 us), so that the order within pairs would be measured.

        Raises :class:`CaseFailed` when the kernel raises, when the clock discards that many, or when the last result is
        not right; that is looked at after the 1st, 2nd, 4th, 8th ... call of this, since looking takes time too.
        """
        if self._call is None:
            raise CaseFailed(Status.INVALID, "sampled after its release")
        found = self._sample(self._call, n)
        self._batches += 1
        result = self._clock.take()
        if self._check is not None and not self._batches & (self._batches - 1):
            self._check(result)
        return found

    def _sample(self, call: Callable[[], Any], n: int) -> list[float]:
        kept: list[float] = []
        spare: list[float] = []
        account = Account()
        with guarded("sampling"), no_collector(), self._place():
            if self._last_s < _LONG_S:
                self._clock.sample(call, account, cold=True)
            for _ in range(10 * n):
                seconds, why = self._clock.sample(call, account, cold=True)
                self._last_s = seconds
                if not why:
                    kept.append(seconds)
                elif why == PREEMPTED:
                    spare.append(seconds)
                if len(kept) == n:
                    return kept
        if len(kept) + len(spare) >= n:
            return kept + spare[: n - len(kept)]
        raise CaseFailed(Status.INVALID, f"only {len(kept)} of {10 * n} samples could count: {why}")

    def release(self) -> None:
        """Lets go of inputs and graph. Harmless when repeated."""
        self._call = self._check = None
