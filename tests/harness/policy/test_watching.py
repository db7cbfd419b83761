"""A policy that changes while a night is under way."""

from __future__ import annotations

import os
from pathlib import Path

from harness.policy import Policy, read_policy
from harness.policy.watching import PolicyWatch


def test_what_the_file_says_now_is_in_force(tmp_path: Path) -> None:
    path = tmp_path / "attnwatch.toml"
    path.write_text("minimum_effect = 0.05\n")
    told: list[str] = []
    first = read_policy(str(path))
    watch = PolicyWatch(first, told.append)
    assert watch.current().minimum_effect({}) == 0.05
    assert watch.current() is watch.current(), "a file that did not change is not read again"
    path.write_text("minimum_effect = 0.07\n")
    os.utime(path, ns=(1, 1))
    now = watch.current()
    assert now.minimum_effect({}) == 0.07 and now.version != first.version
    assert told == [f"{path}: policy {first.version} -> {now.version}"]


def test_a_wrong_file_leaves_the_last_good_policy_and_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "attnwatch.toml"
    path.write_text("minimum_effect = 0.05\n")
    told: list[str] = []
    watch = PolicyWatch(read_policy(str(path)), told.append)
    path.write_text("minimum_efect = 0.5\n")
    assert [watch.current().minimum_effect({}) for _ in range(3)] == [0.05] * 3
    assert len(told) == 1 and "stays in force" in told[0] and "minimum_efect" in told[0]
    path.unlink()
    assert watch.current().minimum_effect({}) == 0.05 and watch.current().minimum_effect({}) == 0.05
    assert len(told) == 2 and "stays in force" in told[1]
    path.write_text("minimum_effect = 0.06\n")
    assert watch.current().minimum_effect({}) == 0.06


def test_versions_follow_the_text_and_no_file_is_no_trouble(tmp_path: Path) -> None:
    a, b = (tmp_path / f"{n}.toml" for n in "ab")
    a.write_text('owner = "x"\n')
    b.write_text('owner = "x"\n')
    assert read_policy(str(a)).version == read_policy(str(b)).version != ""
    none = Policy()
    assert PolicyWatch(none).current() is none and none.version == ""
