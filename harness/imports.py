"""Results from files and folders into the store, whatever wrote them. One reader per format joins :data:`READERS`."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from db.engine import Store, open_store
from db.imported import imported_options, unjudged_compiled, unjudged_machines, values_of_run

from .bundle import read_bundle
from .ingest import Source, ingest
from .model import InputError
from .readers.asv import AsvResults, is_asv
from .readers.base import Foreign, Held, Taken
from .readers.gab import ActionHistory, is_data_js
from .readers.google_benchmark import GoogleBenchmark, is_google_benchmark
from .readers.hyperfine import Hyperfine, is_hyperfine
from .readers.long_csv import LongCsv, is_long_csv
from .readers.nvbench import NvBench, is_nvbench
from .readers.pytest_benchmark import PytestBenchmark, is_pytest_benchmark
from .readers.tritonbench import TritonBench, is_tritonbench

#: A head as long as this tells what a file is.
_HEAD_BYTES = 1 << 16

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Reader:
    """How one format is recognised and read.

    ``sniff`` looks at a file or folder and says whether it is of the format; it must not raise for what is not.
    ``pattern`` is what such files are called in folders that hold other things too. ``read`` gives the records.
    """

    name: str
    pattern: str
    sniff: Callable[[Path], bool]
    read: Callable[[Path], Source]


def is_bundle(path: Path) -> bool:
    """Whether a file begins as a bundle does: with an object that says its ``kind``. An empty one may be one."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return False
    first, newline, _ = head.partition(b"\n")
    if not newline:  # longer than the head, or cut off: what is there must look like one
        return not head or (head[:1] == b"{" and re.search(rb'"kind"\s*:', head) is not None)
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        return re.match(rb'\{\s*"kind"\s*:', first) is not None
    return isinstance(record, dict) and "kind" in record


#: Every format that can be taken in; a new one is one module and one line here.
READERS = (
    Reader("attnwatch bundle", "*.jsonl", is_bundle, read_bundle),
    Reader("asv", "*", is_asv, AsvResults),
    Reader("github-action-benchmark", "*.js*", is_data_js, ActionHistory),
    Reader("pytest-benchmark", "*.json", is_pytest_benchmark, PytestBenchmark),
    Reader("nvbench", "*.json", is_nvbench, NvBench),
    Reader("google-benchmark", "*.json", is_google_benchmark, GoogleBenchmark),
    Reader("hyperfine", "*.json", is_hyperfine, Hyperfine),
    Reader("tritonbench", "*.*", is_tritonbench, TritonBench),
    Reader("csv", "*.csv", is_long_csv, LongCsv),
)


def import_paths(
    store: Store, paths: Sequence[Path], form: str | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Take every file of ``paths`` in one transaction: all of them or, where one is bad, none.

    ``form`` is the name of a format where content shall not decide. Counts are in measurements: ``taken`` are new,
    ``duplicates`` were there, ``dropped`` were left out for ``reasons`` (text -> count).
    """
    found, passed = expand(paths, form)
    sources = [reader.read(path) for path, reader in found]
    options = imported_options(store) if any(isinstance(s, Foreign) for s in sources) else {}
    known = _known_pieces(options)
    held = Held(lambda run_id: values_of_run(store, run_id) if run_id in options else None)
    for source in sources:
        if isinstance(source, Foreign):
            source.known, source.store = known, held
    report = ingest(store, sources, progress=progress)
    foreign = [s for s in sources if isinstance(s, Foreign)]
    reasons = Counter(report.reasons)
    for source in foreign:
        reasons.update(source.dropped)
    skipped = [name for source in foreign for name in source.skipped]
    quiet = {f"{source.path}: holds no records" for source in foreign if source.skipped}
    return {
        "files": [str(path) for path, _ in found],
        "formats": sorted({reader.name for _, reader in found}),
        "taken": report.taken,
        "duplicates": report.duplicates + sum(source.duplicates for source in foreign),
        "dropped": reasons.total(),
        "reasons": dict(reasons),
        "runs": list(dict.fromkeys([*skipped, *report.runs])),
        "warnings": [*passed, *(w for w in report.warnings if w not in quiet)],
    }


def judge_new(store: Store) -> list[str]:
    """Judge history that came from elsewhere and was not judged yet; ids of the incidents told for the first time."""
    told: list[str] = []
    # numpy and scipy are imported only where there is something to judge.
    if compiled := unjudged_compiled(store):
        from .judge.static import judge_static
        from .policy import find_policy

        told += [i.id for i in judge_static(store, compiled, Path.cwd(), find_policy(None)).new_confirmed]
    if unjudged_machines(store):
        from .judge.imported import judge_imported

        told += [incident.id for incident in judge_imported(store)]
    return told


def check_paths(paths: Sequence[Path], form: str | None = None, progress: Progress | None = None) -> dict[str, Any]:
    """What :func:`import_paths` would say for an empty store; nothing outside a temporary folder is written."""
    with tempfile.TemporaryDirectory(prefix="attnwatch-check-") as folder, open_store(Path(folder) / "x.db") as store:
        return import_paths(store, paths, form, progress)


def _known_pieces(imported: Mapping[str, Mapping[str, Any]]) -> dict[str, Taken]:
    """What the store took from files of others, by the digest of their content; ``imported``: run id -> options."""
    out: dict[str, Taken] = {}
    for run_id, options in imported.items():
        digest, rows, dropped = (options.get(k) for k in ("digest", "rows", "dropped"))
        if not isinstance(digest, str) or not isinstance(rows, int) or not isinstance(dropped, str):
            continue
        old = out.get(digest, Taken((), 0, {}))
        counts = Counter(old.dropped)
        counts.update(json.loads(dropped))
        out[digest] = Taken((*old.runs, run_id), old.rows + rows, counts)
    return out


def expand(paths: Sequence[Path], form: str | None = None) -> tuple[list[tuple[Path, Reader]], list[str]]:
    """What there is to read, each with its reader: files as given, and whatever readers claim below folders.

    The second list tells what was passed over. InputError for a path that is not there, a file of no known format,
    and a folder that holds nothing known.
    """
    readers = READERS if form is None else (_named_reader(form),)
    found: dict[Path, tuple[Path, Reader]] = {}
    passed: list[str] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        if form is not None and path.is_file():
            new = [(path, readers[0])]
        elif (reader := _claims(path, readers)) is not None:
            new = [(path, reader)]
        elif path.is_dir():
            new = list(_below(path, readers, passed))
            if not new:
                raise InputError(f"{path}: holds nothing that can be taken in; known are {_known()}")
        else:
            raise InputError(f"{path}: not of a format that can be taken in; known are {_known()}")
        for item in new:
            found.setdefault(item[0].resolve(), item)
    return list(found.values()), passed


def _named_reader(form: str) -> Reader:
    for reader in READERS:
        if form in (reader.name, reader.name.removeprefix("attnwatch ")):
            return reader
    raise InputError(f"--format: {form!r} is none of {', '.join(r.name for r in READERS)}")


def _claims(path: Path, readers: Sequence[Reader]) -> Reader | None:
    """The first reader that claims ``path``."""
    return next((r for r in readers if r.sniff(path)), None)


def _below(folder: Path, readers: Sequence[Reader], passed: list[str]) -> Iterator[tuple[Path, Reader]]:
    root = folder.resolve()
    for place, folders, files in os.walk(folder):
        here = Path(place)
        for name in sorted(folders):
            if not (here / name).is_symlink() and (reader := _named(here / name, readers)) is not None:
                yield here / name, reader
                folders.remove(name)  # it is read whole
        folders.sort()
        for name in sorted(files):
            path = here / name
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                passed.append(f"{path}: a link out of {folder}; it was left out")
            elif (reader := _named(path, readers)) is not None:
                yield path, reader


def _named(path: Path, readers: Sequence[Reader]) -> Reader | None:
    return next((r for r in readers if fnmatchcase(path.name, r.pattern) and r.sniff(path)), None)


def _known() -> str:
    return ", ".join(f"{r.name} ({r.pattern})" for r in READERS)
