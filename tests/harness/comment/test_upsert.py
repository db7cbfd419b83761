"""One comment per pull request, over real HTTP: races, refusals, limits and cut connections."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator

import pytest

from harness.comment.events import Event, resolve
from harness.comment.facts import Facts
from harness.comment.github import Access, Hub, access_of, retries
from harness.comment.reading import from_json
from harness.comment.render import marker_state
from harness.comment.upsert import Done, check, upsert
from harness.model import AttnwatchError, InfrastructureError, InputError

from . import samples
from .server import HEAD, ME, TOKEN, Fault, GitHub, serving

COMMENTS = "/repos/o/r/issues/7/comments"


@pytest.fixture
def server() -> Iterator[GitHub]:
    with serving() as hub:
        hub.add_pull()
        yield hub


def hub_of(server: GitHub) -> Hub:
    retry = retries(3)
    retry.backoff_factor = 0.01
    return Hub("o/r", Access(token=TOKEN, url=server.url, pause_s=0.0), retry)


def facts_of(report: samples.Row) -> Facts:
    return from_json(json.dumps(report), "r")


BAD, GOOD = facts_of(samples.one_regression()), facts_of(samples.clean())


def put(server: GitHub, facts: Facts, always: bool = False) -> Done:
    hub = hub_of(server)
    return upsert(hub, hub.pull(7), facts, always=always)


def test_a_comment_is_written_once_and_then_updated(server: GitHub) -> None:
    server.add_comment("looks good", user=5)
    assert put(server, GOOD).action == "none"
    assert put(server, BAD).action == "created"
    assert put(server, BAD).action == "unchanged"
    assert put(server, GOOD).action == "updated"
    (mine,) = server.mine()
    assert mine["body"].startswith("**Recovered.**") and marker_state(mine["body"]) == "recovered"
    assert put(server, GOOD).action == "unchanged"
    assert put(server, BAD).action == "updated"
    assert len(server.shown()) == 2


def test_a_clean_pull_request_is_told_where_that_is_wanted(server: GitHub) -> None:
    assert put(server, GOOD, always=True).action == "created"
    assert marker_state(server.mine()[0]["body"]) == "clean"


def test_comments_of_others_are_never_touched(server: GitHub) -> None:
    theirs = server.add_comment("**No regression**\n\n<!-- attnwatch:comment clean -->", user=5)
    put(server, BAD)
    assert theirs["body"].startswith("**No regression**")
    assert len(server.mine()) == 1


def test_the_comment_is_found_behind_many_pages(server: GitHub) -> None:
    for i in range(130):
        server.add_comment(f"talk {i}", user=5)
    put(server, BAD)
    for i in range(130):
        server.add_comment(f"more talk {i}", user=5)
    assert put(server, GOOD).action == "updated"
    assert len(server.mine()) == 1


def test_two_that_write_at_once_leave_one_comment(server: GitHub) -> None:
    barrier = threading.Barrier(2, timeout=20)

    def meet(method: str, path: str) -> None:
        if method == "POST" and path == COMMENTS and not barrier.broken:
            barrier.wait()
            barrier.abort()  # only the first two meet

    server.before = lambda method, path: _quietly(meet, method, path)
    threads = [threading.Thread(target=put, args=(server, BAD)) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(server.shown()) == 2, "both created one"
    put(server, BAD)
    (left,) = server.mine()
    assert left["id"] == min(c["id"] for c in server.comments)


def _quietly(meet: object, method: str, path: str) -> None:
    with contextlib.suppress(threading.BrokenBarrierError):
        meet(method, path)  # type: ignore[operator]


def test_a_comment_that_was_deleted_meanwhile_is_written_anew(server: GitHub) -> None:
    put(server, BAD)
    old = server.mine()[0]

    def delete(method: str, path: str) -> None:
        if method == "PATCH":
            old["deleted"] = True

    server.before = delete
    assert put(server, facts_of(samples.forty_regressions())).action == "created"
    (new,) = server.mine()
    assert new["id"] != old["id"]


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_cut_connection_doubles_nothing(server: GitHub, cut: str) -> None:
    server.faults.append(Fault("POST", COMMENTS, cut=cut))
    put(server, BAD)
    assert len(server.shown()) == 1


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_server_in_trouble_is_asked_again(server: GitHub, status: int) -> None:
    server.faults += [Fault("GET", COMMENTS, status, times=2), Fault("POST", COMMENTS, status)]
    put(server, BAD)
    assert len(server.shown()) == 1


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        (403, {"Retry-After": "1"}, "You have exceeded a secondary rate limit"),
        (429, {"Retry-After": "1"}, "Too many requests"),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "SOON"}, "API rate limit exceeded for installation"),
    ],
)
def test_limits_are_waited_for(server: GitHub, status: int, headers: dict[str, str], message: str) -> None:
    held = {k: v.replace("SOON", str(int(time.time()))) for k, v in headers.items()}
    server.faults.append(Fault("POST", COMMENTS, status, {"message": message}, held))
    put(server, BAD)
    assert len(server.shown()) == 1
    assert server.log.count(("POST", COMMENTS)) == 2


def test_a_limit_that_lasts_is_told_and_not_waited_for(server: GitHub) -> None:
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 3600)}
    server.faults.append(Fault("GET", COMMENTS, 403, {"message": "API rate limit exceeded"}, headers, times=9))
    with pytest.raises(InfrastructureError, match="limit of requests is used up"):
        put(server, BAD)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("POST", COMMENTS, 403, {"message": "Resource not accessible"}, times=9), "pull-requests: write"),
        (Fault("POST", COMMENTS, 422, {"message": "Validation Failed"}, times=9), "422 Validation Failed"),
        (Fault("POST", COMMENTS, 409, {"message": "Conflict"}, times=9), "409 Conflict"),
        (Fault("POST", COMMENTS, 404, {"message": "Not Found"}, times=9), "may not see it"),
        (Fault("POST", COMMENTS, 500, times=99), "again later"),
        (Fault("GET", COMMENTS, cut="before", times=99), "no answer"),
        (Fault("POST", "/graphql", 401, {"message": "Bad credentials"}, times=9), "token is not valid"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_do(server: GitHub, fault: Fault, message: str) -> None:
    server.faults.append(fault)
    with pytest.raises(InfrastructureError) as told:
        put(server, BAD)
    assert message in str(told.value) and TOKEN not in str(told.value) and "\n" not in str(told.value)
    assert server.mine() == []


def test_nobody_listens() -> None:
    with pytest.raises(InfrastructureError, match="no answer"):
        Hub("o/r", Access(token="x", url="http://127.0.0.1:9"), retries(0)).pull(7)


def test_a_check_is_made_once_and_updated(server: GitHub) -> None:
    hub = hub_of(server)
    assert check(hub, HEAD, BAD) == {"kind": "check", "action": "created", "conclusion": "failure"}
    assert check(hub, HEAD, GOOD) == {"kind": "check", "action": "updated", "conclusion": "success"}
    (made,) = server.checks
    assert (made["head_sha"], made["name"], made["status"]) == (HEAD, "attnwatch", "completed")
    assert made["output"]["title"] == "No regression in 12 cases"


@pytest.mark.parametrize(
    ("name", "word"),
    [("ambiguous", "neutral"), ("all-failed", "failure"), ("improvement", "success"), ("out-of-memory", "failure")],
)
def test_the_conclusion(server: GitHub, name: str, word: str) -> None:
    assert check(hub_of(server), HEAD, facts_of(samples.GOLDEN[name]()))["conclusion"] == word


def test_a_token_that_may_make_no_checks_sets_a_status(server: GitHub) -> None:
    refused = {"message": "You must authenticate via a GitHub App."}
    server.faults.append(Fault("POST", "/repos/o/r/check-runs", 403, refused))
    assert check(hub_of(server), HEAD, BAD)["kind"] == "status"
    assert server.statuses[0]["state"] == "failure" and server.statuses[0]["sha"] == HEAD


def test_a_fork_is_found_by_repository_branch_and_commit(server: GitHub) -> None:
    server.add_pull(8, "3" * 40, "fork/r", "topic")
    server.add_pull(9, "4" * 40, "fork/other", "topic")
    hub = hub_of(server)
    assert resolve(hub, Event(head_repo="fork/r", branch="topic", sha="3" * 40)).number == 8
    for event in (
        Event(head_repo="fork/r", branch="topic", sha="4" * 40),
        Event(head_repo="fork/third", branch="topic", sha="3" * 40),
        Event(head_repo="fork/r", branch="to\npic", sha="3" * 40),
    ):
        with pytest.raises(InputError, match="no open pull request"):
            resolve(hub, event)


def test_access_comes_from_the_environment() -> None:
    assert (
        access_of({"GITHUB_TOKEN": "a", "GITHUB_API_URL": "https://git.example/api/v3/"}).url
        == "https://git.example/api/v3"
    )
    app = access_of({"ATTNWATCH_APP_ID": "7", "ATTNWATCH_APP_KEY": "k", "ATTNWATCH_APP_INSTALLATION": "9"})
    assert (app.app, app.installation) == ("7", 9)
    for spoilt in ({}, {"ATTNWATCH_APP_ID": "7"}, {"GH_TOKEN": "a", "ATTNWATCH_APP_INSTALLATION": "x"}):
        with pytest.raises(AttnwatchError):
            access_of(spoilt)
    assert "secret" not in repr(access_of({"GH_TOKEN": "secret", "ATTNWATCH_APP_KEY": "secret"}))


@pytest.mark.parametrize("name", ["", "o", "o/r/x", "../r", "o/..", "o/r?x=1", "o r/x", "http://x/y"])
def test_a_repository_is_owner_and_name(name: str) -> None:
    with pytest.raises(InputError, match="--repo"):
        Hub(name, Access(token="x"))


def test_a_pull_request_that_is_not_there(server: GitHub) -> None:
    with pytest.raises(InfrastructureError, match="pull request 99 of o/r: 404"):
        hub_of(server).pull(99)


def test_our_number_is_the_one_that_github_says(server: GitHub) -> None:
    assert hub_of(server).me() == ME


@pytest.mark.parametrize("installation", [None, 5])
def test_an_app_asks_for_a_token_of_its_own(server: GitHub, installation: int | None) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key = made.private_bytes(*form).decode().replace("\n", "\\n")  # as it stands in a variable
    access = Access(app="7", key=key, installation=installation, url=server.url, pause_s=0.0)
    hub = Hub("o/r", access, retries(0))
    assert upsert(hub, hub.pull(7), BAD).action == "created"
    assert ("POST", "/app/installations/5/access_tokens") in server.log
    assert (("GET", "/repos/o/r/installation") in server.log) == (installation is None)


def test_a_check_that_another_app_made_is_left_to_it(server: GitHub) -> None:
    hub = hub_of(server)
    check(hub, HEAD, BAD)
    server.faults.append(Fault("PATCH", "/repos/o/r/check-runs/1", 403, {"message": "Invalid app_id"}))
    assert check(hub, HEAD, GOOD) == {"kind": "check", "action": "created", "conclusion": "success"}
    assert [c["conclusion"] for c in server.checks] == ["failure", "success"]
