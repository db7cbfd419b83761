"""comment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.model.terms import Exit, InputError

from .common import DbOption, JsonOption, note, print_json

if TYPE_CHECKING:
    from harness.comment.facts import Facts
    from harness.comment.github import Hub


def comment(
    report: Annotated[
        str | None, typer.Argument(metavar="REPORT", help="What compare --json or nightly --json printed; - is stdin.")
    ] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="A run of the store; the latest one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the comment and write nothing to GitHub.")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Add it to the file $GITHUB_STEP_SUMMARY too.")] = False,
    annotations: Annotated[bool, typer.Option("--annotations", help="Print workflow annotations too.")] = False,
    always: Annotated[bool, typer.Option("--always", help="Comment though there is nothing to tell.")] = False,
    repo: Annotated[
        str | None, typer.Option("--repo", envvar="GITHUB_REPOSITORY", metavar="OWNER/NAME", help="The repository.")
    ] = None,
    pr: Annotated[
        int | None, typer.Option("--pr", metavar="N", min=1, help="The pull request; that of $GITHUB_EVENT_PATH.")
    ] = None,
    sha: Annotated[
        str | None, typer.Option("--sha", metavar="COMMIT", help="What was measured; the head of the pull request.")
    ] = None,
    suite: Annotated[
        str, typer.Option("--suite", metavar="NAME|FILE", help="The suite that the reproduce command names.")
    ] = "full",
    foreign: Annotated[
        bool, typer.Option("--foreign", help="REPORT is the zip that a pull request's own code uploaded: check it.")
    ] = False,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Write the one comment and the check of a pull request, from a report or from the store.

    A clean pull request gets the check alone, unless a comment of ours is there already.
    """
    if foreign and (report is None or dry_run):
        raise InputError("--foreign: needs REPORT and GitHub, which says what pull request it is about")
    if report is not None and run is not None:
        raise InputError("--run: names a run of the store; leave REPORT out")
    from harness.comment.events import Gone

    told: dict[str, Any] = {"comment": None, "check": None}
    if dry_run:
        facts = _facts(report, run, db, suite)
    else:
        try:
            facts, done = _post(report, run, db, suite, repo=repo, pr=pr, sha=sha, always=always, foreign=foreign)
        except Gone as err:
            note(str(err))
            if json_out:
                print_json(told)
            raise typer.Exit(int(Exit.CLEAN)) from None
        told |= done
    _show(facts, told, foreign=foreign, summary=summary, annotations=annotations, json_out=json_out, dry_run=dry_run)
    raise typer.Exit(int(Exit.FINDING if facts.confirmed else Exit.CLEAN))


def _facts(report: str | None, run: str | None, db: str | None, suite: str) -> Facts:
    from functools import partial

    from harness.comment.cases import compare_command

    if report is not None:
        from harness.comment.reading import read_report

        return read_report(report, partial(compare_command, suite=suite))
    from db.engine import open_store
    from harness.comment.nights import from_store

    with open_store(db, create=False) as store:
        return from_store(store, run)


def _post(
    report: str | None,
    run: str | None,
    db: str | None,
    suite: str,
    *,
    repo: str | None,
    pr: int | None,
    sha: str | None,
    always: bool,
    foreign: bool,
) -> tuple[Facts, dict[str, Any]]:
    from harness.comment.events import Event, read_event, resolve
    from harness.comment.github import Hub, access_of, commit
    from harness.comment.upsert import Done, check, upsert

    if repo is None:
        raise InputError("--repo: give OWNER/NAME, or --dry-run to write nothing")
    facts = None if foreign else _facts(report, run, db, suite)
    event = Event(number=pr, sha=commit(sha) if sha else "") if pr is not None else None
    if event is None:
        path = os.environ.get("GITHUB_EVENT_PATH")
        if not path:
            raise InputError("--pr: give the number of the pull request, or --dry-run to write nothing")
        event = read_event(path)
    hub: Hub = Hub(repo, access_of())
    pull = resolve(hub, event)
    measured = commit(sha) if sha else event.sha or pull.head.sha
    if facts is None:
        facts = _foreign(str(report), suite, pull.number, measured)
    # A commit that was pushed over is still checked; the comment belongs to the newest one.
    stale = measured != pull.head.sha
    done = Done("stale") if stale else upsert(hub, pull, facts, foreign=foreign, always=always)
    checked = check(hub, measured, facts, foreign=foreign)
    return facts, {"comment": done.as_plain(), "check": checked, "pull": pull.number, "sha": measured}


def _foreign(path: str, suite: str, number: int, sha: str) -> Facts:
    from functools import partial

    from harness.comment.artifact import read_artifact
    from harness.comment.cases import compare_command
    from harness.comment.reading import from_json

    text = read_artifact(path, number=number, sha=sha)
    return from_json(text, path, partial(compare_command, suite=suite, trusted=False))


def _show(
    facts: Facts,
    told: dict[str, Any],
    *,
    foreign: bool,
    summary: bool,
    annotations: bool,
    json_out: bool,
    dry_run: bool,
) -> None:
    from harness.comment.annotations import annotated
    from harness.comment.render import render, title
    from harness.comment.upsert import conclusion

    body = render(facts, foreign=foreign)
    if summary:
        _add_summary(body)
    if annotations:
        for line in annotated(facts):
            note(line)
    if json_out:
        plain = {"state": facts.state.value, "title": title(facts), "conclusion": conclusion(facts), "body": body}
        print_json({**plain, **told})
    elif dry_run:
        print(body, end="")
    else:
        note(f"comment {told['comment']['action']}, {told['check']['kind']} {told['check']['conclusion']}")


def _add_summary(body: str) -> None:
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        raise InputError("--summary: GITHUB_STEP_SUMMARY names no file; GitHub Actions sets it")
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(body)
