"""How long to wait before a case that failed is measured once more.

A kernel that computes wrongly does so at once again, and is not waited for. What may lie at the machine (memory that
others hold, a crash, a time limit, disturbed samples) gets a moment, which grows while one case after the other fails
again, since then the trouble lasts, and shrinks with each that recovers. The sum is bounded: a sweep must end.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.model import Status

#: Statuses that time may mend.
PASSING = frozenset({Status.OUT_OF_MEMORY, Status.CRASHED, Status.TIMED_OUT, Status.INVALID})

FIRST_S, MOST_S, IN_ALL_S = 0.1, 5.0, 60.0

#: Suffix of the file beside a bundle in which processes of one sweep hand on how long they wait.
WAITS = ".waits"


@dataclass
class Backoff:
    """Waits between ``first_s`` and ``most_s``, together at most ``in_all_s``; ``waited_s`` so far, next ``next_s``."""

    first_s: float = FIRST_S
    most_s: float = MOST_S
    in_all_s: float = IN_ALL_S
    waited_s: float = 0.0
    next_s: float | None = None

    @classmethod
    def read(cls, path: Path) -> Backoff:
        """What :meth:`write` left for the next process of a sweep; a new one where that cannot be read."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls()

    def write(self, path: Path) -> None:
        """For the next process of the sweep."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    def before(self, failed: Status) -> float:
        """Seconds to wait before a case that ended as ``failed`` is measured again. They count as waited."""
        if failed not in PASSING:
            return 0.0
        wait = min(self.first_s if self.next_s is None else self.next_s, max(0.0, self.in_all_s - self.waited_s))
        self.waited_s += wait
        return wait

    def after(self, failed: Status, again: Status) -> None:
        """What became of a case that ended as ``failed`` and then as ``again``."""
        if failed not in PASSING:
            return
        now = self.first_s if self.next_s is None else self.next_s
        self.next_s = min(self.most_s, now * 2) if again in PASSING else max(self.first_s, now / 2)
