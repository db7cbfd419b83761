"""Every request is one that GitHub's own description of its API allows: prism stands between and validates."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.comment.github import Access, Hub, retries
from harness.comment.upsert import check, upsert
from tests.ci.nodes import need

from . import samples
from .server import HEAD, ME, TOKEN, GitHub, serving
from .test_upsert import BAD, GOOD, facts_of

pytestmark = pytest.mark.slow


@pytest.fixture
def between(tmp_path: Path) -> Iterator[tuple[GitHub, Path]]:
    """Our small GitHub behind prism, and prism's log."""
    prism = need("@stoplight/prism-cli") / "dist" / "index.js"
    description = need("@octokit/openapi") / "generated" / "api.github.com.json"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path / "prism.log"
    with serving() as server, log.open("wb") as out:
        command = ["node", str(prism), "proxy", "--port", str(port), str(description), server.url]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 90
            while b"is listening" not in log.read_bytes() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
            assert b"is listening" in log.read_bytes(), log.read_text()[-2000:]
            server.url = f"http://127.0.0.1:{port}"
            server.add_pull()
            yield server, log
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def refused(log: Path) -> list[str]:
    """What prism says against requests; what it misses in the short answers of our server is another matter."""
    lines = log.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if "Violation: request" in line or "no-path-matched" in line.lower()]


def test_every_request_is_as_github_describes_it(between: tuple[GitHub, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    server, log = between
    # GraphQL has no part in the description.
    monkeypatch.setattr(Hub, "me", lambda self: ME)
    hub = Hub("o/r", Access(token=TOKEN, url=server.url, pause_s=0.0), retries(0))
    pull = hub.pull(7)
    assert upsert(hub, pull, BAD).action == "created"
    assert upsert(hub, pull, GOOD).action == "updated"
    assert check(hub, HEAD, facts_of(samples.five_thousand()))["action"] == "created"
    assert check(hub, HEAD, GOOD)["action"] == "updated"
    assert hub.pull_of("o/r", "topic", HEAD) is not None
    hub.repo.get_commit(HEAD).create_status("failure", description="x", context="attnwatch")
    made = {(method, path.partition("/repos/o/r/")[2].partition("/")[0]) for method, path in server.log}
    assert made >= {("POST", "issues"), ("PATCH", "issues"), ("POST", "check-runs"), ("PATCH", "check-runs")}
    assert refused(log) == []
    spoilt = json.dumps({"bod": 1}).encode()
    headers = {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"}
    url = f"{server.url}/repos/o/r/issues/7/comments"
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(urllib.request.Request(url, spoilt, headers), timeout=20)
    assert refused(log), "prism does not validate"
