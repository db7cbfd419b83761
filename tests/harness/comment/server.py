"""A small GitHub that remembers: pull requests, comments, checks, statuses, and faults on demand."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ME, TOKEN = 41898282, "secret-token"
HEAD, BASE = "2" * 40, "1" * 40
Json = dict[str, Any]


@dataclass
class Fault:
    """The next ``times`` requests that match are answered with ``status``, or cut off, before or after the work."""

    method: str
    path: str
    status: int = 0
    body: Json = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    cut: str = ""


@dataclass
class GitHub:
    """The state, and the address of its server."""

    url: str = ""
    comments: list[Json] = field(default_factory=list)
    checks: list[Json] = field(default_factory=list)
    statuses: list[Json] = field(default_factory=list)
    pulls: list[Json] = field(default_factory=list)
    minimized: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    log: list[tuple[str, str]] = field(default_factory=list)
    before: Callable[[str, str], None] = lambda method, path: None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add_pull(self, number: int = 7, sha: str = HEAD, repo: str = "o/r", branch: str = "topic") -> Json:
        """A new open pull request."""
        head = {"sha": sha, "ref": branch, "repo": {"full_name": repo, "url": f"{self.url}/repos/{repo}"}}
        pull = {
            "number": number, "state": "open", "head": head, "base": {"sha": BASE, "ref": "main"},
            "url": f"{self.url}/repos/o/r/pulls/{number}", "issue_url": f"{self.url}/repos/o/r/issues/{number}",
        }  # fmt: skip
        self.pulls.append(pull)
        return pull

    def add_comment(self, body: str, user: int = ME) -> Json:
        """A comment that somebody wrote."""
        with self.lock:
            number = len(self.comments) + 100
            comment = {
                "id": number, "node_id": f"C{number}", "body": body, "user": {"id": user, "login": f"u{user}"},
                "url": f"{self.url}/repos/o/r/issues/comments/{number}", "html_url": f"https://x.invalid/c{number}",
                "deleted": False,
            }  # fmt: skip
            self.comments.append(comment)
            return comment

    def mine(self) -> list[Json]:
        """Comments of ours that were neither deleted nor minimised."""
        return [c for c in self.shown() if c["user"]["id"] == ME and c["node_id"] not in self.minimized]

    def shown(self) -> list[Json]:
        """Comments that were not deleted."""
        return [c for c in self.comments if not c["deleted"]]

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Json) -> tuple[int, Any]:
        """Status and answer of one call."""
        if path == "/graphql":
            return self._graphql(body)
        if path == "/app/installations/5/access_tokens":
            return 201, {"token": TOKEN, "expires_at": "2099-01-01T00:00:00Z", "permissions": {}}
        rest = path.removeprefix("/repos/o/r/")
        if rest == "installation":
            return 200, {"id": 5}
        if rest == path:
            return 404, {"message": "Not Found"}
        if method == "GET" and rest == "pulls":
            wanted = query.get("head", [""])[0]
            return 200, [p for p in self.pulls if _owner_branch(p) == wanted or ":" not in wanted]
        if found := re.fullmatch(r"pulls/(\d+)", rest):
            return _one([p for p in self.pulls if p["number"] == int(found[1])])
        if re.fullmatch(r"issues/\d+/comments", rest):
            if method == "GET":
                return 200, self.shown()
            return self._posted(body)
        if found := re.fullmatch(r"issues/comments/(\d+)", rest):
            status, held = _one([c for c in self.shown() if c["id"] == int(found[1])])
            if status == 200 and method == "PATCH":
                held["body"] = body["body"]
            return status, held
        if found := re.fullmatch(r"commits/([0-9a-f]+)", rest):
            return 200, {"sha": found[1], "url": f"{self.url}{path}"}
        if found := re.fullmatch(r"commits/([0-9a-f]+)/check-runs", rest):
            held = [c for c in self.checks if c["head_sha"] == found[1]]
            return 200, {"total_count": len(held), "check_runs": held}
        if found := re.fullmatch(r"check-runs(?:/(\d+))?", rest):
            return self._check(found[1], body)
        if rest.startswith("statuses/"):
            self.statuses.append({**body, "sha": rest.removeprefix("statuses/")})
            return 201, self.statuses[-1]
        return 404, {"message": "Not Found"}

    def _posted(self, body: Json) -> tuple[int, Any]:
        if not isinstance(body.get("body"), str) or len(body["body"]) > 65536:
            return 422, {"message": "Validation Failed", "errors": [{"message": "body is too long"}]}
        return 201, self.add_comment(body["body"])

    def _check(self, number: str | None, body: Json) -> tuple[int, Any]:
        if number is None:
            self.checks.append({**body, "id": len(self.checks) + 1})
            self.checks[-1]["url"] = f"{self.url}/repos/o/r/check-runs/{self.checks[-1]['id']}"
            return 201, self.checks[-1]
        self.checks[int(number) - 1].update(body)
        return 200, self.checks[int(number) - 1]

    def _graphql(self, body: Json) -> tuple[int, Any]:
        if "viewer" in body["query"]:
            return 200, {"data": {"viewer": {"databaseId": ME}}}
        given = body["variables"]["input"]
        self.minimized.append(given["subjectId"])
        return 200, {"data": {"minimizeComment": {"minimizedComment": {"isMinimized": True}}}}


def _owner_branch(pull: Json) -> str:
    return f"{pull['head']['repo']['full_name'].partition('/')[0]}:{pull['head']['ref']}"


def _one(found: list[Json]) -> tuple[int, Any]:
    return (200, found[0]) if found else (404, {"message": "Not Found"})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: GitHub

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hub = self.hub
        hub.before(self.command, parts.path)
        with hub.lock:
            hub.log.append((self.command, parts.path))
            fault = next((f for f in hub.faults if f.times and self._hit(f, parts.path)), None)
            if fault is not None:
                fault.times -= 1
                if fault.cut == "before":
                    return self._cut()
                if not fault.cut:
                    return self._send(fault.status, fault.body, fault.headers)
            given = self.headers.get("Authorization") or ""
            as_app = given.startswith("Bearer ey") and "installation" in parts.path
            if given not in (f"token {TOKEN}", f"Bearer {TOKEN}") and not as_app:
                return self._send(401, {"message": "Bad credentials"})
            status, answer = hub.answer(self.command, parts.path, parse_qs(parts.query), json.loads(raw or b"{}"))
            if fault is not None:
                return self._cut()
        headers = {}
        if isinstance(answer, list):
            answer, headers = self._page(answer, parts.path, parse_qs(parts.query))
        return self._send(status, answer, headers)

    do_GET = do_POST = do_PATCH = _serve

    def _hit(self, fault: Fault, path: str) -> bool:
        return fault.method == self.command and re.fullmatch(fault.path, path) is not None

    def _page(self, items: list[Json], path: str, query: dict[str, list[str]]) -> tuple[list[Json], dict[str, str]]:
        size, page = int(query.get("per_page", ["30"])[0]), int(query.get("page", ["1"])[0])
        shown, more = items[size * (page - 1) : size * page], len(items) > size * page
        link = f'<{self.hub.url}{path}?per_page={size}&page={page + 1}>; rel="next"'
        return shown, {"Link": link} if more else {}

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        with contextlib.suppress(OSError):
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)


@contextlib.contextmanager
def serving() -> Iterator[GitHub]:
    """A running server and its state."""
    hub = GitHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
