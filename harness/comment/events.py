"""Which pull request an event of GitHub Actions is about. The event is GitHub's; what a fork uploads is not asked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.model import InputError
from harness.model.reading import read_text

from .github import Hub, commit, repository

if TYPE_CHECKING:
    from github.PullRequest import PullRequest

_LIMIT_BYTES = 32 << 20


class Gone(InputError):
    """The pull request was closed, or has another head by now: there is nothing to comment."""


@dataclass(frozen=True)
class Event:
    """``number`` where the event names the pull request; else the head that it came from. ``sha`` is the commit."""

    number: int | None = None
    head_repo: str = ""
    branch: str = ""
    sha: str = ""


def read_event(path: str) -> Event:
    """The event that GITHUB_EVENT_PATH holds: a pull request, or the end of a workflow that one started.

    InputError names the file and what is missing.
    """
    try:
        data = json.loads(read_text(path, _LIMIT_BYTES))
    except (ValueError, RecursionError):
        raise InputError(f"{path}: not an event of GitHub Actions") from None
    held = data if isinstance(data, dict) else {}
    if isinstance(held.get("pull_request"), dict):
        pull = held["pull_request"]
        number = pull.get("number")
        if not isinstance(number, int):
            raise InputError(f"{path}: field pull_request.number: is missing")
        return Event(number=number, sha=commit(_text(pull, path, "head", "sha")))
    if isinstance(held.get("workflow_run"), dict):
        run = held["workflow_run"]
        # Its list of pull requests is empty for forks: the head repository and commit say which one it was.
        return Event(
            head_repo=repository(_text(run, path, "head_repository", "full_name")),
            branch=_text(run, path, "head_branch"), sha=commit(_text(run, path, "head_sha")),
        )  # fmt: skip
    raise InputError(f"{path}: names no pull request; give --pr")


def resolve(hub: Hub, event: Event) -> PullRequest:
    """The pull request of an event. Raises :class:`Gone` where it was closed or moved on in the meantime."""
    if event.number is not None:
        return hub.pull(event.number)
    found = hub.pull_of(event.head_repo, event.branch, event.sha)
    if found is None:
        raise Gone(f"no open pull request of {event.head_repo} has the head {event.sha[:12]}; nothing to comment")
    return found


def _text(data: Any, path: str, *keys: str) -> str:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    if not isinstance(data, str) or not data:
        raise InputError(f"{path}: field {'.'.join(keys)}: is missing")
    return data
