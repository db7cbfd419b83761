"""Reading a bundle that is being written: its head, and how far it is, without reading it over and over."""

from __future__ import annotations

from pathlib import Path

from harness.bundle import BundleWriter
from harness.bundle_lines import BundleCounter, head_of
from harness.model import Status
from tests.db.factory import make_case, make_measurement, make_run, write_run


def test_the_head_is_the_run_or_nothing(tmp_path: Path) -> None:
    path = write_run(tmp_path / "b.jsonl", make_run(3), [])
    assert head_of(path) == make_run(3)
    for name, content in {
        "none": None, "empty": b"", "cut": path.read_bytes()[:100], "text": b"hello\n", "list": b"[1]\n",
        "newer": b'{"kind":"run","schema":1,"id":"x","future":1}\n', "other": b'{"kind":"end","run_id":"x"}\n',
    }.items():  # fmt: skip
        other = tmp_path / name
        if content is not None:
            other.write_bytes(content)
        assert head_of(other) is None, name
    assert head_of(tmp_path) is None


def test_a_counter_reads_only_what_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    counter = BundleCounter(path)
    assert (counter.look().done, counter.last) == (0, None), "not begun yet"
    with BundleWriter(path) as writer:
        writer.run(make_run())
        writer.measurement("run-000", make_measurement(make_case(0), status=Status.CRASHED))
        assert counter.look().done == 1
        # What was read is not read again: spoiling it must make no difference.
        with path.open("r+b") as file:
            file.write(b"#" * 20)
        writer.measurement("run-000", make_measurement(make_case(0), attempt=2))
        writer.measurement("run-000", make_measurement(make_case(1)))
        writer.measurement("run-000", make_measurement(make_case(2), status=Status.DESELECTED))
    counter.look()
    assert (counter.done, counter.measured, counter.last) == (3, 2, make_case(2))
    assert counter.look().done == 3


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole.jsonl", make_run(), [make_measurement(make_case(i)) for i in range(2)])
    data = whole.read_bytes()
    path = tmp_path / "b.jsonl"
    counter = BundleCounter(path)
    seen = []
    for end in range(0, len(data) + 1, 97):
        path.write_bytes(data[:end])
        seen.append(counter.look().done)
    path.write_bytes(data)
    seen.append(counter.look().done)
    assert seen == sorted(seen) and seen[-1] == 2 and set(seen) == {0, 1, 2}


def test_lines_of_others_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_bytes(b'nonsense\n[]\n{"kind":"measurement"}\n{"kind":"measurement","case":{"x":1},"status":"ok"}\n3\n')
    assert BundleCounter(path).look().done == 0
