"""Results from files and folders into the store, whatever wrote them. One reader per format joins here."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from db.engine import Store, open_store

from .ingest import IngestReport, ingest_bundle
from .model import InputError

BUNDLE_SUFFIX = ".jsonl"


def import_paths(store: Store, paths: Sequence[Path]) -> dict[str, Any]:
    """Take every file of ``paths`` (folders are searched for bundles); one report over all of them."""
    return _merged([(path, ingest_bundle(store, path)) for path in expand(paths)])


def check_paths(paths: Sequence[Path]) -> dict[str, Any]:
    """What :func:`import_paths` would say for an empty store; nothing outside a temporary folder is written."""
    with tempfile.TemporaryDirectory(prefix="attnwatch-check-") as folder, open_store(Path(folder) / "x.db") as store:
        return import_paths(store, paths)


def expand(paths: Sequence[Path]) -> list[Path]:
    """Files as given, folders as the bundles below them. InputError where there is nothing to read."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            below = sorted(p for p in path.rglob(f"*{BUNDLE_SUFFIX}") if p.is_file())
            if not below:
                raise InputError(f"{path}: holds no bundles (*{BUNDLE_SUFFIX})")
            found += below
        elif path.exists():
            found.append(path)
        else:
            raise InputError(f"{path}: no such file or folder")
    return found


def _merged(reports: Sequence[tuple[Path, IngestReport]]) -> dict[str, Any]:
    reasons: Counter[str] = Counter()
    for _, report in reports:
        reasons.update(report.reasons)
    return {
        "files": [str(path) for path, _ in reports],
        "taken": sum(r.taken for _, r in reports),
        "duplicates": sum(r.duplicates for _, r in reports),
        "dropped": sum(r.dropped for _, r in reports),
        "reasons": dict(reasons),
        "runs": [run for _, r in reports for run in r.runs],
        "warnings": [w for _, r in reports for w in r.warnings],
    }
