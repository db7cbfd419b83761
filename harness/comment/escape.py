"""Text of others inside Markdown: it shows as it is and does nothing.

Everything stands in code spans or fenced blocks: there GitHub reads no mention, no issue number, no link, no emphasis,
no mathematics and no HTML. Entities would not do, since GitHub looks for mentions after it has decoded them.
"""

from __future__ import annotations

import re
import unicodedata

#: Longest text of others in one span; longer ones are cut.
SPAN_CHARS = 400

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_RUNS = re.compile("`+")


def visible(text: str) -> str:
    """The text on one line, with every character that does not show (control, direction, zero width) spelt out."""
    return "".join(_spelt(c) for c in text)


def _spelt(char: str) -> str:
    if char.isascii() and char.isprintable():
        return char
    if unicodedata.category(char) not in _INVISIBLE and char != "\u3164":
        return char if unicodedata.category(char) != "Zs" else " "
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def cut(text: str, chars: int = SPAN_CHARS) -> str:
    """The text, its end replaced by an ellipsis where it is longer than ``chars``."""
    return text if len(text) <= chars else text[: chars - 1] + "…"


def code(text: str, *, chars: int = SPAN_CHARS, cell: bool = False) -> str:
    """The text as a code span; with ``cell`` for a table, where a pipe ends the cell even inside a span."""
    shown = cut(visible(text), chars)
    if not shown.strip():
        return "*(empty)*"
    if cell:
        # A backslash before an escaped pipe reads differently from parser to parser.
        shown = shown.replace("\\|", "\\ |").replace("|", "\\|")
    fence = "`" * _longer(shown)
    pad = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def block(lines: list[str], language: str = "") -> list[str]:
    """A fenced block of lines that hold no character that does not show."""
    shown = [visible(line) for line in lines]
    fence = "`" * max(3, *(_longer(line) for line in shown))
    return [f"{fence}{language}", *shown, fence]


def plain(text: str, chars: int = SPAN_CHARS) -> str:
    """For places that show text as it is, such as the title of a check."""
    return cut(visible(text), chars)


def _longer(text: str) -> int:
    return max((len(run) for run in _RUNS.findall(text)), default=0) + 1
