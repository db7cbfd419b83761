"""What a command works on: suites, globs, expressions and backends of one's own; names of suites."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import InputError, Workload
from harness.model.params import PARAMETERS
from harness.model.suite import SUITES, grid
from harness.model.workloads import suite_name, write_suite
from harness.selection import select
from harness.suites import asv_keys, load_suite, outside_modules, suite_names
from harness.sweep import ordered


def test_globs_keep_whole_workloads_of_the_backends_named() -> None:
    every = load_suite("smoke")
    kept = select("smoke", ["sdpa_m*", "segmented"])
    assert {c.backend for c in kept} == {"sdpa_math", "segmented"}
    assert {c.key for c in kept} == {c.key for c in every if c.backend in ("sdpa_math", "segmented")}
    assert select("smoke") == every


def test_where_narrows_and_names_what_is_wrong() -> None:
    kept = select("smoke", ["sdpa_math"], "kv_len % 128 == 1 and causal")
    assert kept and all(c.columns["kv_len"] % 128 == 1 and c.columns["causal"] for c in kept)  # type: ignore[operator]
    with pytest.raises(InputError, match="no case of suite 'smoke' satisfies"):
        select("smoke", (), "kv_len == 3")
    with pytest.raises(InputError, match="q_len"):
        select("smoke", (), "qlen == 3")


def test_a_function_is_put_to_every_workload_as_a_backend_of_its_own() -> None:
    workloads = {(c.benchmark, c.workload.label) for c in load_suite("smoke")}
    only = select("smoke", ["pkg.mod:fn"])
    assert {c.backend for c in only} == {"pkg.mod:fn"}
    assert {(c.benchmark, c.workload.label) for c in only} == workloads and len(only) == len(workloads)
    both = select("smoke", ["sdpa_math", "pkg.mod:fn"], "benchmark == 'decode'")
    assert {c.backend for c in both} == {"sdpa_math", "pkg.mod:fn"}
    assert ordered(both)[0].workload == ordered(both)[1].workload


def test_a_glob_that_matches_nothing_tells_close_names() -> None:
    with pytest.raises(InputError, match=r"nothing in suite 'smoke' matches 'sdpa_mth'; there are .*sdpa_math"):
        select("smoke", ["sdpa_math", "sdpa_mth"])


def test_modules_of_backends_that_are_not_ours() -> None:
    assert outside_modules(["sdpa_math", "segmented"]) == ()
    assert outside_modules(["sdpa_math", "pkg.mod:fn", "pkg.other:fn", "alone:fn", "unheard_of"]) == ("alone", "pkg")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("smoke", "smoke"),
        ("calls.suite.json", "calls"),
        ("/a/b/calls.suite.json", "calls"),
        ("./calls.json", "calls"),
        ("my[1]*.suite.json", "my[1]*"),
        ("v1.2.suite.json", "v1.2"),
        ("v1.2", "v1.2"),
        ("dir/plain", "plain"),
    ],
)
def test_a_suite_has_one_name_everywhere(text: str, name: str) -> None:
    assert suite_name(text) == name


def test_asv_runs_all_of_ours_and_of_files(tmp_path: Path) -> None:
    for name in set(suite_names()) & set(SUITES):
        assert asv_keys(name) == {c.key for c in load_suite(name)}
    path = tmp_path / "calls.suite.json"
    write_suite(path, grid("attention", seq_len=[8, 9]), "calls")
    assert asv_keys(str(path)) == {c.key for c in load_suite(str(path))} != set()


def test_parameters_have_one_order() -> None:
    workload: Workload = grid("attention", causal=True, window=4, kv_len=8, q_len=4, batch=2, other=1)[0]
    names = list(workload.params)
    assert names[-1] == "other" and names[:-1] == [p for p in PARAMETERS if p in workload.params]
