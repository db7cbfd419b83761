"""``python -m harness.demo``: measure a small suite, fill a store with nights made from it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from db.engine import open_store
from db.queries import runs
from harness.model import AttnwatchError, InputError

from . import DECISIONS, FAULTS, NIGHTS, World, fill, measure, shifted


def _clear(path: Path) -> None:
    """Make room for a demonstration; a store of anything else is left alone."""
    if not path.exists():
        return
    with open_store(path, create=False) as store:
        if any(not r.options.get("demo") for r in runs(store, limit=None)):
            raise InputError(f"{path}: holds runs that are no demonstration; give another path with --db")
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Fill the store of the demonstration; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m harness.demo", description=__doc__)
    parser.add_argument("--db", type=Path, default=Path("demo.db"), help="the store to fill")
    parser.add_argument("--nights", type=int, default=NIGHTS, help="how many, the newest ones")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    start = time.time()
    _clear(args.db)
    environment, real, controls = measure(say)
    world = World(
        environment, {m.case.key: m for m in real}, controls, shifted(FAULTS, args.nights), args.seed, args.nights
    )
    decisions = [replace(d, night=d.night + args.nights - NIGHTS, of=d.of + args.nights - NIGHTS) for d in DECISIONS]
    with open_store(args.db) as store:
        reports = fill(store, world, [d for d in decisions if d.of >= 1], say)
    found = sum(len(r.new_confirmed) for r in reports)
    say(f"{args.db}: {args.nights} nights, {len(real)} cases, {found} incidents, {time.time() - start:.0f} s")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except AttnwatchError as error:
        print(f"demo: {error}", file=sys.stderr)
        raise SystemExit(int(error.exit_code)) from None
