"""bisect."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.model.canonical import content_key
from harness.model.terms import Exit, InputError

from .common import DbOption, DeviceOption, JsonOption, SuiteOption, WhereOption, note, print_json

if TYPE_CHECKING:
    from harness.bisecting import Candidate
    from harness.model import Case


def bisect(
    context: typer.Context,
    incident: Annotated[str | None, typer.Argument(metavar="ID")] = None,
    package: Annotated[str | None, typer.Option("--package", help="Search versions of a package instead.")] = None,
    versions: Annotated[
        str | None, typer.Option("--versions", metavar="A B C", help="Its versions, the good one first.")
    ] = None,
    good: Annotated[
        str | None, typer.Option("--good", metavar="REF", help="Without ID: commits after this one,")
    ] = None,
    bad: Annotated[str | None, typer.Option("--bad", metavar="REF", help="up to this one.")] = None,
    side: Annotated[
        str | None, typer.Option("--side", metavar="PROGRAM", help="Given a commit, prints an interpreter that has it.")
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="FILE", help="What compare --json found slower, good to bad.")
    ] = None,
    repo: Annotated[Path, typer.Option("--repo", metavar="PATH", help="Where the commits are.")] = Path(),
    suite: SuiteOption = "smoke",
    backend: Annotated[list[str] | None, typer.Option("--backend", metavar="GLOB|MODULE:FUNCTION")] = None,
    where: WhereOption = None,
    device: DeviceOption = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Find the commit of kernels (or the version of a package) that brought an incident. Goes on where it was.

    Without ID: the commit between --good and --bad that made the cases of a comparison slower, in any repository.
    """
    from db.engine import open_store
    from harness.bisecting import by_commit, by_version, search
    from harness.builds import build_worktree
    from harness.device import refuse_foreign_processes, resolve_device
    from harness.locks import sweep_lock

    if (package is None) != (versions is None):
        raise InputError("--package and --versions belong together")
    if context.args and versions is None:
        raise InputError(f"unexpected argument {context.args[0]!r}; --package NAME --versions A B C lists versions")
    apart = (good, bad, side, report)
    if (incident is None) == (None in apart) or (incident is not None and any(apart)):
        raise InputError("give the ID of an incident, or else all of --good, --bad, --side and --report")
    chosen, folder = resolve_device(device), Path.cwd() / ".asv" / "bisect"
    refuse_foreign_processes(chosen)
    if incident is None:
        assert good and bad and side and report
        name = content_key(str(repo.resolve()), good, bad)[:16]
        found = _apart(repo, (good, bad), side, report, (suite, backend, where), chosen)
    else:
        name = f"{incident}{'-' + package if package else ''}"
        with open_store(db, create=False, read_only=True) as store:
            if package is not None and versions is not None:
                listed = " ".join([versions, *context.args]).replace(",", " ").split()
                root = str(build_worktree(repo).root)
                found = by_version(store, incident, package, listed, root, chosen, folder / "environments")
            else:
                found = by_commit(store, incident, repo, chosen)
    candidates, cases, status = found
    note(f"{len(candidates) - 1} candidates, {len(cases)} cases")
    with sweep_lock(chosen, f"bisect {incident or bad}"):
        answer = search(candidates, cases, status, folder / f"{name}.json", note)
    if json_out:
        print_json(asdict(answer))
    else:
        word = "brought by" if answer.decided else "one of these brought it"
        print(f"{word}: " + "; ".join(answer.texts))
        print(f"{answer.measured} measurements")
    raise typer.Exit(int(Exit.CLEAN))


def _apart(
    repo: Path, ends: tuple[str, str], side: str, report: str,
    asked: tuple[str, list[str] | None, str | None], device: str,
) -> tuple[list[Candidate], list[Case], bool]:  # fmt: skip
    """Candidates and cases of a comparison of any repository."""
    from harness.bisecting import adverse_cases, by_side
    from harness.selection import select

    suite, backend, where = asked
    cases, status = adverse_cases(select(suite, backend or (), where), report)
    return by_side(repo, *ends, side, device), cases, status
