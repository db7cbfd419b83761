"""Releases known to be wrong: which package and versions, where it shows, what to do, and who says so.

``doctor`` holds the table against what is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class KnownIssue:
    """``since`` <= version < ``until`` (None: no bound) of ``package``; ``predicate`` is over case columns in the
    language of ``--where``. ``without``: only where that package is absent. ``provenance``: ``verified`` where we have
    seen it ourselves."""

    package: str
    since: str | None
    until: str | None
    predicate: str
    symptom: str
    remedy: str
    provenance: Literal["reported", "verified"]
    without: str | None = None

    def concerns(self, version: str) -> bool:
        """Whether ``version`` lies in the range."""
        here = _numbers(version)
        return (self.since is None or here >= _numbers(self.since)) and (
            self.until is None or here < _numbers(self.until)
        )


KNOWN_ISSUES: tuple[KnownIssue, ...] = (
    KnownIssue(
        "flash_attn", "2.3.3", "2.3.4",
        "backend == 'flash_attn' and q_len == 1 and kv_len % 128 != 0",
        "part of the softmax normalisation is skipped",
        "install flash-attn 2.3.4 or later",
        "reported",
    ),
    KnownIssue(
        "flash_attn_4", None, None, "backend == 'xformers'",
        "`import xformers.ops` fails: it takes the flash_attn namespace for flash-attn 2",
        "install flash-attn 2 beside it, or keep the two in environments of their own",
        "verified", without="flash_attn",
    ),
)  # fmt: skip


def found_in(packages: Mapping[str, str], issues: Iterable[KnownIssue] = KNOWN_ISSUES) -> list[dict[str, str | None]]:
    """The issues that concern the installed ``packages`` (name -> version), with the version, ready for JSON."""
    installed = {_name(n): v for n, v in packages.items()}
    return [
        {**asdict(issue), "version": installed[_name(issue.package)]}
        for issue in issues
        if _name(issue.package) in installed
        and issue.concerns(installed[_name(issue.package)])
        and (issue.without is None or _name(issue.without) not in installed)
    ]


def _name(package: str) -> str:
    return re.sub(r"[-_.]+", "_", package).lower()


def _numbers(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: "2.3.3+cu12" -> (2, 3, 3). What follows them is not compared."""
    match = re.match(r"\d+(\.\d+)*", version.strip().removeprefix("v"))
    parts = [int(n) for n in match.group().split(".")] if match else []
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
