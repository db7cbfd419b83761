"""How a case is named in a comment, and how it is picked and measured again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from harness.model.suite import SUITES

_SIDE = ("base", "head")
_NOT_SHAPE = ("backend", "operation", "benchmark")
COMMIT = re.compile(r"[0-9a-f]{7,64}")
#: A revision that git and a shell both take for nothing else.
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./^~-]{0,199}")
_PAIR = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)

Columns = Mapping[str, bool | int | float | str | None]


def label_of(columns: Columns) -> str:
    """Backend, then the shape: ``segmented q_len=1 kv_len=129``."""
    shape = [f"{k}={v!r}" for k, v in columns.items() if k not in _NOT_SHAPE]
    return " ".join([str(columns.get("backend") or ""), *shape]).strip()


def terms_of(columns: Columns) -> str:
    """The ``--where`` expression that picks one case; empty where a column's name cannot stand in one."""
    if not all(k.isidentifier() for k in columns):
        return ""
    return " and ".join(f"{k} == {v!r}" for k, v in columns.items() if k != "operation")


def compare_command(base: str, head: str, suite: str, *, trusted: bool = True) -> str:
    """``attnwatch compare`` of two sides as a report names them; empty where they cannot be told.

    A report that nobody vouches for gets commits only: a command that people paste must set no variables and start
    no interpreters that a stranger chose.
    """
    words: list[str] = []
    for side, text in zip(_SIDE, (base, head), strict=True):
        found = _options(side, text) if trusted else _commit(side, text)
        if found is None:
            return ""
        words += found
    if not words:
        return ""
    return shlex.join(["attnwatch", "compare", *words, "--suite", suite])


def static_command(base: str, head: str) -> str:
    """``attnwatch static`` of two commits; empty where they are none."""
    words = [_commit(side, text) for side, text in zip(_SIDE, (base, head), strict=True)]
    if base == head or any(w is None for w in words):
        return ""
    return shlex.join(["attnwatch", "static", *(word for w in words for word in w or ())])


def suite_option(suite: str) -> str:
    """What ``--suite`` takes for a stored suite: one that came from a file is not known by its name."""
    return suite if suite in SUITES else "full"


def _commit(side: str, text: str) -> list[str] | None:
    return [f"--{side}", text] if COMMIT.fullmatch(text) else None


def _options(side: str, text: str) -> list[str] | None:
    rest = text.removeprefix("as installed").removeprefix("working tree").strip()
    words: list[str] = []
    for word in rest.split():
        if _PAIR.fullmatch(word):
            words += [f"--{side}-env", word]
        elif word.startswith("/"):
            words += [f"--{side}-python", word]
        elif not words and _REF.fullmatch(word):
            words += [f"--{side}", word]
        else:
            return None
    return words
