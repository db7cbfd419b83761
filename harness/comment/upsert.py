"""One comment and one check per pull request, whoever writes at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from harness.model import AttnwatchError, InfrastructureError

from .facts import Facts, State
from .github import Hub, explained, status_of
from .render import marker_state, render, title

if TYPE_CHECKING:
    from github.CheckRun import CheckRun
    from github.IssueComment import IssueComment
    from github.PullRequest import PullRequest

#: Name of the check.
CHECK = "attnwatch"

#: States that begin a comment; others only update one that is there.
TELLING = frozenset({State.ADVERSE, State.SUSPECT, State.FAILED})

_CONCLUSIONS = {
    State.ADVERSE: "failure", State.FAILED: "failure", State.SUSPECT: "neutral", State.NOTHING: "neutral",
    State.UNSETTLED: "neutral", State.FASTER: "success", State.CLEAN: "success", State.UNCHANGED: "success",
}  # fmt: skip
_TRIES = 4
Body = Callable[[str | None], str]


@dataclass(frozen=True)
class Done:
    """``action`` is created, updated, unchanged, none or stale; ``comment`` is the number of the comment."""

    action: str
    comment: int | None = None
    url: str | None = None
    minimized: int = 0

    def as_plain(self) -> dict[str, Any]:
        """Plain values for ``--json``."""
        return asdict(self)


def conclusion(facts: Facts) -> str:
    """What the check says: failure, neutral or success. A run that could judge nothing is not green."""
    return _CONCLUSIONS[facts.state]


def upsert(hub: Hub, pull: PullRequest, facts: Facts, *, foreign: bool = False, always: bool = False) -> Done:
    """Create or update the one comment; duplicates that a race left are minimised, the oldest stays."""
    me = hub.me()

    def body(before: str | None) -> str:
        return render(facts, before=before, foreign=foreign)

    wanted = always or facts.state in TELLING
    action = ""
    for attempt in range(_TRIES):
        held = [c for c in hub.comments(pull) if c.user.id == me and marker_state(c.body) is not None]
        if not held:
            if not wanted:
                return Done("none")
            action = _create(pull, body(None), attempt)
            continue  # look again: somebody else may have created one in the same moment
        keep, *rest = held
        changed = _update(keep, body)
        if changed is None:
            continue  # deleted in the meantime
        minimized = sum(_minimize(c) for c in rest)
        return Done(action or changed, keep.id, keep.html_url, minimized)
    raise InfrastructureError("GitHub: the comment was written and is not there; run the same command again")


def _create(pull: PullRequest, text: str, attempt: int) -> str:
    try:
        with explained(f"a new comment on pull request {pull.number}"):
            pull.create_issue_comment(text)
    except AttnwatchError as err:
        status = status_of(err)
        lost = status is None or status >= 500
        if not lost or attempt >= _TRIES - 2:
            raise
        # It may have been written all the same: the caller looks before it writes again.
        time.sleep(0.2 * 2**attempt)
        return ""
    return "created"


def _update(comment: IssueComment, body: Body) -> str | None:
    text = body(marker_state(comment.body))
    if _same(comment.body, text):
        return "unchanged"
    try:
        with explained(f"comment {comment.id}"):
            comment.edit(text)
    except AttnwatchError as err:
        if status_of(err) in (404, 410):
            return None
        raise
    return "updated"


def _same(held: str, text: str) -> bool:
    return held.replace("\r\n", "\n").strip() == text.strip()


def _minimize(comment: IssueComment) -> bool:
    """Fold a duplicate away; a failure here costs nobody anything."""
    try:
        with explained(f"comment {comment.id}"):
            return bool(comment.minimize("OUTDATED"))
    except AttnwatchError:
        return False


def check(hub: Hub, sha: str, facts: Facts, *, foreign: bool = False) -> dict[str, Any]:
    """The check run of a commit, updated where there is one; a commit status where the token may not make checks."""
    word, text = conclusion(facts), title(facts)
    output = {"title": text, "summary": render(facts, foreign=foreign, limit=60_000)}
    at = hub.repo.get_commit(sha)
    try:
        with explained(f"check of {sha[:12]}"):
            held = [c for c in at.get_check_runs(check_name=CHECK) if c.external_id == CHECK]
        if held and _edited(held[0], word, output):
            return {"kind": "check", "action": "updated", "conclusion": word}
        with explained(f"check of {sha[:12]}"):
            hub.repo.create_check_run(
                CHECK, sha, status="completed", conclusion=word, output=output, external_id=CHECK  # type: ignore[arg-type]
            )  # fmt: skip
        return {"kind": "check", "action": "created", "conclusion": word}
    except AttnwatchError as err:
        if status_of(err) != 403 or "rate limit" in str(err):
            raise
    # Only apps make check runs; the token of a person can still set a status.
    with explained(f"status of {sha[:12]}"):
        state = "failure" if word == "failure" else "success"
        at.create_status(state, description=text[:140], context=CHECK)
    return {"kind": "status", "action": "created", "conclusion": word}


def _edited(run: CheckRun, word: str, output: dict[str, Any]) -> bool:
    """Whether the check run is ours to change; one that another app made is not."""
    try:
        with explained(f"check run {run.id}"):
            run.edit(status="completed", conclusion=word, output=output)
    except AttnwatchError as err:
        if status_of(err) in (403, 404) and "rate limit" not in str(err):
            return False
        raise
    return True
