"""From events to messages, through apprise: one message for each owner and run, whatever happened in it."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.comment.escape import cut, visible
from harness.model import InfrastructureError, InputError

from .events import Event
from .ledger import Ledger

if TYPE_CHECKING:
    from apprise import Apprise

_HEADS = (
    ("new", "New confirmed regressions"), ("overdue", "Nightly runs that did not happen"),
    ("coverage", "Coverage"), ("recovered", "Recovered"),
)  # fmt: skip
_LINES = 20
_LINE_CHARS = 300


@dataclass(frozen=True)
class Notice:
    """One message to an owner, ``""`` for everybody."""

    owner: str
    title: str
    body: str
    keys: tuple[str, ...]


@dataclass
class Outcome:
    """What became of the events: keys ``sent``, ``failed``, ``held`` back in quiet hours, ``known`` from before."""

    sent: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)


def grouped(events: Sequence[Event]) -> list[Notice]:
    """One notice for each owner, what is severe first."""
    by_owner: dict[str, list[Event]] = defaultdict(list)
    for e in events:
        by_owner[e.owner].append(e)
    return [_notice(owner, held) for owner, held in sorted(by_owner.items())]


def _notice(owner: str, events: list[Event]) -> Notice:
    lines: list[str] = []
    counts = []
    rank = {"high": 0, "normal": 1, "low": 2}
    for kind, head in _HEADS:
        held = sorted((e for e in events if e.kind == kind), key=lambda e: (rank.get(e.severity, 1), e.key))
        if not held:
            continue
        counts.append(f"{len(held)} {kind}")
        lines += [*([""] if lines else []), f"{head}:"]
        lines += [_line(e) for e in held[:_LINES]]
        if len(held) > _LINES:
            lines.append(f"... and {len(held) - _LINES} more")
    return Notice(owner, f"attnwatch: {', '.join(counts)}", "\n".join(lines), tuple(e.key for e in events))


def _line(e: Event) -> str:
    mark = "(high) " if e.severity == "high" else ""
    # Chats wake everybody for an @ or <! that a name might hold.
    return f"- {mark}{cut(visible(e.text), _LINE_CHARS)}".replace("@", "(at)").replace("<!", "< !")


def services(config: str | None, environment: Mapping[str, str] = os.environ) -> Apprise:
    """Where notices go: a configuration file of apprise, or addresses in ATTNWATCH_NOTIFY, one a line.

    An address holds secrets and is never told. InputError where there is none, or where one is not understood.
    """
    try:
        import apprise
    except ImportError:
        raise InfrastructureError("apprise is not installed; pip install 'asv_bench_attnwatch[notify]'") from None

    logging.getLogger("apprise").setLevel(logging.CRITICAL)  # it tells addresses
    out = apprise.Apprise()
    if config is not None:
        read = apprise.AppriseConfig()
        read.add(f"file://{os.path.abspath(config)}")  # noqa: PTH100
        if not read.services():
            raise InputError(f"{config}: names no service that apprise understands")
        out.add(read)
    for number, line in enumerate(environment.get("ATTNWATCH_NOTIFY", "").split(), 1):
        if not out.add(line):
            raise InputError(f"ATTNWATCH_NOTIFY: address {number} is none that apprise understands")
    if not len(out):
        raise InputError("nobody to tell: give --config FILE, or addresses in ATTNWATCH_NOTIFY")
    return out


def send(events: Sequence[Event], ledger: Ledger, to: Any) -> Outcome:
    """Send what was not told before and is not quiet now. Each notice is claimed, sent and settled by itself."""
    out = Outcome(unsure=ledger.unsure)
    fresh = []
    for e in events:
        if e.key in ledger.told:
            out.known.append(e.key)
        elif e.quiet:
            out.held.append(e.key)
        else:
            fresh.append(e)
    for notice in grouped(fresh):
        ledger.claim(notice.keys)
        if _sent(notice, to):
            ledger.settle(notice.keys)
            out.sent += notice.keys
        else:
            ledger.forget(notice.keys)
            out.failed += notice.keys
    return out


def _sent(notice: Notice, to: Any) -> bool:
    """To those whose tag is the owner's name; to all where nobody has it."""
    mine = list(to.find(tag=notice.owner)) if notice.owner else []
    tag = notice.owner if mine else "all"
    return bool(to.notify(body=notice.body, title=notice.title, body_format="text", tag=tag))
