"""What every reader of others' results does: pieces of a file become runs, and every row is accounted for.

A *row* is one number of the source. It is ``taken`` (a measurement of its own, or a metric of one) or ``dropped`` for
a reason that is counted. A piece whose content the store already took is not read again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from harness.bundle import BundleLine
from harness.model import (
    Case,
    Environment,
    Machine,
    Measurement,
    Reason,
    Revision,
    Run,
    RunEnd,
    Scalar,
    Status,
    Value,
    content_key,
)
from harness.model.bounds import POSITIVE_SUFFIX, wrong_in

from .files import Fields, digest_of, parse_json, read_file
from .fitting import clip, impossible

AGAIN = "stands twice in one run"
_MOST_REASONS = 100
CHANGED = "differs from what was taken from this source before, which is kept"


@dataclass(frozen=True)
class Taken:
    """What the store holds of one piece: its runs, how many rows they took, and what was dropped."""

    runs: tuple[str, ...]
    rows: int
    dropped: Mapping[str, int]


@dataclass
class Group:
    """One run of a source with its measurements, and the rows that were left out."""

    run: Run
    measurements: list[Measurement]
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Piece:
    """A part of a source that is taken whole; ``read`` is called only where ``digest`` is not known yet."""

    digest: str
    read: Callable[[], Sequence[Group]]


class Held:
    """What the store has of runs that are read again, and what this import gave of runs so far.

    ``ask`` gives the values of a stored run, case key -> metric -> value, or None for a run that is not stored.
    """

    def __init__(self, ask: Callable[[str], Mapping[str, Mapping[str, float]] | None] = lambda run_id: None) -> None:
        self._ask = ask
        self._run = ""
        self._values: Mapping[str, Mapping[str, float]] = {}
        self._keys: Collection[str] = ()
        self._given: dict[str, bytearray] = {}
        #: What this import took already, by digest: a copy of a file is there twice.
        self.pieces: dict[str, Taken] = {}

    def values(self, run_id: str) -> Mapping[str, Mapping[str, float]]:
        """What the store holds of the run at hand."""
        self._at(run_id)
        return self._values

    def emitted(self, run_id: str) -> Collection[str]:
        """Keys of cases that an earlier part of this import gave for the run at hand."""
        self._at(run_id)
        return self._keys

    def give(self, run_id: str, measurements: Sequence[Measurement]) -> None:
        """Note what is given, in 32 bytes for each measurement."""
        self._given.setdefault(run_id, bytearray()).extend(b"".join(bytes.fromhex(m.case.key) for m in measurements))
        self._run = ""

    def _at(self, run_id: str) -> None:
        if run_id != self._run:
            self._run = run_id
            self._values = self._ask(run_id) or {}
            packed = bytes(self._given.get(run_id, b""))
            self._keys = {packed[i : i + 32].hex() for i in range(0, len(packed), 32)}


class Foreign:
    """A source of records (see :class:`harness.ingest.Source`) made of pieces.

    ``known`` and ``store`` are set before iterating: what the store took already, by digest, and how to ask it for
    one run. Afterwards ``dropped`` counts reasons, ``duplicates`` the rows that were known, and ``skipped`` names the
    runs of pieces that were.
    """

    #: Name of the format, on runs, machines and rulers.
    format: ClassVar[str] = ""
    #: Whether the reader itself sees to it that numbers are what records can hold; others are looked at one by one.
    checked: ClassVar[bool] = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: Mapping[str, Taken] = {}
        self.warnings: list[str] = []
        self.dropped: Counter[str] = Counter()
        self.duplicates = 0
        self.skipped: list[str] = []
        self.store = Held()

    def pieces(self) -> Iterator[Piece]:
        """The pieces in order of time. Raises InputError naming file and field."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[BundleLine]:
        self.warnings, self.dropped, self.duplicates, self.skipped = [], Counter(), 0, []
        for piece in self.pieces():
            old = self.known.get(piece.digest) or self.store.pieces.get(piece.digest)
            if old is not None:
                self.duplicates += old.rows
                self.dropped.update(old.dropped)
                self.skipped += old.runs
                continue
            runs, rows, dropped = list[str](), 0, Counter[str]()
            for group in piece.read():
                yield from self._lines(group, piece.digest)
                runs.append(group.run.id)
                rows += len(group.measurements)
                dropped.update(group.dropped)
            self.store.pieces[piece.digest] = Taken(tuple(runs), rows, dropped)

    def _lines(self, group: Group, digest: str) -> Iterator[BundleLine]:
        keys = [m.case.key for m in group.measurements]
        store, run_id = self.store, group.run.id
        if not (
            self.checked and len(set(keys)) == len(keys) and not store.values(run_id) and not store.emitted(run_id)
        ):
            group.measurements = self._new(group)
        self.dropped.update(group.dropped)
        count = len(group.measurements)
        told: dict[str, Scalar] = {
            "format": self.format, "digest": digest, "rows": count,
            "dropped": _reasons(group.dropped),
        }  # fmt: skip
        self.store.give(group.run.id, group.measurements)
        run = replace(group.run, planned=count, options={**group.run.options, **told})
        yield BundleLine(1, "run", run.id, run)
        for m in group.measurements:
            yield BundleLine(1, "measurement", run.id, m)
        ended = max((m.started_at + m.duration_s for m in group.measurements), default=0.0)
        yield BundleLine(1, "end", run.id, RunEnd(run.id, max(ended, run.started_at), True, count))

    def _new(self, group: Group) -> list[Measurement]:
        """The measurements that can be rows of the store and are none yet; the others are counted."""
        out: dict[str, Measurement] = {}
        values, emitted = self.store.values(group.run.id), self.store.emitted(group.run.id)
        for m in group.measurements:
            key = m.case.key
            held = values.get(key)
            if (wrong := wrong_in(m)) is not None:
                group.dropped[f"field {wrong.field[:80]} cannot be what it is"] += 1
            elif key in emitted or key in out:
                group.dropped[AGAIN] += 1
            elif held is None:
                out[key] = m
            elif held == {name: v.value for name, v in m.metrics.items()}:
                self.duplicates += 1
            else:
                group.dropped[CHANGED] += 1
        return list(out.values())

    def run(
        self, *key: object, suite: str, revision: Revision, machine: str, started_at: float,
        details: Mapping[str, Scalar] | None = None, python: str = "", packages: Mapping[str, str] | None = None,
        kind: str = "imported", options: Mapping[str, Scalar] | None = None,
    ) -> Run:  # fmt: skip
        """A run that ``key`` identifies for ever. ``machine`` names what it ran on, as far as the source says.

        The ruler is the format: what others measured never joins a series of ours.
        """
        ruler = f"imported:{self.format}"
        device = Machine(kind, clip(machine) or f"unknown ({self.format})", "unknown", "", "", dict(details or {}))
        environment = Environment(device, python=python, packages=dict(packages or {}), ruler_version=ruler)
        return Run(
            f"{self.format}-{content_key('import', self.format, *key)[:20]}", suite, revision, environment, started_at,
            Reason.BACKFILL, 0, ruler, dict(options or {}),
        )  # fmt: skip


class Collector:
    """Numbers of one run, gathered to one measurement per case."""

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self._made: dict[str, Measurement] = {}
        self._seen: Counter[tuple[str, str]] = Counter()

    def add(
        self, case: Case, metric: str, value: Value, *, started_at: float, samples: Sequence[float] = (),
        telemetry: Mapping[str, Scalar] | None = None, duration_s: float = 0.0,
    ) -> None:  # fmt: skip
        """Take one row; what cannot be is counted in ``dropped``.

        A number that its case has already becomes a case of its own: ``occurrence=2``.
        """
        if (why := impossible(metric, value.value)) is not None:
            self.dropped[why] += 1
            return
        self._seen[case.key, metric] += 1
        if (number := self._seen[case.key, metric]) > 1:
            work = case.workload
            case = replace(case, workload=replace(work, params={**work.params, "occurrence": number}))
        held = self._made.get(case.key)
        if held is not None and metric in held.metrics:  # a parameter of the source has that name
            self.dropped[AGAIN] += 1
            return
        if held is None:
            held = self._made[case.key] = Measurement(
                case, Status.OK, started_at, duration_s=duration_s, telemetry=dict(telemetry or {})
            )
        else:
            held.telemetry.update(telemetry or {})
        held.metrics[metric] = value
        if samples:
            held.samples[metric] = [s for s in samples if s > 0 or not metric.endswith(POSITIVE_SUFFIX)]

    def group(self, run: Run) -> Group:
        """Everything as one run."""
        return Group(run, list(self._made.values()), self.dropped)


class JsonFile(Foreign):
    """A source that is one JSON document, taken whole."""

    def pieces(self) -> Iterator[Piece]:
        place, data = str(self.path), read_file(self.path)
        digest = digest_of(self.format.encode(), data)
        yield Piece(digest, lambda: self.runs(Fields(parse_json(data, place), place), digest))

    def runs(self, top: Fields, digest: str) -> list[Group]:
        """The runs of the document. Raises InputError naming file and field."""
        raise NotImplementedError


def _reasons(dropped: Counter[str]) -> str:
    if len(dropped) > _MOST_REASONS:
        common = Counter(dict(dropped.most_common(_MOST_REASONS)))
        dropped = common + Counter({"other reasons": dropped.total() - common.total()})
    return json.dumps(dropped, sort_keys=True)


def unversioned(digest: str, subject: str = "", at: float | None = None) -> Revision:
    """The revision of a source that names no commit: its content stands for it."""
    return Revision(f"unversioned.{digest[:12]}", None, False, at, subject)
