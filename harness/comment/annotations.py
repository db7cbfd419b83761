"""Findings as the annotations of GitHub Actions: lines that its runner reads from the output of a step."""

from __future__ import annotations

from .escape import plain
from .facts import Facts, Group

#: GitHub shows ten of a kind for each step.
MOST = 10


def annotated(facts: Facts) -> list[str]:
    """One line for each group: an error where it is confirmed, else a warning."""
    return [_line(g) for g in facts.groups[:MOST]]


def _line(g: Group) -> str:
    where = f" where {plain(g.trigger)}" if g.trigger else f" in {g.hit} cases"
    effect = "" if g.effect is None else f", {g.effect:.3g} times base"
    level = "error" if g.confirmed else "warning"
    return f"::{level} title={_value('attnwatch')}::{_data(f'{g.kind}{where}{effect}')}"


def _data(text: str) -> str:
    """Text of a command; without this a name could begin a command of its own."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _value(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
