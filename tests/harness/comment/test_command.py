"""`attnwatch comment` as people and workflows start it."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.comment.annotations import annotated
from harness.comment.facts import Facts, Group

from . import samples
from .server import HEAD, TOKEN, GitHub, serving


@pytest.fixture
def server() -> Iterator[GitHub]:
    with serving() as hub:
        hub.add_pull()
        yield hub


def write(folder: Path, report: Any, name: str = "report.json") -> str:
    path = folder / name
    path.write_text(json.dumps(report), encoding="utf-8")
    return str(path)


def run(
    folder: Path, *args: str, server: GitHub | None = None, expect: int = 0, **env: str
) -> subprocess.CompletedProcess[str]:
    """The command in a folder of its own, with an environment that holds what a workflow's would."""
    held = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "ATTNWATCH_GITHUB_PAUSE": "0", **env}
    if server is not None:
        held |= {"GITHUB_API_URL": server.url, "GITHUB_TOKEN": TOKEN, "GITHUB_REPOSITORY": "o/r"}
    command = [sys.executable, "-m", "harness.cli", "comment", *args]
    done = subprocess.run(command, cwd=folder, env=held, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == expect, done.stdout + done.stderr
    assert TOKEN not in done.stdout + done.stderr
    return done


def test_a_dry_run_prints_the_comment_and_needs_no_github(tmp_path: Path) -> None:
    path = write(tmp_path, samples.one_regression())
    done = run(tmp_path, path, "--dry-run", "--suite", "my.suite.json", expect=1)
    assert done.stdout.startswith("**1 regression**: slower where `q_len == 1")
    assert "--suite my.suite.json" in done.stdout and done.stderr == ""
    assert done.stdout == run(tmp_path, path, "--dry-run", "--suite", "my.suite.json", expect=1).stdout


def test_json_alone_on_standard_output(tmp_path: Path) -> None:
    path = write(tmp_path, samples.one_regression())
    told = json.loads(run(tmp_path, path, "--dry-run", "--json", "--annotations", expect=1).stdout)
    assert (told["state"], told["conclusion"], told["comment"]) == ("adverse", "failure", None)
    assert told["body"].startswith("**1 regression**")


def test_summary_and_annotations(tmp_path: Path) -> None:
    path, summary = write(tmp_path, samples.one_regression()), tmp_path / "summary.md"
    summary.write_text("before\n", encoding="utf-8")
    args = (path, "--dry-run", "--summary", "--annotations")
    done = run(tmp_path, *args, expect=1, GITHUB_STEP_SUMMARY=str(summary))
    assert summary.read_text(encoding="utf-8") == "before\n" + done.stdout
    assert done.stderr.startswith("::error title=attnwatch::slower where q_len == 1 and kv_len %25 128 != 0, 1.2 times")
    assert "GITHUB_STEP_SUMMARY" in run(tmp_path, path, "--dry-run", "--summary", expect=2).stderr


def test_an_annotation_is_one_command() -> None:
    group = Group("slower", "latency_s", "a\n::error::x\r%0A\u2028", (), confirmed=False)
    (line,) = annotated(Facts(groups=(group,) * 1))
    assert line.startswith("::warning ") and len(line.splitlines()) == 1 and "%0A" not in line.replace("%250A", "")


def test_the_comment_and_the_check_are_written(tmp_path: Path, server: GitHub) -> None:
    bad, good = write(tmp_path, samples.one_regression()), write(tmp_path, samples.clean(), "good.json")
    told = json.loads(run(tmp_path, bad, "--pr", "7", "--json", server=server, expect=1).stdout)
    assert told["comment"]["action"] == "created" and told["check"]["conclusion"] == "failure"
    done = run(tmp_path, good, "--pr", "7", server=server)
    assert done.stderr == "comment updated, check success\n" and done.stdout == ""
    assert server.mine()[0]["body"].startswith("**Recovered.**")
    assert [c["conclusion"] for c in server.checks] == ["success"]


def test_a_commit_that_was_pushed_over_gets_its_check_and_no_comment(tmp_path: Path, server: GitHub) -> None:
    path = write(tmp_path, samples.one_regression())
    run(tmp_path, path, "--pr", "7", "--sha", "9" * 40, server=server, expect=1)
    assert server.mine() == [] and server.checks[0]["head_sha"] == "9" * 40


def test_the_pull_request_comes_from_the_event(tmp_path: Path, server: GitHub) -> None:
    server.add_pull(8, "3" * 40, "fork/r", "topic")
    path = write(tmp_path, samples.one_regression())
    head = {"head_sha": "3" * 40, "head_branch": "topic", "head_repository": {"full_name": "fork/r"}}
    event = write(tmp_path, {"workflow_run": {**head, "pull_requests": []}}, "event.json")
    told = json.loads(run(tmp_path, path, "--json", server=server, expect=1, GITHUB_EVENT_PATH=event).stdout)
    assert (told["pull"], told["sha"]) == (8, "3" * 40)
    event = write(tmp_path, {"pull_request": {"number": 7, "head": {"sha": HEAD}}}, "event.json")
    told = json.loads(run(tmp_path, path, "--json", server=server, expect=1, GITHUB_EVENT_PATH=event).stdout)
    assert (told["pull"], told["sha"]) == (7, HEAD)
    event = write(tmp_path, {"workflow_run": {**head, "head_sha": "5" * 40}}, "event.json")
    gone = run(tmp_path, path, "--json", server=server, GITHUB_EVENT_PATH=event)
    assert "no open pull request" in gone.stderr and json.loads(gone.stdout)["comment"] is None
    for spoilt in ({}, [], {"workflow_run": {**head, "head_sha": "x"}}, {"pull_request": {}}):
        event = write(tmp_path, spoilt, "event.json")
        run(tmp_path, path, server=server, expect=2, GITHUB_EVENT_PATH=event)


def test_what_a_fork_uploads_is_checked_and_labelled(tmp_path: Path, server: GitHub) -> None:
    path = tmp_path / "artifact.zip"
    report = samples.one_regression() | {"base": "LD_PRELOAD=/tmp/x.so"}
    for number, expect in ((7, 1), (8, 2)):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("report.json", json.dumps(report))
            archive.writestr("claim.json", json.dumps({"number": number, "sha": HEAD}))
        done = run(tmp_path, str(path), "--foreign", "--pr", "7", server=server, expect=expect)
        if expect == 2:
            assert "claims another pull request" in done.stderr
    (mine,) = server.mine()
    assert "produced by the pull request's own code" in mine["body"]
    assert "attnwatch compare" not in mine["body"], "a stranger's command"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--dry-run", "--foreign"), "--foreign: needs REPORT"),
        (("nothing.json", "--dry-run"), "nothing.json: no such file"),
        (("report.json", "--run", "r1", "--dry-run"), "--run: names a run of the store"),
        (("report.json",), "--repo: give OWNER/NAME"),
        (("report.json", "--repo", "o/r"), "--pr: give the number"),
        (("report.json", "--repo", "o/r", "--pr", "7"), "set GITHUB_TOKEN"),
        (("report.json", "--repo", "o/r", "--pr", "7", "--sha", "main"), "--sha: 'main' is no full commit"),
        (("report.json", "--repo", "o r", "--pr", "7"), "is not OWNER/NAME"),
        (("--dry-run", "--db", "nothing.db"), "nothing.db"),
    ],
)
def test_usage(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    write(tmp_path, samples.clean())
    env = {"GITHUB_TOKEN": "t"} if "o r" in args else {}
    assert message in run(tmp_path, *args, expect=2, **env).stderr


def test_github_that_refuses_is_infrastructure(tmp_path: Path, server: GitHub) -> None:
    path = write(tmp_path, samples.clean())
    env = {"GITHUB_API_URL": server.url, "GITHUB_TOKEN": "wrong"}
    told = run(tmp_path, path, "--repo", "o/r", "--pr", "7", expect=3, **env).stderr
    assert "the token is not valid" in told
