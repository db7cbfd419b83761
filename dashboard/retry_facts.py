"""What had to be measured more than once: rows of the heat map, and the whole of it in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dashboard import text
from db.queries import RunRow
from db.screens import RetryCell

#: Measurements that one look reads at most, unless the newest run alone holds more.
_READ = 150_000


def reach(runs: Sequence[RunRow], most: int) -> int:
    """How many of ``runs`` (newest first) to look at: ``most``, fewer where they hold very many measurements."""
    total = 0
    for n, run in enumerate(runs[:most]):
        total += run.measured
        if total > _READ:
            return max(n, 1)
    return min(len(runs), most)


def tally(cells: Sequence[RetryCell]) -> tuple[int, int, int]:
    """(cases tried, of these more than once, of these recovered) over all cells."""
    return sum(c.cases for c in cells), sum(c.retried for c in cells), sum(c.recovered for c in cells)


def told(cells: Sequence[RetryCell]) -> str:
    """All cells in one sentence: how many of the cases, whether it helped, and how the earlier attempts had ended."""
    cases, retried, recovered = tally(cells)
    reasons: Counter[str] = Counter()
    for c in cells:
        reasons.update(c.reasons)
    why = ", ".join(f"{n:,} {text.STATUS_WORDS.get(s, s)}" for s, n in reasons.most_common())
    return (
        f"{retried:,} of {text.count(cases, 'case')} {'was' if retried == 1 else 'were'} tried again and "
        f"{recovered:,} recovered. Earlier attempts: {why}."
    )


def rows(cells: Sequence[RetryCell], most: int) -> tuple[list[dict[str, Any]], int]:
    """Rows of :func:`dashboard.charts.heat.retries` for the ``most`` pairs of benchmark and backend with the most
    retries, and how many pairs with any were left out. ``cells`` come oldest run first."""
    by_pair: Counter[tuple[str, str]] = Counter()
    for c in cells:
        by_pair[c.benchmark, c.backend] += c.retried
    hit = [pair for pair, n in by_pair.most_common() if n]
    shown = set(hit[:most])
    names = _names(cells)
    made = [_row(c, names[c.run]) for c in cells if (c.benchmark, c.backend) in shown]
    return made, len(hit) - len(shown)


def _names(cells: Sequence[RetryCell]) -> dict[str, str]:
    """Run -> its start as text; runs of the same minute are numbered, since each is a column of its own."""
    names: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for c in cells:
        if c.run not in names:
            start = text.when(c.started_at)[2:]
            seen[start] += 1
            names[c.run] = start if seen[start] == 1 else f"{start} #{seen[start]}"
    return names


def _row(c: RetryCell, run: str) -> dict[str, Any]:
    lost = c.retried - c.recovered
    return {
        "run": run, "id": c.run, "name": f"{c.benchmark} / {c.backend}", "cases": c.cases, "retried": c.retried,
        "recovered": c.recovered, "share": c.retried / c.cases if c.cases else 0.0,
        "mark": "" if not c.retried else "✕" if lost else "✓",
        "why": ", ".join(f"{n} {text.STATUS_WORDS.get(s, s)}" for s, n in sorted(c.reasons.items())) or "nothing",
    }  # fmt: skip
