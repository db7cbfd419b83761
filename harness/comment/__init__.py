"""What a pull request is told: facts of a report, one Markdown comment, and GitHub."""

from .facts import Change, Facts, Group, State
from .render import LIMIT_BYTES, render, title

__all__ = ["LIMIT_BYTES", "Change", "Facts", "Group", "State", "render", "title"]
