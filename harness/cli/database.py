"""db: the store itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.model.terms import InputError

from .common import DbOption, JsonOption, note, print_json

if TYPE_CHECKING:
    from db.copying import TableCopy

ForceOption = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


def upgrade(db: DbOption = None, json_out: JsonOption = False) -> None:
    """Bring the store to the newest schema; a new store is created."""
    from db.engine import open_store
    from db.schema import HEAD

    with open_store(db) as store:
        name = store.name
    if json_out:
        print_json({"store": name, "schema": HEAD})
        return
    note(f"{name} is at the newest schema")


def info(db: DbOption = None, json_out: JsonOption = False) -> None:
    """What the store holds."""
    from db.engine import open_store
    from db.queries import row_counts

    with open_store(db, create=False, read_only=True) as store:
        held = row_counts(store)
    if json_out:
        print_json(held)
        return
    _print_counts(held)


def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help="The store to copy: a path or a URL.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A new or empty store: a path or a URL.")],
    force: ForceOption = False,
    json_out: JsonOption = False,
) -> None:
    """Copy a store, between SQLite and PostgreSQL too; every row is read back and compared.

    All or nothing: broken off, the target is as it was, and the same command begins anew.
    """
    from db.copying import copy_store
    from db.engine import open_store

    with open_store(source, create=False, read_only=True) as have, open_store(target) as put, _shown() as progress:
        done = copy_store(have, put, force=force, progress=progress)
        names = {"source": have.name, "target": put.name}
    _print_copy(names, done, json_out)


def backup(
    to: Annotated[
        Path | None, typer.Argument(metavar="DEST", help="The file; named after the time by default.")
    ] = None,
    db: DbOption = None,
    force: ForceOption = False,
    json_out: JsonOption = False,
) -> None:
    """Write the whole store to one SQLite file and check it; the store may be in use, and on a server."""
    from db.backup import backup as make
    from db.backup import default_name
    from db.engine import open_store

    with open_store(db, create=False, read_only=True) as store, _shown() as progress:
        path, held = make(store, to or Path(default_name()), force=force, progress=progress)
        name = store.name
    if json_out:
        print_json({"store": name, "backup": str(path), "bytes": path.stat().st_size, "rows": held})
        return
    print(path)
    note(f"{name}: {held['runs']:,} runs, {held['measurements']:,} measurements, checked")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `attnwatch db backup` wrote.")],
    db: DbOption = None,
    force: ForceOption = False,
    json_out: JsonOption = False,
) -> None:
    """Put a backup into a new or empty store; --force replaces a full one, and sets a damaged file aside."""
    from db.backup import restore as put_back

    with _shown() as progress:
        name, done = put_back(file, db, force=force, progress=progress)
    _print_copy({"source": str(file), "target": name}, done, json_out)


def prune(
    older: Annotated[
        str,
        typer.Option("--samples-older-than", metavar="TIME", help="Age of the runs, such as 90d, from their start."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be given up and end.")] = False,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Give up the raw samples of old runs; metrics, intervals, statuses and incidents stay.

    Ingesting a pruned run's bundle again changes nothing. There is no way back but a backup.
    """
    from db.engine import open_store
    from db.pruning import prune_samples
    from harness.duration import seconds

    if older.strip()[-1:].isdigit():  # elsewhere seconds, here most likely days: and there is no way back
        raise InputError(f"--samples-older-than: {older!r} has no unit; give 90d or 48h")
    age = seconds(older, "--samples-older-than")
    with open_store(db, create=False, read_only=dry_run) as store:
        found = prune_samples(store, time.time() - age, dry_run=dry_run)
        name = store.name
    if json_out:
        print_json({"store": name, "dry_run": dry_run, **asdict(found)})
        return
    would = "would give up" if dry_run else "gave up"
    print(f"{would} the samples of {found.measurements:,} measurements in {found.runs:,} runs")
    print(f"{found.sample_bytes:,} bytes of samples; store {found.store_bytes_before:,} -> {found.store_bytes_after:,}")


def _print_copy(names: dict[str, str], done: list[TableCopy], json_out: bool) -> None:
    if json_out:
        print_json({**names, "verified": True, "tables": [asdict(x) for x in done]})
        return
    _print_counts({x.name: x.rows for x in done})
    note(f"{names['target']} holds what {names['source']} holds; every row was compared")


def _print_counts(held: dict[str, int]) -> None:
    for name, number in held.items():
        print(f"{name:<14}{number:>12,}")


@contextlib.contextmanager
def _shown() -> Iterator[Callable[[str, int], None] | None]:
    from .progress import bar

    with bar() as shown:
        yield None if shown is None else lambda what, rows: shown.rows(what, rows)
