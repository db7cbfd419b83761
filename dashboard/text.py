"""Words and numbers as screens show them. Whatever comes from a store is text, never Markdown or HTML."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from harness.model import METRICS, TriageState

#: What Streamlit's Markdown gives a meaning: emphasis, links, HTML, colours and icons (``:``), formulas (``$``).
_SPECIAL = "\\`*_{}[]()#+-!|<>~&$:^=\"'."
_ESCAPES = str.maketrans({c: f"&#{ord(c)};" for c in _SPECIAL} | dict.fromkeys("\r\n\t\v\f\x85\u2028\u2029", " "))

#: metric -> (unit on screen, factor from SI, axis title)
_UNITS: dict[str, tuple[str, float]] = {
    "s": ("ms", 1e3), "B": ("MiB", 1 / 2**20), "FLOP/s": ("TFLOP/s", 1e-12), "B/s": ("GB/s", 1e-9),
    "token/s": ("ktoken/s", 1e-3), "1": ("", 1.0),
}  # fmt: skip

STATE_WORDS: dict[str, tuple[str, str]] = {
    TriageState.NEW: ("new, confirmed by measuring again", "red"),
    TriageState.CONFIRMED: ("confirmed", "red"),
    TriageState.SUSPECT: ("suspect, not settled yet", "orange"),
    TriageState.ACKNOWLEDGED: ("acknowledged", "blue"),
    TriageState.EXPECTED: ("expected: the level after it is the new baseline", "violet"),
    TriageState.FIXED: ("fixed", "green"),
    TriageState.FALSE_POSITIVE: ("false positive", "gray"),
    TriageState.DISMISSED: ("dismissed when measured again", "gray"),
}

STATUS_WORDS = {
    "ok": "measured", "skipped": "skipped", "deselected": "left out by choice", "unsupported": "cannot run here",
    "wrong": "wrong results", "non_finite": "NaN or infinity", "timed_out": "timed out", "crashed": "crashed",
    "out_of_memory": "out of memory", "invalid": "measured under disturbance, thrown away",
}  # fmt: skip


def plain(text: object) -> str:
    """Text that Streamlit's Markdown shows as it is, on one line."""
    return str(text).translate(_ESCAPES)


def short(revision: str | None, length: int = 12) -> str:
    """The beginning of a revision's name."""
    return (revision or "")[:length]


def label(state: str) -> str:
    """A state as a word."""
    return state.replace("_", " ")


def effect(ratio: float | None, low: float | None = None, high: float | None = None) -> str:
    """``+31 % (+28 to +35 %)`` of a ratio head / base."""
    if ratio is None or not math.isfinite(ratio):
        return "no number"
    if ratio >= 10:
        return f"×{ratio:.3g}"
    text = f"{(ratio - 1) * 100:+.1f} %"
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return text
    return f"{text} ({(low - 1) * 100:+.1f} to {(high - 1) * 100:+.1f})"


def age(at: float | None, now: float) -> str:
    """How long ago, in one unit."""
    if at is None:
        return "never"
    seconds = max(now - at, 0.0)
    for size, word in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size or (size < 100 and seconds >= size):
            return f"{seconds / size:.0f} {word}"
    return "now"


def when(at: float | None) -> str:
    """Date and time, UTC."""
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def scale(metric: str) -> tuple[str, float]:
    """Unit on screens and the factor that brings a stored value to it."""
    known = METRICS.get(metric)
    return _UNITS.get(known.unit if known else "1", (known.unit if known else "", 1.0))


def title(metric: str) -> str:
    """Name and unit of a metric, for an axis: ``latency (ms)``."""
    name = metric
    for ending in ("_s", "_bytes", "_per"):
        name = name.removesuffix(ending)
    unit = scale(metric)[0]
    return f"{name.replace('_', ' ')} ({unit})" if unit else name.replace("_", " ")


def number(value: float | None, metric: str) -> str:
    """A stored value with its unit."""
    if value is None:
        return "none"
    unit, factor = scale(metric)
    return f"{value * factor:.4g} {unit}".rstrip()


def count(n: int, noun: str, plural: str | None = None) -> str:
    """``1 case``, ``1,234 cases``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV with a header of every column, in order of first appearance."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(name for row in rows for name in row)), restval="")
    writer.writeheader()
    writer.writerows([{k: _cell(v) for k, v in row.items()} for row in rows])
    return out.getvalue()


def _cell(value: Any) -> Any:
    # A spreadsheet takes a text that begins like this for a formula.
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value
