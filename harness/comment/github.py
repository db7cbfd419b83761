"""The few calls to GitHub that a comment needs, through PyGithub, and errors that say what to do."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.model import InfrastructureError, InputError

if TYPE_CHECKING:
    from github.Auth import Auth
    from github.GithubRetry import GithubRetry
    from github.IssueComment import IssueComment
    from github.PullRequest import PullRequest

#: Longest wait for a limit of requests; who waits longer is better told when to come back.
MOST_WAIT_S = 300.0
_RETRIES = 5
_NAME = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9_.-]{1,100}"
_REPO = re.compile(f"{_NAME}/{_NAME}")
_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_API = "https://api.github.com"


@dataclass(frozen=True)
class Access:
    """Where GitHub is and who asks. ``key`` is the private key of an app whose id is ``app``; else ``token`` holds.

    ``pause_s`` lies between writes, as GitHub asks of its callers.
    """

    token: str = ""
    app: str = ""
    key: str = ""
    installation: int | None = None
    url: str = _API
    pause_s: float = 1.0

    def __repr__(self) -> str:
        return f"Access(url={self.url!r}, app={self.app!r})"  # neither key nor token in any traceback


def access_of(environment: Mapping[str, str] = os.environ) -> Access:
    """Access from GITHUB_TOKEN or GH_TOKEN, or from ATTNWATCH_APP_ID and ATTNWATCH_APP_KEY; GITHUB_API_URL.

    InputError where there is neither.
    """
    get = environment.get
    app, key = get("ATTNWATCH_APP_ID", ""), get("ATTNWATCH_APP_KEY", "")
    token = get("GITHUB_TOKEN") or get("GH_TOKEN") or ""
    if not token and not (app and key):
        raise InputError("no access to GitHub: set GITHUB_TOKEN, or ATTNWATCH_APP_ID and ATTNWATCH_APP_KEY of an app")
    number = get("ATTNWATCH_APP_INSTALLATION", "")
    if number and not number.isdigit():
        raise InputError(f"ATTNWATCH_APP_INSTALLATION: {number[:20]!r} is no number")
    pause = get("ATTNWATCH_GITHUB_PAUSE", "1")
    try:
        pause_s = float(pause)
    except ValueError:
        raise InputError(f"ATTNWATCH_GITHUB_PAUSE: {pause[:20]!r} is no number of seconds") from None
    url = (get("GITHUB_API_URL") or _API).rstrip("/")
    return Access(token, app if key else "", key, int(number) if number else None, url, pause_s)


def repository(text: str) -> str:
    """``owner/name``, or InputError."""
    if not _REPO.fullmatch(text):
        raise InputError(f"--repo: {text[:80]!r} is not OWNER/NAME; GITHUB_REPOSITORY serves where it is not given")
    return text


def commit(text: str) -> str:
    """A full commit hash, or InputError."""
    if not _SHA.fullmatch(text):
        raise InputError(f"--sha: {text[:80]!r} is no full commit hash")
    return text


def retries(total: int = _RETRIES) -> GithubRetry:
    """Retries as GitHub asks for: limits are waited for; what may have been done already is not sent twice."""
    from github.GithubRetry import GithubRetry

    class Careful(GithubRetry):
        def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
            # A refused POST did nothing; after a 5xx nobody knows, and the caller looks first.
            if method == "POST":
                return status_code in (403, 429)
            return super().is_retry(method, status_code, has_retry_after)

    return Careful(
        total=total, backoff_factor=0.5, max_rate_limit_wait=MOST_WAIT_S, retry_after_max=int(MOST_WAIT_S),
        status_forcelist=[429, *range(500, 600)], allowed_methods={"GET", "PATCH", "HEAD"},
    )  # fmt: skip


class Hub:
    """One repository on GitHub."""

    def __init__(self, repo: str, access: Access, retry: GithubRetry | None = None) -> None:
        try:
            import github
        except ImportError:
            raise InfrastructureError("PyGithub is not installed; pip install 'asv_bench_attnwatch[github]'") from None

        self.name = repository(repo)
        options: dict[str, Any] = {
            "base_url": access.url, "retry": retry or retries(), "per_page": 100, "timeout": 30,
            "user_agent": "attnwatch", "lazy": True, "seconds_between_writes": access.pause_s,
            "seconds_between_requests": None,
        }  # fmt: skip
        with explained(f"access to {self.name}"):
            auth = _app(access, self.name, options) if access.app else github.Auth.Token(access.token)
            self.github = github.Github(auth=auth, **options)
            self.repo = self.github.get_repo(self.name)

    def me(self) -> int:
        """The number of the account that asks."""
        with explained("who am I"):
            _, data = self.github.requester.graphql_query("query { viewer { databaseId } }", {})
            return int(data["data"]["viewer"]["databaseId"])

    def pull(self, number: int) -> PullRequest:
        """A pull request; HubError with status 404 where there is none."""
        with explained(f"pull request {number} of {self.name}"):
            pull = self.repo.get_pull(number)
            pull.complete()  # until then nobody knows whether there is one
            return pull

    def pull_of(self, head_repo: str, branch: str, sha: str) -> PullRequest | None:
        """The open pull request of a branch of a repository, a fork perhaps, whose head is this commit."""
        owner = repository(head_repo).partition("/")[0]
        with explained(f"pull requests of {self.name}"):
            for pull in self.repo.get_pulls(state="open", head=f"{owner}:{branch}"):
                # GitHub leaves out a filter that it cannot read, and then answers with every pull request.
                if pull.head.sha == sha and pull.head.repo is not None and pull.head.repo.full_name == head_repo:
                    return pull
        return None

    def comments(self, pull: PullRequest) -> list[IssueComment]:
        """All comments of a pull request, the oldest first."""
        with explained(f"comments of pull request {pull.number}"):
            return sorted(pull.get_issue_comments(), key=lambda c: c.id)


def _app(access: Access, repo: str, options: dict[str, Any]) -> Auth:
    import github

    key = access.key.replace("\\n", "\n")
    app = github.Auth.AppAuth(access.app, key)
    number = access.installation
    if number is None:
        integration = github.GithubIntegration(auth=app, base_url=access.url, retry=options["retry"])
        number = integration.get_repo_installation(*repo.split("/")).id
    return app.get_installation_auth(number)


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Errors of GitHub and of the network as ours, in one line; no header or token is ever told."""
    import requests
    from github import GithubException

    try:
        yield
    except GithubException as err:
        raise _told(what, err) from None
    except requests.RequestException as err:
        cause = type(err.args[0]).__name__ if err.args and isinstance(err.args[0], Exception) else type(err).__name__
        raise InfrastructureError(f"GitHub: {what}: no answer ({cause}); run the same command again") from None
    except (ValueError, KeyError, TypeError, AssertionError) as err:
        raise InfrastructureError(f"GitHub: {what}: an answer that is not understood ({type(err).__name__})") from None


def status_of(err: BaseException) -> int | None:
    """The HTTP status that an error came from."""
    return getattr(err, "http_status", None)


class HubError(InfrastructureError):
    """GitHub refused; ``http_status`` says how."""

    http_status: int = 0


def _told(what: str, err: Any) -> Exception:
    status = int(err.status or 0)
    data = err.data if isinstance(err.data, dict) else {}
    message = str(data.get("message") or "").splitlines()
    text = f"GitHub: {what}: {status}" + (f" {message[0][:200]}" if message else "")
    rated = type(err).__name__.startswith("RateLimit") or "rate limit" in text.lower()
    if rated:
        text += "; the limit of requests is used up, run the same command again later"
    elif status == 401:
        text += "; the token is not valid"
    elif status == 403:
        text += "; the token needs the permissions pull-requests: write and checks: write"
    elif status == 404:
        text += "; it is not there, or the token may not see it"
    elif status >= 500:
        text += "; run the same command again later"
    told = HubError(text)
    told.http_status = status
    return told
