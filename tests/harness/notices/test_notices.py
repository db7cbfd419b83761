"""Notices: through apprise to a real receiver, once for each event, grouped, and not at night."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from db.engine import open_store
from db.repository import triage
from harness.model import AttnwatchError, InputError, TriageState
from harness.notices import Event, Ledger, events, grouped, send
from harness.notices.events import over
from harness.notices.sending import services
from harness.policy import Policy, QuietHours, Settings
from tests.harness.judge.test_nights import World, odd, slower
from tests.harness.judge.test_nights import world as world  # the fixture

NOON = 1_800_000_000.0


class Receiver:
    """A service that notes what it is told; refuses while ``broken``."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.broken = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

            def do_POST(self) -> None:
                data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not outer.broken:
                    outer.heard.append((self.path, data))
                self.send_response(500 if outer.broken else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def address(self, path: str = "") -> str:
        return f"json://127.0.0.1:{self.server.server_address[1]}/{path}"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def event(key: str, **more: Any) -> Event:
    return replace(Event(key, key.partition(":")[0], f"text of {key}"), **more)


def told(path: Path, found: list[Event], receiver: Receiver, config: str | None = None) -> Any:
    to = services(config, {"ATTNWATCH_NOTIFY": receiver.address()} if config is None else {})
    with Ledger(path).held() as ledger:
        return send(found, ledger, to)


def test_an_event_is_told_once_whoever_starts_again(tmp_path: Path, receiver: Receiver) -> None:
    path = tmp_path / "n.json"
    found = [event("new:a"), event("new:b"), event("recovered:c")]
    assert sorted(told(path, found, receiver).sent) == ["new:a", "new:b", "recovered:c"]
    again = told(path, [*found, event("new:d")], receiver)
    assert again.sent == ["new:d"] and len(again.known) == 3
    (_, first), (_, second) = receiver.heard
    assert first["title"] == "attnwatch: 2 new, 1 recovered", "one message for all"
    assert "text of new:a" in first["message"] and "text of recovered:c" in first["message"]
    assert second["title"] == "attnwatch: 1 new"


def test_what_could_not_be_sent_is_sent_later(tmp_path: Path, receiver: Receiver) -> None:
    path = tmp_path / "n.json"
    receiver.broken = True
    assert told(path, [event("new:a")], receiver).failed == ["new:a"]
    receiver.broken = False
    assert told(path, [event("new:a")], receiver).sent == ["new:a"]
    assert len(receiver.heard) == 1


def test_who_dies_while_sending_does_not_tell_twice(tmp_path: Path, receiver: Receiver) -> None:
    path = tmp_path / "n.json"

    class Dies:
        def find(self, tag: str) -> list[Any]:
            return []

        def notify(self, **_: Any) -> bool:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Ledger(path).held() as ledger:
        send([event("new:a")], ledger, Dies())
    again = told(path, [event("new:a")], receiver)
    assert again.unsure == ["new:a"] and again.sent == [] and receiver.heard == []


def test_quiet_hours_hold_back_and_do_not_lose(tmp_path: Path, receiver: Receiver) -> None:
    path = tmp_path / "n.json"
    assert told(path, [event("new:a", quiet=True)], receiver).held == ["new:a"]
    assert receiver.heard == []
    assert told(path, [event("new:a")], receiver).sent == ["new:a"]


def test_owners_are_told_by_their_tag(tmp_path: Path, receiver: Receiver) -> None:
    config = tmp_path / "services.yml"
    lines = [f"  - {receiver.address(name)}:\n      tag: {name}\n" for name in ("kernels", "serving")]
    config.write_text("version: 1\nurls:\n" + "".join(lines), encoding="utf-8")
    found = [event("new:a", owner="kernels"), event("new:b", owner="nobody")]
    told(tmp_path / "n.json", found, receiver, str(config))
    heard = [(path.strip("/"), data["message"]) for path, data in receiver.heard]
    assert [p for p, text in heard if "new:a" in text] == ["kernels"]
    assert sorted(p for p, text in heard if "new:b" in text) == ["kernels", "serving"]


def test_a_name_wakes_nobody_and_shows_what_it_holds() -> None:
    (notice,) = grouped([event("new:a", text="@channel <!here> \u202eevil\nline")])
    assert "@" not in notice.body and "<!" not in notice.body
    assert "\u202e" not in notice.body and len(notice.body.splitlines()) == 2


def test_many_events_are_one_short_message() -> None:
    (notice,) = grouped([event(f"new:{i:04}", severity="high" if i == 900 else "normal") for i in range(1000)])
    assert len(notice.body.splitlines()) == 22 and notice.body.splitlines()[1].startswith("- (high) text of new:0900")
    assert "... and 980 more" in notice.body and len(notice.keys) == 1000


def test_late_is_one_event_until_it_is_over() -> None:
    late = [event("overdue:no nightly run on A")]
    assert over({"overdue:no nightly run on A", "new:a"}, late) == set()
    assert over({"overdue:no nightly run on A", "new:a"}, []) == {"overdue:no nightly run on A"}


def test_addresses_are_checked_and_never_told(tmp_path: Path) -> None:
    (tmp_path / "empty.yml").write_text("version: 1\nurls: []\n", encoding="utf-8")
    for config, text in ((None, ""), (None, "nonsense://secret"), (str(tmp_path / "empty.yml"), "")):
        with pytest.raises(InputError) as refused:
            services(config, {"ATTNWATCH_NOTIFY": text})
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": "attnwatch notices", "version": 9, "told": {}}'])
def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "n.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(AttnwatchError), Ledger(path).held():
        pass
    assert path.read_text(encoding="utf-8") == text


def test_two_at_once_tell_once(tmp_path: Path, receiver: Receiver) -> None:
    path = tmp_path / "n.json"
    threads = [threading.Thread(target=told, args=(path, [event("new:a")], receiver)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(receiver.heard) == 1


@pytest.mark.slow
def test_the_life_of_an_incident_makes_two_events(world: World, tmp_path: Path) -> None:
    world.cost = slower(lambda case, kernels, torch: odd(case) and kernels == "b")
    for kernels in "aaaaab":
        report = world.night(kernels)
    name = report.incidents[0].id
    silent = Policy(defaults=Settings(quiet_hours=QuietHours(0, 24 * 60)))
    with open_store(str(world.folder / "n.db")) as store:
        start = report.started_at
        (found,) = events(store, Policy(), start, set())
        assert (found.key, found.quiet) == (f"new:{name}", False) and report.incidents[0].title in found.text
        (held,) = events(store, silent, start, set())
        assert held.quiet
        triage(store, name, TriageState.FIXED, "back", "attnwatch")
        assert events(store, Policy(), start, set()) == [], "who was told nothing is not told that it is over"
        (back,) = events(store, Policy(), start, {f"new:{name}"})
        assert back.key == f"recovered:{name}"
        (late,) = events(store, Policy(), start + 40 * 86400, set())
        (later,) = events(store, Policy(), start + 41 * 86400, set())
        assert late.kind == "overdue" and late.key == later.key and late.text != later.text


def test_coverage_alarms_come_from_the_report(world: World, tmp_path: Path) -> None:
    alarm = {"kind": "backend", "subject": "sdpa", "state": "new", "text": "sdpa stopped", "since": "r2", "cases": []}
    path = tmp_path / "night.json"
    path.write_text(json.dumps({"run_id": "r2", "coverage": [alarm, {**alarm, "state": "open"}]}), encoding="utf-8")
    with open_store(str(world.folder / "n.db")) as store:
        (found,) = events(store, Policy(), NOON, set(), str(path))
        assert found.key == "coverage:new:backend:sdpa:r2" and found.text == "sdpa stopped"
        for text in ("x", "{}", '{"run_id": "r", "coverage": [3]}'):
            path.write_text(text, encoding="utf-8")
            with pytest.raises(InputError, match=r"night\.json"):
                events(store, Policy(), NOON, set(), str(path))


@pytest.mark.slow
def test_the_command(world: World, receiver: Receiver) -> None:
    world.cost = slower(lambda case, kernels, torch: odd(case) and kernels == "b")
    for kernels in "aab":
        report = world.night(kernels)
    name = report.incidents[0].id
    env = {"PATH": "/usr/bin:/bin", "HOME": str(world.folder), "ATTNWATCH_NOTIFY": receiver.address()}

    def start(*args: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "harness.cli", "notify", "--db", "n.db", *args]
        done = subprocess.run(
            command, cwd=world.folder, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    assert name in start("--dry-run").stdout and receiver.heard == []
    receiver.broken = True
    assert "could not be sent" in start(expect=3).stderr
    receiver.broken = False
    assert f"new:{name}" in json.loads(start("--json").stdout)["sent"]
    assert json.loads(start("--json").stdout)["sent"] == []
    assert len(receiver.heard) == 1 and name in receiver.heard[0][1]["message"]
    assert (world.folder / "n.db.notices.json").exists()
    env.pop("ATTNWATCH_NOTIFY")
    assert "nobody to tell" in start(expect=2).stderr
