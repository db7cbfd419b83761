"""What tests start in processes of their own."""

from __future__ import annotations

import sys

from db.engine import open_store
from harness.ingest import ingest_bundle
from harness.model import AttnwatchError


def ingest(database: str, bundle: str, chunk: str = "128") -> int:
    """Ingest, saying a line on standard output per chunk and waiting for one on standard input; the exit code."""

    def progress(done: int) -> None:
        if len(sys.argv) > 3:
            print(done, flush=True)
            sys.stdin.readline()

    try:
        with open_store(database) as store:
            report = ingest_bundle(store, bundle, chunk=int(chunk), progress=progress)
    except AttnwatchError as error:
        print(error)
        return int(error.exit_code)
    print(f"taken {report.taken} duplicates {report.duplicates} dropped {report.dropped}")
    return 0


def ingest_when_told(database: str, bundle: str) -> int:
    """Ingest in small chunks once a line arrives; the exit code."""
    print("ready", flush=True)
    sys.stdin.readline()
    sys.argv[3:] = []
    return ingest(database, bundle, "5")


def open_when_told(database: str) -> None:
    """Open a store once a line arrives."""
    print("ready", flush=True)
    sys.stdin.readline()
    open_store(database).close()
    print("open", flush=True)
