"""What is fuzzed: bytes in, and records or an error that names the file comes out. Anything else is a finding."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.bundle import read_bundle
from harness.model import InputError
from harness.readers.asv import AsvResults, is_asv
from harness.sweep import resume_state

_FOLDER = tempfile.TemporaryDirectory(prefix="attnwatch-fuzz-")


def bundle(data: bytes) -> None:
    """Both readers of bundles: the one that ingests, and the one of bare images that resumes."""
    path = Path(_FOLDER.name) / "b.jsonl"
    path.write_bytes(data)
    for read in (lambda: list(read_bundle(path)), lambda: resume_state(path)):
        try:
            read()
        except InputError as error:
            assert "b.jsonl" in str(error)


def asv(data: bytes) -> None:
    """A result file, and the same file in a directory beside a ``benchmarks.json``."""
    folder = Path(_FOLDER.name) / "results"
    (folder / "box").mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.json").write_text('{"version": 2}')
    path = folder / "box" / "x.json"
    path.write_bytes(data)
    for given in (path, folder):
        if not is_asv(given):
            continue
        try:
            for line in AsvResults(given):
                assert line.run_id
        except InputError as error:
            assert "results" in str(error)


TARGETS: dict[str, Callable[[bytes], None]] = {"bundle": bundle, "asv": asv}
