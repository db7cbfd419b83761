"""Both sides of a comparison run on the same cores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from harness.measuring.timing.cores import chosen, on_same_cores


def topology(folder: Path, siblings: dict[int, str]) -> Path:
    for cpu, text in siblings.items():
        (folder / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (folder / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(text + "\n")
    return folder


def test_one_processor_to_a_physical_core(tmp_path: Path) -> None:
    beside = topology(tmp_path / "a", {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3", 4: "4,5", 5: "4,5"})
    apart = topology(tmp_path / "b", {0: "0,3", 1: "1,4", 2: "2,5", 3: "0,3", 4: "1,4", 5: "2,5"})
    assert chosen(2, set(range(6)), beside) == {2, 4}
    assert chosen(2, set(range(6)), apart) == {1, 2}
    # Of a core of which only the second processor may be used, that one.
    assert chosen(2, {1, 2, 3, 4, 5}, beside) == {2, 4}
    assert chosen(2, {1, 3, 5}, beside) == {3, 5}


def test_no_choice_where_every_core_is_needed_or_nothing_is_known(tmp_path: Path) -> None:
    beside = topology(tmp_path, {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"})
    assert chosen(2, {0, 1, 2, 3}, beside) == set()  # as many threads as cores
    assert chosen(3, {0, 1, 2, 3}, beside) == set()
    assert chosen(1, set(), beside) == set()
    assert chosen(0, {0, 1}, beside) == set()
    assert chosen(1, {4, 7}, tmp_path / "nothing") == {7}
    (tmp_path / "cpu0" / "topology" / "thread_siblings_list").write_text("what\n")
    assert chosen(2, {0, 1, 2, 3}, beside) == set()


def places() -> list[set[int]]:
    return [os.sched_getaffinity(int(t.name)) for t in Path("/proc/self/task").iterdir()]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_all_threads_are_held_and_let_go() -> None:
    usable, threads = os.sched_getaffinity(0), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        wanted = chosen(1, usable)
        with on_same_cores():
            held = places()
        after = places()
    finally:
        torch.set_num_threads(threads)
    assert wanted and all(cores == wanted for cores in held)
    assert all(cores == usable for cores in after)
