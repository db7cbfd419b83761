"""The policy file: which rule decides, and what is said of files that are wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.engine import open_store
from harness.ingest import ingest_bundle
from harness.model import InputError
from harness.policy import Policy, find_policy, read_policy
from harness.policy.check import check
from harness.policy.reading import _Lines
from tests.db.factory import make_case, make_measurement, make_run, write_run
from tests.harness.cli.test_commands import MAIN, ROOT

DECODE = {"backend": "sdpa_math", "operation": "attention", "benchmark": "decode", "q_len": 1, "kv_len": 4096}
PREFILL = {"backend": "segmented", "operation": "attention", "benchmark": "prefill", "q_len": 512, "kv_len": 512}
TEXT = """
minimum_effect = 0.03
owner = "kernels"  # everything else

[shadow]
nights = 14
until = 2027-01-31

[budget]
night = "45m"
confirm = "90s"

[[rule]]
name = "decode"
benchmark = "dec*"
minimum_effect = 0.01
severity = "high"
quiet_hours = "22:30-07:00 Europe/Berlin"

[[rule]]
backend = ["sdpa_*", "flash_attn"]
where = "q_len == 1 and kv_len >= 4096"
owner = "serving"

[[rule]]
metric = "peak_memory_bytes"
minimum_effect = 0.05
"""


def written(folder: Path, text: str) -> str:
    path = folder / "attnwatch.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def at(hour: int, minute: int) -> float:
    return datetime(2027, 1, 10, hour, minute, tzinfo=UTC).timestamp()


def test_the_last_rule_that_matches_decides_each_setting_by_itself(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, TEXT))
    assert policy.minimum_effect(DECODE) == 0.01
    assert policy.minimum_effect(PREFILL) == policy.minimum_effect({}) == 0.03
    assert (policy.settings(DECODE).owner, policy.settings(PREFILL).owner) == ("serving", "kernels")
    assert (policy.severity(DECODE), policy.severity(PREFILL)) == ("high", "normal")
    assert policy.settings({**DECODE, "kv_len": 64}).owner == "kernels"
    assert (policy.night_budget_s, policy.confirm_budget_s) == (2700.0, 90.0)


def test_exact_metrics_stay_exact_unless_a_rule_names_them(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, TEXT))
    assert policy.minimum_effect(DECODE, "operator_calls") == 0.0
    assert policy.minimum_effect(DECODE, "peak_memory_bytes") == 0.05
    assert policy.settings(DECODE, "operator_calls").severity == "high"
    assert Policy().minimum_effect(DECODE) == 0.02
    assert Policy().minimum_effect(DECODE, "status") == 0.0


def test_quiet_hours_pass_midnight_in_their_own_zone(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, TEXT))
    assert [policy.quiet(DECODE, at=at(h, m)) for h, m in ((21, 29), (21, 30), (5, 59), (6, 0))] == [
        False, True, True, False,
    ]  # fmt: skip
    assert not policy.quiet(PREFILL, at=at(23, 0))


def test_shadow_ends_by_itself(tmp_path: Path) -> None:
    shadow = read_policy(written(tmp_path, TEXT)).shadow
    late = datetime(2027, 2, 1, tzinfo=UTC).timestamp()
    assert [shadow.holds(n, late) for n in (0, 13, 14)] == [True, True, False]
    assert shadow.holds(400, datetime(2027, 1, 30, tzinfo=UTC).timestamp())
    assert not Policy().shadow.holds(0, 0.0)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("minimum_efect = 0.1", 1, ["minimum_efect", "did you mean minimum_effect"]),
        ("\nminimum_effect = '2 %'", 2, ["minimum_effect", "0.02 for 2 %"]),
        ("minimum_effect = true", 1, ["minimum_effect"]),
        ("minimum_effect = nan", 1, ["minimum_effect"]),
        ("minimum_effect = 10", 1, ["minimum_effect"]),
        ("severity = 'dire'", 1, ["low, normal, high"]),
        ("[shadow]\nnights = 1.5", 2, ["shadow.nights", "whole number"]),
        ("[shadow]\nuntil = '2027-01-31'", 2, ["shadow.until", "without quotes"]),
        ("shadow = { night = 3 }", 1, ["shadow.night", "did you mean nights"]),
        ("shadow = 14", 1, ["shadow", "must be a table"]),
        ("[budget]\nnight = '5 fortnights'", 2, ["budget.night", "15m"]),
        ("owner = ''", 1, ["owner", "text in quotes"]),
        ("[rule]\nowner = 'a'", 1, ["[[rule]]"]),
        ("[[rule]]\nbackend = 'a'", 1, ["sets nothing", "minimum_effect"]),
        ("[[rule]]\nowner = 'a'\n[[rule]]\n\nbackend = [1]\nowner = 'b'", 5, ["rule.backend"]),
        ("[[rule]]\nowner = 'a'\nbackend = []", 3, ["leave the key out"]),
        ("[[rule]]\nowner = 'a'\nwhere = 'q_len =='", 3, ["rule.where", "cannot read"]),
        ("[[rule]]\nowner = '''\nbackend = 1\n'''\nwhere = '__import__(1)'", 5, ["rule.where"]),
        ("quiet_hours = '22-7'", 1, ["'22:00-07:00'"]),
        ("quiet_hours = '22:00-07:00 Nowhere/Land'", 1, ["no time zone"]),
        ("a = 1\na = ", 2, ["not TOML"]),
    ],
)
def test_faults_name_file_line_key_and_remedy(tmp_path: Path, text: str, line: int, words: list[str]) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=re.escape(f"{path}:{line}: ")) as told:
        read_policy(path)
    for word in words:
        assert word in str(told.value)


@given(before=st.lists(st.sampled_from(["", "# minimum_effect = 9", "[[rule]]\nowner = 'x'", "[budget] # [[rule]]"]),
                       max_size=6, unique=True), extra=st.integers(0, 3))  # fmt: skip
def test_the_line_told_is_the_line_of_the_key(before: list[str], extra: int) -> None:
    lines = "\n".join([*before, *[""] * extra, "[[rule]]", "severity = 'none'"]).splitlines()
    found = _Lines("\n".join(lines)).of("rule", sum(x == "[[rule]]" for x in lines) - 1, "severity")
    assert found == len(lines)


def test_the_file_of_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_policy() == Policy()
    written(tmp_path, "minimum_effect = 0.5")
    assert find_policy().minimum_effect({}) == 0.5
    with pytest.raises(InputError, match="no such file"):
        find_policy("elsewhere.toml")


@pytest.fixture
def stored(tmp_path: Path) -> str:
    bundle = tmp_path / "b.jsonl"
    cases = [make_case(i, backend) for i in range(3) for backend in ("sdpa_math", "segmented")]
    write_run(bundle, make_run(0), [make_measurement(c) for c in cases])
    path = str(tmp_path / "s.db")
    with open_store(path) as store:
        ingest_bundle(store, bundle)
    return path


def test_check_counts_what_rules_match_and_what_they_decide(tmp_path: Path, stored: str) -> None:
    text = """
    [[rule]]
    backend = "sdpa_*"
    minimum_effect = 0.1
    [[rule]]
    where = "q_len >= 129"
    minimum_effect = 0.2
    [[rule]]
    backend = "sdpa_mth"
    where = "q_length == 1"
    owner = "nobody"
    """
    with open_store(stored) as store:
        told = check(read_policy(written(tmp_path, text)), store)
    assert [(r["matches"], r["decides"]) for r in told["rules"]] == [(3, 1), (4, 4), (0, 0)]
    assert told["cases"] == 6
    assert [w.split(": ", 1)[1] for w in told["warnings"]] == [
        "no column 'q_length' is known; did you mean q_len, q_lens, seq_len?",
        "no backend 'sdpa_mth' is known; did you mean sdpa_math?",
    ]  # fmt: skip


def attnwatch(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("ATTNWATCH_")} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", MAIN, *args]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, check=False)


@pytest.mark.slow
def test_the_command_answers_people_and_machines(tmp_path: Path, stored: str) -> None:
    path = written(tmp_path, TEXT)
    done = attnwatch("policy", "check", path, "--db", stored, "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert [r["line"] for r in json.loads(done.stdout)["rules"]] == [13, 20, 25]
    assert json.loads(attnwatch("policy", "check", "--json", cwd=tmp_path).stdout)["cases"] is None
    shown = attnwatch("policy", "check", "--db", stored, cwd=tmp_path)
    assert "decode: benchmark=dec* -> minimum_effect=0.01" in shown.stdout
    written(tmp_path, "minimum = 1")
    wrong = attnwatch("policy", "check", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "attnwatch.toml:1: minimum: unknown key" in wrong.stderr


@pytest.mark.slow
def test_a_wrong_policy_ends_a_night_before_it_began(tmp_path: Path) -> None:
    path = written(tmp_path, "[budget]\nnight = 3")
    done = attnwatch("nightly", "--suite", "smoke", "--policy", path, "--device", "cpu", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path}:2: budget.night" in done.stderr
    assert not (tmp_path / "attnwatch.db").exists()


@pytest.mark.parametrize("digits", ["1" * 5000, "1_1" * 3000, "-" + "9" * 19, "0x" + "f" * 5000])
@pytest.mark.parametrize("key", ["minimum_effect = {}", "owner = {}", "benchmark = [{}]"])
def test_whole_numbers_past_what_toml_has(tmp_path: Path, digits: str, key: str) -> None:
    text = f"[[rule]]\nseverity = 'high'\n{key.format(digits)}\n"
    with pytest.raises(InputError, match=r"attnwatch\.toml:3: .*past 64 bits"):
        read_policy(written(tmp_path, text))


def test_whole_number_in_a_table_out_of_place(tmp_path: Path) -> None:
    text = f"\n[[rule]]\nminimum_effect = {{ a = 0x{'f' * 5000} }}\n"
    with pytest.raises(InputError, match=r"attnwatch\.toml:2: .*past 64 bits"):
        read_policy(written(tmp_path, text))


def test_keys_nested_too_deep(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"attnwatch\.toml: nested too deep"):
        read_policy(written(tmp_path, "minimum_effect" + ".a" * 5000 + " = 1\n"))
