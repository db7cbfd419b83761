"""Signals that end a command: like Ctrl-C, unless they are ignored, and as they were afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from harness import cli, measure
from harness.signals import terminable

CODE = """
import signal, sys, time
from harness.signals import terminable
try:
    with terminable():
        print("ready", flush=True)
        sys.stdin.readline()
        print("went on", flush=True)
except KeyboardInterrupt:
    print("ended gently", flush=True)
"""
CAUGHT = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers_are_left_alone() -> Iterator[None]:
    before = [signal.getsignal(s) for s in CAUGHT]
    yield
    assert [signal.getsignal(s) for s in CAUGHT] == before


@pytest.mark.parametrize("number", CAUGHT)
@pytest.mark.parametrize("ignored", [False, True])
def test_a_signal_ends_a_command_gently_unless_it_is_ignored(number: signal.Signals, ignored: bool) -> None:
    def start() -> None:
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)  # as nohup does

    child = subprocess.Popen(
        [sys.executable, "-c", CODE], preexec_fn=start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    said, _ = child.communicate("go\n")
    assert said == ("went on\n" if ignored else "ended gently\n")
    assert child.returncode == 0


def test_handlers_of_others_come_back() -> None:
    mine = [lambda number, frame: None for _ in CAUGHT]
    before = [signal.signal(s, handler) for s, handler in zip(CAUGHT, mine, strict=True)]
    try:
        with terminable(), terminable():
            assert all(signal.getsignal(s) is not m for s, m in zip(CAUGHT, mine, strict=True))
        assert [signal.getsignal(s) for s in CAUGHT] == mine
    finally:
        for s, handler in zip(CAUGHT, before, strict=True):
            signal.signal(s, handler)


def test_nothing_happens_outside_the_main_thread() -> None:
    done: list[bool] = []

    def work() -> None:
        with terminable():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def test_both_ways_in_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def look(*_: object, **__: object) -> int:
        seen.append(all(callable(signal.getsignal(s)) for s in CAUGHT))
        return 0

    monkeypatch.setattr(measure, "_run", look)
    monkeypatch.setattr("harness.cli.app.app", look)
    before = [signal.signal(s, signal.SIG_DFL) for s in CAUGHT]  # under nohup one is ignored, and stays so
    try:
        measure.main(["--suite", "smoke"])
        assert cli._run() == 0
    finally:
        for s, handler in zip(CAUGHT, before, strict=True):
            signal.signal(s, handler)
    assert seen == [True, True]
