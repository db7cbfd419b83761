"""Whether the newest figures can be trusted: how old they are and how much of the plan they cover."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard import text
from db.screens import Coverage
from harness.model import Status

#: A night may be late; two are too many.
STALE_S = 36 * 3600.0
#: A machine that has been silent for this long is retired, not late.
RETIRED_S = 30 * 86400.0
#: A run that has said nothing for this long was broken off.
HUNG_S = 6 * 3600.0
#: Share of cases that may be lost to a disturbed machine.
DISTURBED = 0.05


def alarms(newest: Sequence[Coverage], now: float) -> list[str]:
    """What to know before reading anything else, as sentences; nothing where all is well."""
    told = []
    by_machine: dict[str, Coverage] = {}
    for c in newest:
        by_machine.setdefault(c.machine, c)
    last = max((c.started_at for c in newest), default=None)
    for c in by_machine.values():
        late = now - c.started_at
        if late > STALE_S and (late < RETIRED_S or c.started_at == last):
            told.append(f"No run on {c.device_model} for {text.age(c.started_at, now)}: what is shown is that old.")
    for c in newest:
        if last is None or c.started_at < last - STALE_S:
            continue
        run = f"The newest {c.suite} run on {c.device_model}"
        if not c.complete and c.finished_at is None and now - c.started_at > HUNG_S:
            told.append(f"{run} began {text.age(c.started_at, now)} ago and never ended.")
        elif c.planned > c.measured and c.finished_at is not None:
            told.append(f"{run} measured {c.measured:,} of {text.count(c.planned, 'planned case')}.")
        if c.missing:
            told.append(f"{run} lacks {text.count(c.missing, 'case')} that the run before it had.")
        total = sum(c.counts.values())
        lost = c.counts.get(Status.INVALID, 0)
        if total and lost / total > DISTURBED:
            told.append(f"{run} lost {text.count(lost, 'case')} of {total:,} to a disturbed machine.")
        broken = sum(n for s, n in c.counts.items() if s in set(Status) and Status(s).broken)
        if total and broken == total:
            told.append(f"{run} has no case that works.")
    return told
