"""``attnwatch workload import``: a log of calls becomes a suite that measuring takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.model import InputError
from harness.model.params import PARAMETERS
from harness.model.workloads import read_suite
from harness.workload_import import import_calls

from .test_commands import Run, run  # noqa: F401  (a fixture)

CALLS = """{"q_len": 1, "kv_len": 100, "heads_q": 4, "causal": true, "count": 3}
{"seq_len": 64, "dtype": "bfloat16"}

{"causal": true, "kv_len": 100, "q_len": 1, "heads_q": 4, "count": 2.5}
{"operation": "varlen_attention", "batch": 2, "q_len": 5, "kv_len": 9, "q_lens": "5,1", "kv_lens": "9,3"}
"""


def test_equal_calls_are_counted_and_the_suite_can_be_swept(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "calls.jsonl").write_text(CALLS)
    done = run("workload", "import", "calls.jsonl", "--json")
    assert done.code == 0 and not done.err
    assert json.loads(done.out) == {"path": "calls.suite.json", "workloads": 3, "calls": 7.5}
    name, workloads = read_suite(tmp_path / "calls.suite.json")
    assert name == "calls" and [w.weight for w in workloads] == [5.5, 1.0, 1.0]
    assert workloads[0].params["kv_len"] == 100 and workloads[0].params["dtype"] == "float32"
    listed = run("measure", "--suite", "calls.suite.json", "--list", "--json")
    cases = json.loads(listed.out)["cases"]
    assert {c["benchmark"] for c in cases} == {"calls"}
    assert {c["operation"] for c in cases} == {"attention", "varlen_attention"}


def test_csv_and_json_lines_say_the_same(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "a.jsonl").write_text('{"q_len": 1, "kv_len": 8, "causal": true, "softcap": 2.0, "count": 4}\n')
    (tmp_path / "b.csv").write_text("q_len,kv_len,causal,softcap,count\n1,8,true,2.0,4\n")
    for file in ("a.jsonl", "b.csv"):
        done = run("workload", "import", file, "--out", f"{file}.suite.json", "--name", "same")
        assert done.code == 0 and not done.out and "1 workloads from 4 calls" in done.err
    assert read_suite(tmp_path / "a.jsonl.suite.json") == read_suite(tmp_path / "b.csv.suite.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"seq_len": 2}\n{"q_len": 1.5, "kv_len": 2}\n', "bad.jsonl:2: field 'q_len': must be a whole number"),
        ('{"q_len": true, "kv_len": 2}\n', "bad.jsonl:1: field 'q_len'"),
        ('{"q_len": 1, "kvlen": 2}\n', "bad.jsonl:1: unknown field 'kvlen'"),
        ('{"q_len": 1}\n', "bad.jsonl:1: a workload needs kv_len"),
        ('{"seq_len": 4, "causal": "yes"}\n', "bad.jsonl:1: field 'causal': must be true or false"),
        ('{"seq_len": 4, "dtype": 16}\n', "bad.jsonl:1: field 'dtype': must be text"),
        ('{"seq_len": 4, "softcap": "much"}\n', "bad.jsonl:1: field 'softcap': must be a number"),
        ('{"seq_len": 4, "count": 0}\n', "bad.jsonl:1: field 'count'"),
        ('{"seq_len": 4, "operation": 4}\n', "bad.jsonl:1: field 'operation'"),
        ('{"seq_len": [4]}\n', "bad.jsonl:1: field 'seq_len': must be a scalar"),
        ("[4]\n", "bad.jsonl:1: not a JSON object"),
        ("{\n", "bad.jsonl:1: not a JSON object"),
        ("", "bad.jsonl: holds no calls"),
    ],
)  # fmt: skip
def test_bad_logs_name_file_line_and_field_and_write_nothing(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        import_calls(str(path))
    assert words in str(caught.value)


def test_errors_of_the_command_write_no_file(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "bad.csv").write_text("q_len,kv_len\n1,x\n")
    done = run("workload", "import", "bad.csv", "--json")
    assert done.code == 2 and done.err.startswith("attnwatch: bad.csv:2: field 'kv_len'") and not done.out
    assert not list(tmp_path.glob("*.suite.json"))
    (tmp_path / "ok.jsonl").write_text('{"seq_len": 4}\n')
    done = run("workload", "import", "ok.jsonl", "--out", "no/such/x.suite.json")
    assert done.code in (2, 3) and done.err.startswith("attnwatch: no/such/x.suite.json"), done


def test_every_shared_parameter_is_known(tmp_path: Path) -> None:
    sample = {int: 2, str: "x", bool: True, float: 1.5}
    texts = {
        "dtype": "float16",
        "kv_dtype": "float16",
        "direction": "bwd",
        "causal_alignment": "top_left",
        "q_lens": "2,1",
        "kv_lens": "0,2",
    }
    row = {name: texts.get(name, sample[kind]) for name, kind in PARAMETERS.items()}
    path = tmp_path / "all.jsonl"
    path.write_text(json.dumps(row) + "\n")
    (workload,) = import_calls(str(path))
    assert workload.params == row
