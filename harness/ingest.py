"""Taking results into a store: all that is given or nothing, any number of times."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Protocol

from db.attempts import BadMeasurement
from db.engine import Store
from db.importer import Importer
from harness.bundle import BundleLine, BundleReader, Controls, check_line, read_bundle
from harness.model import InputError, Measurement, Run, RunEnd

#: Records held in memory at a time; more of them leave the processor's cache and are slower.
CHUNK = 128


@dataclass
class IngestReport:
    """What one ingest did.

    ``taken`` measurements are new in the store; ``duplicates`` were there already; ``dropped`` were left out, with
    ``reasons`` (text -> count). ``runs`` are the ids of the runs in the file, in order.
    """

    taken: int = 0
    dropped: int = 0
    duplicates: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Source(Protocol):
    """Records of one file (or folder) in order, runs before what belongs to them.

    ``warnings`` is complete once the iteration has ended. Bad input raises InputError while it is iterated.
    """

    path: Path
    warnings: list[str]

    def __iter__(self) -> Iterator[BundleLine]: ...


def ingest_bundle(
    store: Store,
    path: str | os.PathLike[str],
    *,
    chunk: int = CHUNK,
    progress: Callable[[int], None] | None = None,
) -> IngestReport:
    """Store the records of the bundle at ``path``; see :func:`ingest`."""
    return ingest(store, [read_bundle(path)], chunk=chunk, progress=progress)


def ingest(
    store: Store,
    sources: Sequence[Source],
    *,
    chunk: int = CHUNK,
    progress: Callable[[int], None] | None = None,
) -> IngestReport:
    """Store the records of all ``sources`` in one transaction; one report over all of them.

    A process killed on the way, a full disk or a bad line in any of them leaves the store as it was, and the ingest
    can be repeated. A last line that was cut off is left out with a warning. ``progress`` is called with the number
    of records written so far, within the transaction. Raises InputError naming ``file:line`` and field, and
    InfrastructureError where the store fails.
    """
    report = IngestReport()
    importer: Importer | None = None
    runs: dict[str, None] = {}
    with ExitStack() as stack:
        stack.enter_context(_no_cycle_search())
        waiting: list[tuple[Path, BundleLine]] = []
        done = 0

        def flush() -> None:
            nonlocal importer, done
            # Other writers wait from here on, so a small bundle is read and checked before.
            if importer is None:
                importer = Importer(stack.enter_context(store.write()))
            for path, batch in groupby(waiting, key=lambda item: item[0]):
                _write(importer, [line for _, line in batch], path)
            done += len(waiting)
            waiting.clear()
            if progress is not None:
                progress(done)

        for source in sources:
            empty, checked = True, isinstance(source, BundleReader)
            for line in source:
                empty = False
                if not checked:
                    _check(source.path, line)
                waiting.append((source.path, line))
                runs[line.run_id] = None
                if len(waiting) >= chunk:
                    flush()
            report.warnings += source.warnings
            if empty:
                report.warnings.append(f"{source.path}: holds no records")
        if waiting:
            flush()
    report.runs = list(runs)
    if importer is not None:
        report.taken, report.duplicates = importer.tally.taken, importer.tally.duplicates
        report.dropped, report.reasons = importer.tally.dropped, dict(importer.tally.reasons)
        report.warnings += importer.tally.notes
    return report


@contextmanager
def _no_cycle_search() -> Iterator[None]:
    # Records hold no cycles and go as soon as they are written; looking for cycles takes a third of the time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check(path: Path, line: BundleLine) -> None:
    """What holds for a bundle holds for every other source."""
    try:
        check_line(line)
    except ValueError as error:
        raise InputError(f"{path}:{line.number}: {error}") from error


def _write(importer: Importer, lines: list[BundleLine], path: os.PathLike[str]) -> None:
    batch: list[tuple[str, Measurement]] = []
    numbers: list[int] = []
    ends: list[tuple[int, RunEnd]] = []
    number = 0
    try:
        for line in lines:
            record, number = line.record, line.number
            if isinstance(record, Run):
                importer.run(record)
                continue
            if not importer.knows(line.run_id):
                raise InputError(
                    f"field run_id: {line.run_id!r} is not stored and no run record comes before this line"
                )
            if isinstance(record, Measurement):
                batch.append((line.run_id, record))
                numbers.append(number)
            elif isinstance(record, Controls):
                importer.controls(line.run_id, record.values)
            else:
                ends.append((number, record))
        importer.measurements(batch)
        for number, end in ends:  # noqa: B007
            importer.end(end)
    except InputError as error:
        if isinstance(error, BadMeasurement):
            number = numbers[error.position]
        raise InputError(f"{os.fspath(path)}:{number}: {error}") from error
