"""bisect."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from harness.model.terms import Exit, InputError

from .common import DbOption, DeviceOption, JsonOption, note, print_json


def bisect(
    context: typer.Context,
    incident: Annotated[str, typer.Argument(metavar="ID")],
    package: Annotated[str | None, typer.Option("--package", help="Search versions of a package instead.")] = None,
    versions: Annotated[
        str | None, typer.Option("--versions", metavar="A B C", help="Its versions, the good one first.")
    ] = None,
    device: DeviceOption = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Find the commit of kernels (or the version of a package) that brought an incident. Goes on where it was."""
    from db.engine import open_store
    from harness.bisecting import by_commit, by_version, search
    from harness.builds import build_worktree
    from harness.device import refuse_foreign_processes, resolve_device
    from harness.locks import sweep_lock

    if (package is None) != (versions is None):
        raise InputError("--package and --versions belong together")
    if context.args and versions is None:
        raise InputError(f"unexpected argument {context.args[0]!r}; --package NAME --versions A B C lists versions")
    chosen, repo = resolve_device(device), Path.cwd()
    refuse_foreign_processes(chosen)
    folder = repo / ".asv" / "bisect"
    with open_store(db, create=False, read_only=True) as store:
        if package is not None and versions is not None:
            listed = " ".join([versions, *context.args]).replace(",", " ").split()
            root = str(build_worktree(repo).root)
            found = by_version(store, incident, package, listed, root, chosen, folder / "environments")
        else:
            found = by_commit(store, incident, repo, chosen)
    candidates, cases, status = found
    note(f"{len(candidates) - 1} candidates, {len(cases)} cases")
    memory = folder / f"{incident}{'-' + package if package else ''}.json"
    with sweep_lock(chosen, f"bisect {incident}"):
        answer = search(candidates, cases, status, memory, note)
    if json_out:
        print_json(asdict(answer))
    else:
        word = "brought by" if answer.decided else "one of these brought it"
        print(f"{word}: " + "; ".join(answer.texts))
        print(f"{answer.measured} measurements")
    raise typer.Exit(int(Exit.CLEAN))
