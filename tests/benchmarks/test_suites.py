"""The suites as data: what they hold, that importing them is light, that others can add theirs."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.model import InputError, Workload, parse_label
from harness.model.suite import SUITE_VARIABLE, grid, ragged
from harness.model.workloads import read_suite, write_suite
from harness.suites import load_suite, questions, suite_names


def test_importing_suites_imports_no_torch() -> None:
    code = (
        "import sys, harness.suites as s; s.load_suite('full'); print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_full_is_the_union_and_keys_are_unique() -> None:
    cases = load_suite("full")
    keys = {c.key for c in cases}
    assert len(keys) == len(cases)
    for name in suite_names():
        assert {c.key for c in load_suite(name)} <= keys


def test_backends_of_a_workload_stand_together() -> None:
    labels = [(c.benchmark, c.workload.label) for c in load_suite("smoke")]
    assert len(dict.fromkeys(labels)) == sum(a != b for a, b in itertools.pairwise(labels)) + 1


def test_labels_reverse() -> None:
    for case in load_suite("full"):
        assert parse_label(case.workload.label) == case.workload.params


def test_serving_shapes_are_there_by_default() -> None:
    rows = [c.columns for c in load_suite("nightly")]
    assert any(r["operation"] == "paged_attention" and len(set(str(r["q_lens"]).split(","))) > 1 for r in rows)
    assert {r["q_len"] for r in rows if r["benchmark"] == "decode"} >= {1, 2, 4, 8}
    odd = {r["kv_len"] for r in load_suite_rows("boundary")}
    assert {127, 128, 129, 1023, 1024, 1025} <= odd


def load_suite_rows(name: str) -> list[dict[str, object]]:
    return [dict(c.columns) for c in load_suite(name)]


def test_unknown_suite_lists_those_there_are() -> None:
    with pytest.raises(InputError, match=r"no suite 'smok'.*smoke, boundary"):
        load_suite("smok")


def test_grid_needs_lengths() -> None:
    with pytest.raises(ValueError, match="needs kv_len and q_len"):
        grid("attention", batch=1)


def test_ragged_keeps_order() -> None:
    w = ragged("varlen_attention", [(3, 9), (0, 0)], causal=True)
    assert (w.params["q_lens"], w.params["kv_lens"], w.params["batch"], w.params["kv_len"]) == ("3,0", "9,0", 2, 9)


def test_workload_file_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "team.suite.json"
    workloads = [Workload("attention", grid("attention", seq_len=64)[0].params, 7.5)]
    write_suite(path, workloads, "team")
    assert read_suite(path) == ("team", workloads)
    cases = load_suite(str(path))
    assert {c.benchmark for c in cases} == {"team"}
    assert len({c.backend for c in cases}) == len(cases) > 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a workload file"),
        ("[]", "not a workload file of version 1"),
        ('{"format":"attnwatch workloads","version":1,"workloads":[]}', "holds no workloads"),
        ('{"format":"attnwatch workloads","version":1,"workloads":[{"operation":"attention","params":{"a b":1}}]}',
         r"workloads\[0\].params.a b"),
        ('{"format":"attnwatch workloads","version":1,"workloads":[{"operation":"x","params":{},"weight":-1}]}',
         r"workloads\[0\].weight"),
        ('{"format":"attnwatch workloads","version":1,"workloads":[{"operation":"nope","params":{}}]}',
         "no backend implements 'nope'"),
        ("[" * 100_000, "not a workload file"),
    ],
)  # fmt: skip
def test_bad_workload_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.suite.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_suite(str(path))


def test_each_module_holds_one_question_of_its_own_name() -> None:
    names = [q.name for q in questions()]
    assert len(names) == len(set(names))
    folder = Path(__file__).parents[2] / "benchmarks"
    assert set(names) == {p.stem for p in folder.glob("*.py")} - {"__init__", "imported"}


def test_asv_finds_every_operation_of_a_workload_file_under_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "team.suite.json"
    ragged_one = ragged("varlen_attention", [(3, 9), (1, 1)], causal=True)
    write_suite(path, [*grid("attention", seq_len=[8, 9]), ragged_one], "team")
    code = (
        "import benchmarks.imported as m; "
        "print(*sorted(f'{v.__name__}:{len(v.params[0])}' for k, v in vars(m).items() if k.startswith('attn_')))"
    )
    env = {**os.environ, SUITE_VARIABLE: str(path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["attn_attention:2", "attn_varlen_attention:1"]
