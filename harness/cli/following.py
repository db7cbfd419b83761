"""follow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import DbOption, JsonOption, print_json

if TYPE_CHECKING:
    from harness.judge.following import Trail


def follow(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="As notices and incidents tell it.")],
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """What became of one measured case: its attempts, the incidents that hold it, and who was told what."""
    from db.engine import open_store
    from harness.judge.following import follow as trail

    with open_store(db, create=False, read_only=True) as store:
        found = trail(store, trace)
    if json_out:
        print_json(_plain(found))
        return
    case = found.attempts[0].case
    r = found.run
    print(f"{found.trace}\n  run {r.id}  {r.suite}  {r.revision[:12]}  {_at(r.started_at)}")
    print(f"  case {case.benchmark}  {case.backend}  {case.label}")
    for m in found.attempts:
        print(f"  attempt {m.attempt}  {_at(m.started_at)}  {m.status}  {m.detail}".rstrip())
    for d in found.incidents:
        print(f"  incident {d.incident.id}  {d.incident.state}  {d.incident.title}")
        for e in d.events:
            print(f"    {_at(e.at)}  {e.from_state or '-'} -> {e.to_state}  {e.author}  {e.reason}".rstrip())


def _plain(found: Trail) -> dict[str, Any]:
    return {
        "trace": found.trace, "run": found.run.id, "case": found.attempts[0].case.key,
        "attempts": [{"attempt": m.attempt, "status": m.status, "detail": m.detail, "started_at": m.started_at}
                     for m in found.attempts],
        "incidents": [
            {"id": d.incident.id, "state": d.incident.state, "title": d.incident.title,
             "trigger": d.incident.trigger_text or None,
             "triage": [{"at": e.at, "from": e.from_state, "to": e.to_state, "author": e.author, "reason": e.reason}
                        for e in d.events]}
            for d in found.incidents
        ],
    }  # fmt: skip


def _at(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
