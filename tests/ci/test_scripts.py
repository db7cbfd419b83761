"""The shell parts of the workflows: run for real, with stand-ins only for GitHub's command and for docker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / "scripts" / "ci"
SHA = "a" * 40


class Box:
    """A folder with commands that note how they were called and answer what they are told to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.calls = folder, folder / "bin", folder / "calls.jsonl"
        self.bin.mkdir()

    def command(self, name: str, answers: dict[str, str] | None = None, code: int = 0) -> None:
        """A stand-in: answers with the text whose key is part of its arguments, and ends with ``code``."""
        (self.bin / f"{name}.json").write_text(json.dumps([answers or {}, code]))
        path = self.bin / name
        path.write_text(
            f"#!{sys.executable}\n"
            "import json, os, sys\n"
            f"answers, code = json.load(open({str(self.bin / name) + '.json'!r}))\n"
            f"with open({str(self.calls)!r}, 'a') as f:\n"
            f"    f.write(json.dumps([{name!r}, sys.argv[1:]]) + '\\n')\n"
            "line = ' '.join(sys.argv[1:])\n"
            "sys.stdout.write(next((text for key, text in answers.items() if key in line), ''))\n"
            "sys.exit(code)\n"
        )
        path.chmod(0o755)

    def made(self) -> list[list[str]]:
        """Arguments of the calls so far, the command first."""
        if not self.calls.exists():
            return []
        return [[name, *args] for name, args in map(json.loads, self.calls.read_text().splitlines())]

    def run(self, script: str, *args: str, expect: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        held = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder), "GITHUB_REPOSITORY": "o/r", **env}
        done = subprocess.run(
            [str(CI / script), *args],
            cwd=self.folder,
            env=held,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_every_script_is_sound_and_can_be_started() -> None:
    scripts = sorted(CI.glob("*.sh"))
    assert scripts
    for script in scripts:
        assert os.access(script, os.X_OK), f"{script} is not executable"
        assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_a_heartbeat_in_time_is_quiet(box: Box) -> None:
    box.command("gh", {"artifacts": "1000000", "issue list": ""})
    assert "last heartbeat 2 h ago" in box.run("watchdog.sh", NOW=str(1_000_000 + 7300)).stdout
    assert [c[1:3] for c in box.made()] == [["api", box.made()[0][2]], ["issue", "list"]]


@pytest.mark.parametrize(("newest", "text"), [("1000000", "27 h old"), ("0", "no heartbeat was ever written")])
def test_a_missed_heartbeat_opens_one_issue(box: Box, newest: str, text: str) -> None:
    box.command("gh", {"artifacts": newest, "issue list": ""})
    told = box.run("watchdog.sh", expect=1, NOW=str(1_000_000 + 27 * 3600), MAX_AGE_HOURS="25")
    assert text in told.stdout
    assert [c[1:3] for c in box.made()].count(["issue", "create"]) == 1
    box.command("gh", {"artifacts": newest, "issue list": "12"})
    box.run("watchdog.sh", expect=1, NOW=str(1_000_000 + 28 * 3600), MAX_AGE_HOURS="25")
    assert [c[1:3] for c in box.made()].count(["issue", "create"]) == 1, "told twice"


def test_a_nightly_that_runs_again_closes_the_issue(box: Box) -> None:
    box.command("gh", {"artifacts": "1000000", "issue list": "12"})
    box.run("watchdog.sh", NOW="1000060")
    assert ["gh", "issue", "close", "12"] in [c[:4] for c in box.made()]


def test_a_github_that_does_not_answer_is_infrastructure(box: Box) -> None:
    box.command("gh", code=1)
    box.run("watchdog.sh", expect=3)
    box.run("fetch_report.sh", "r.zip", expect=3, RUN_ID="5")
    box.run("check_state.sh", "queued", expect=3, HEAD_SHA=SHA)


def test_the_report_of_a_run_is_fetched_closed(box: Box) -> None:
    box.command("gh", {"artifacts?name=attnwatch-report": "77 1234\n", "artifacts/77/zip": "PK-bytes"})
    box.run("fetch_report.sh", "r.zip", RUN_ID="5")
    assert (box.folder / "r.zip").read_text() == "PK-bytes"


@pytest.mark.parametrize(
    ("answer", "run", "message"),
    [
        ("", "5", "uploaded no report"),
        ("77 1\n78 1\n", "5", "more than one report"),
        ("77 99999999\n", "5", "16 MiB are taken"),
        ("77 1\n", "5; rm -rf /", "is no number"),
    ],
)
def test_what_is_out_of_order_is_not_fetched(box: Box, answer: str, run: str, message: str) -> None:
    box.command("gh", {"artifacts?name": answer})
    assert message in box.run("fetch_report.sh", "r.zip", expect=2, RUN_ID=run).stderr
    assert not (box.folder / "r.zip").exists()


def test_the_state_of_the_check(box: Box) -> None:
    box.command("gh")
    box.run("check_state.sh", "queued", HEAD_SHA=SHA)
    box.run("check_state.sh", "failed", HEAD_SHA=SHA)
    first, second = box.made()
    assert "status=queued" in first and f"head_sha={SHA}" in first and "external_id=attnwatch" in first
    assert "conclusion=neutral" in second
    box.run("check_state.sh", "great", expect=2, HEAD_SHA=SHA)
    box.run("check_state.sh", "queued", expect=2, HEAD_SHA="main")


@pytest.fixture
def repo(box: Box) -> tuple[Box, str]:
    """A repository whose topic branch has one commit on top of main; returns its head."""
    git(box.folder, "init", "-q", "-b", "main", "repo")
    here = box.folder / "repo"
    (here / "kernel.py").write_text("x = 1\n")
    git(here, "add", ".")
    git(here, "commit", "-qm", "base")
    git(here, "checkout", "-q", "-b", "topic")
    return box, str(here)


def git(folder: Path | str, *args: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    return subprocess.run(["git", *who, *args], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def change(here: str, name: str) -> str:
    path = Path(here) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed\n")
    git(here, "add", ".")
    git(here, "commit", "-qm", "change")
    return git(here, "rev-parse", "HEAD")


def bench(box: Box, here: str, head: str, expect: int = 0, **env: str) -> Path:
    out = box.folder / "out"
    held = {"SOURCE": here, "OUT": str(out), "NUMBER": "7", "HEAD_SHA": head, "BASE_REF": "main", **env}
    box.run("pr_bench.sh", expect=expect, ATTNWATCH=str(box.bin / "attnwatch"), **held)
    return out


@pytest.mark.parametrize("code", [0, 1])
def test_a_pull_request_is_measured_from_its_merge_base(repo: tuple[Box, str], code: int) -> None:
    box, here = repo
    head, base = change(here, "kernel.py"), git(here, "rev-parse", "main")
    box.command("attnwatch", {"compare": '{"cases": []}'}, code)
    out = bench(box, here, head, WHERE="kv_len > 1; $(touch x)")
    (call,) = box.made()
    assert call[:7] == ["attnwatch", "compare", "--base", base, "--head", head, "--affected"]
    assert call[-2:] == ["--where", "kv_len > 1; $(touch x)"]
    assert json.loads((out / "claim.json").read_text()) == {"number": 7, "sha": head}
    assert (out / "report.json").read_text() == '{"cases": []}'


def test_pages_alone_measure_nothing_and_say_so(repo: tuple[Box, str]) -> None:
    from harness.comment.reading import read_report

    box, here = repo
    change(here, "docs/page.md")
    head = change(here, "README.md")
    # The real command: what is measured is decided in one place, and it needs no kernels to see that there is nothing.
    (box.bin / "attnwatch").write_text(f'#!/bin/sh\nexec {sys.executable} -m harness.cli "$@"\n')
    (box.bin / "attnwatch").chmod(0o755)
    facts = read_report(str(bench(box, here, head) / "report.json"))
    assert facts.state == "unchanged" and facts.cases == 0
    box.command("attnwatch", code=9)
    bench(box, here, change(here, "sub/README.md.py"), expect=9)


@pytest.mark.parametrize("code", [0, 1, 3])
def test_triton_kernels_that_changed_are_compiled_into_the_report(repo: tuple[Box, str], code: int) -> None:
    box, here = repo
    base, head = git(here, "rev-parse", "main"), change(here, "kernels/paged/triton_append.py")
    report = 'case "$1" in compare) echo \'{"cases": []}\';; static) exit ' + f"{code};; esac\n"
    (box.bin / "attnwatch").write_text(f'#!/bin/sh\necho "$@" >>{box.folder}/asked\n{report}')
    (box.bin / "attnwatch").chmod(0o755)
    out = bench(box, here, head)
    asked = (box.folder / "asked").read_text().splitlines()
    assert asked[1] == f"static --base {base} --head {head} --add-to {out}/report.json"
    bench(box, here, head, WHERE="kv_len > 1")
    assert len((box.folder / "asked").read_text().splitlines()) == 3, "some cases alone were asked for"


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_night_compiles_first_where_it_is_asked_to(box: Box, code: int) -> None:
    script = f'#!/bin/sh\necho "$@" >>{box.folder}/asked\ncase "$1" in static) exit {code};; esac\n'
    (box.bin / "attnwatch").write_text(script)
    (box.bin / "attnwatch").chmod(0o755)
    env = {"ATTNWATCH": str(box.bin / "attnwatch"), "OUT": str(box.folder / "out"), "STATIC_GRID": "full"}
    told = box.run("nightly.sh", expect=1 if code == 1 else 0, **env).stdout
    asked = (box.folder / "asked").read_text().splitlines()
    assert asked[0].startswith("static --grid full --reason nightly") and asked[1].startswith("nightly")
    assert ("were not compiled" in told) == (code == 3)


def test_what_could_not_be_measured_is_no_report(repo: tuple[Box, str]) -> None:
    box, here = repo
    head = change(here, "kernel.py")
    box.command("attnwatch", code=3)
    bench(box, here, head, expect=3)
    bench(box, here, head, expect=2, NUMBER="7; x")
    bench(box, here, "topic", expect=2)


def test_the_container_has_no_network_no_secrets_and_no_rights(repo: tuple[Box, str]) -> None:
    box, here = repo
    head = change(here, "kernel.py")
    box.command("docker")
    image = "image@sha256:" + "b" * 64
    env = {"CHECKOUT": here, "OUT": str(box.folder / "out"), "HEAD_SHA": head, "NUMBER": "7", "SECRET": "hush"}
    box.run("bench_in_container.sh", IMAGE=image, GITHUB_TOKEN="hush", **env)
    (call,) = box.made()
    for flag in ("--rm", "--network=none", "--cap-drop=ALL", "--read-only", "--security-opt=no-new-privileges"):
        assert flag in call
    volumes = [call[i + 1] for i, word in enumerate(call) if word == "--volume"]
    assert volumes == [f"{here}:/source:ro", f"{box.folder}/out:/out"]
    passed = {call[i + 1].partition("=")[0] for i, word in enumerate(call) if word == "--env"}
    assert not passed & {"SECRET", "GITHUB_TOKEN", "PATH"} and "hush" not in " ".join(call)
    box.run("bench_in_container.sh", IMAGE="image:latest", expect=2, **env)
    box.run("bench_in_container.sh", IMAGE=image, expect=2, **{**env, "HEAD_SHA": SHA})


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_a_night_beats_only_where_it_judged(box: Box, code: int) -> None:
    box.command("attnwatch", {"nightly": "{}", "comment": "page"}, code)
    out = box.folder / "out"
    box.run("nightly.sh", expect=code, ATTNWATCH=str(box.bin / "attnwatch"), OUT=str(out), SUITE="smoke", BUDGET="1m")
    assert (out / "heartbeat.json").exists() == (code <= 1)
    if code <= 1:
        assert json.loads((out / "heartbeat.json").read_text())["exit"] == code
        assert (out / "night.md").read_text() == "page"
        assert box.made()[-1] == ["attnwatch", "db", "backup", "--force", f"{out}/store.db"]
    assert box.made()[0][:4] == ["attnwatch", "nightly", "--suite", "smoke"]


@pytest.mark.parametrize("code", [0, 3])
def test_a_night_tells_monitors_and_does_not_wait_for_them(box: Box, code: int) -> None:
    box.command("attnwatch", code=code)
    env = {"ATTNWATCH": str(box.bin / "attnwatch"), "OUT": str(box.folder / "out")}
    box.run("nightly.sh", expect=code, TEXTFILE="/x/a.prom", OTEL_EXPORTER_OTLP_ENDPOINT="http://c", **env)
    asked = [c[1:] for c in box.made()]
    assert ["metrics", "--textfile", "/x/a.prom"] in asked, "a night that failed is worth a figure too"
    assert (["traces"] in asked) == (code == 0)


def test_a_monitor_that_is_away_turns_no_night_red(box: Box) -> None:
    script = '#!/bin/sh\ncase "$1" in metrics|traces) exit 3;; esac\n'
    (box.bin / "attnwatch").write_text(script)
    (box.bin / "attnwatch").chmod(0o755)
    env = {"ATTNWATCH": str(box.bin / "attnwatch"), "OUT": str(box.folder / "out")}
    told = box.run("nightly.sh", TEXTFILE="/x/a.prom", OTEL_EXPORTER_OTLP_ENDPOINT="http://c", **env).stdout
    assert "no metrics were written" in told and "no trace was sent" in told


def test_the_browser_gets_the_name_that_tests_look_for(box: Box) -> None:
    box.command("npm")
    box.command("google-chrome")
    path = box.folder / "chromium"
    box.run("system.sh", BROWSER_PATH=str(path), SUDO="")
    assert path.resolve() == (box.bin / "google-chrome").resolve()
    assert box.made()[-1][:2] == ["npm", "install"]


def test_notices_ask_the_report_only_where_there_is_one(box: Box) -> None:
    box.command("attnwatch")
    out, env = box.folder / "out", {"ATTNWATCH": str(box.bin / "attnwatch")}
    out.mkdir()
    box.run("notify.sh", OUT=str(out), SERVICES="s.yml", **env)
    (out / "heartbeat.json").write_text("{}")
    box.run("notify.sh", OUT=str(out), **env)
    assert box.made() == [["attnwatch", "notify", "--config", "s.yml"], ["attnwatch", "notify", f"{out}/night.json"]]


@pytest.mark.parametrize(
    ("comments", "where"),
    [
        ([], ""),
        ([("MEMBER", "/attnwatch bench --where kv_len % 128 == 1")], "kv_len % 128 == 1"),
        ([("OWNER", "/attnwatch bench --where a == 1\r\nmore text")], "a == 1"),
        ([("COLLABORATOR", "/attnwatch bench --where a == 1"), ("MEMBER", "/attnwatch bench")], ""),
        ([("MEMBER", "/attnwatch bench --where a == 1"), ("CONTRIBUTOR", "/attnwatch bench --where b == 2")], "a == 1"),
        ([("NONE", "/attnwatch bench --where a == 1")], ""),
        ([("MEMBER", "/attnwatch benchmark --where a == 1"), ("MEMBER", "please /attnwatch bench")], ""),
        ([("MEMBER", "/attnwatch bench --upload secrets")], ""),
        ([("MEMBER", "/attnwatch bench --where x\nwhere=y")], "x"),
    ],
)
def test_what_a_collaborator_asked(box: Box, comments: list[tuple[str, str]], where: str) -> None:
    """With jq itself in the place of GitHub's command, whose filter is the same language."""
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed; apt-get install jq")
    page = box.folder / "page.json"
    page.write_text(json.dumps([{"author_association": who, "body": body} for who, body in comments]))
    gh = box.bin / "gh"
    gh.write_text(f'#!/usr/bin/env bash\nexec jq -r "${{@: -1}}" {page}\n')
    gh.chmod(0o755)
    assert box.run("asked.sh", NUMBER="7").stdout == f"where={where}\n"


def test_a_commit_is_measured_again(box: Box) -> None:
    box.command("gh", {"pulls/7": SHA, f"runs?head_sha={SHA}": "55 completed\n"})
    box.run("rerun.sh", NUMBER="7")
    assert ["gh", "api", "--silent", "--method", "POST", "repos/o/r/actions/runs/55/rerun"] in box.made()
    assert "status=queued" in box.made()[-1]
    box.command("gh", {"pulls/7": SHA, f"runs?head_sha={SHA}": "55 in_progress\n"})
    assert "still at work" in box.run("rerun.sh", expect=2, NUMBER="7").stderr
    box.command("gh", {"pulls/7": SHA})
    assert "never measured" in box.run("rerun.sh", expect=2, NUMBER="7").stderr
    box.run("rerun.sh", expect=2, NUMBER="7; x")
    box.run("asked.sh", expect=2, NUMBER="x")
