"""Writing runs and measurements, in bulk and repeatably."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, or_, select, update

from harness.model import (
    InputError,
    Measurement,
    Revision,
    Run,
    RunEnd,
    Status,
    Value,
    label,
    metric,
)
from harness.model.terms import SHARD

from . import samples as codec
from . import shards
from . import tables as t
from .attempts import BadMeasurement, check_repeats
from .bulk import BulkInsert, clean, refresh_statistics, table_of, to_json, upsert
from .identity import identity

#: Case ids kept in memory; beyond that they are looked up again, so that memory stays flat.
_CASE_CACHE = 16384
#: Values in one IN list; both databases take far more.
_IN_LIST = 1000
#: Measurements from which on statistics matter to a database.
_FEW = 5000

OK_STORED = "an ok measurement of this case is already stored for this run"


@dataclass
class Tally:
    """What became of the measurements handed over; ``notes`` say where what was given differs from what is kept."""

    taken: int = 0
    duplicates: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    notes: dict[str, None] = field(default_factory=dict)

    @property
    def dropped(self) -> int:
        """Measurements left out for a reason other than being stored already."""
        return self.reasons.total()


@dataclass(slots=True)
class _Stored:
    """The attempts known of one case in one run: attempt -> id; and which of them stands for the case."""

    attempts: dict[int, int]
    current: int = 0
    current_id: int = 0
    ok: bool = False


class Importer:
    """Writes records within one write transaction (see :meth:`db.engine.Store.write`).

    Everything is found again by its natural key, so handing over the same records twice changes nothing.
    """

    def __init__(self, connection: Connection) -> None:
        self.tally = Tally()
        self._connection = connection
        self._runs: dict[str, int] = {}
        self._metrics: dict[str, int] = {}
        self._cases: dict[str, tuple[int, float]] = {}
        top = connection.execute(select(func.max(t.Measurement.id))).scalar()
        # The transaction excludes other writers, so ids can be given here and rows sent without reading back.
        self._next_id = (top or 0) + 1
        self._grown = max(_FEW, 2 * self._next_id)
        self._insert_case = BulkInsert(
            connection, t.Case, ("key", "benchmark", "version", "operation", "backend", "params", "label", "weight")
        )
        self._insert_measurement = BulkInsert(
            connection,
            t.Measurement,
            (
                "id", "run_id", "case_id", "attempt", "superseded", "status", "detail", "started_at", "duration_s",
                "stop_reason", "samples", "operators", "telemetry", "discarded",
            ),
            fresh=True,
        )  # fmt: skip
        self._insert_value = BulkInsert(
            connection, t.MetricValue, ("measurement_id", "metric_id", "value", "low", "high", "n"), fresh=True
        )

    def run(self, run: Run) -> None:
        """Store a run with its machine, environment and revision.

        Raises InputError where the id is taken by a run of another suite, revision or machine.
        """
        name = clean(run.id)
        fingerprint, environment_hash = identity(run.environment)
        e, m, r = run.environment, run.environment.machine, run.revision
        machine = self._key(
            t.Machine,
            t.Machine.fingerprint,
            fingerprint,
            device_kind=clean(m.device_kind),
            device_model=clean(m.device_model),
            clock_policy=clean(m.clock_policy),
            ruler_version=clean(e.ruler_version),
        )
        environment = self._key(
            t.Environment,
            t.Environment.hash,
            environment_hash,
            machine_id=machine,
            python=clean(e.python),
            packages=e.packages,
            driver=clean(e.driver),
            variables=e.variables,
            threads=e.threads,
            kernels_hash=clean(e.kernels_hash),
            ruler_version=clean(e.ruler_version),
        )
        revision = self._revision(r)
        self._runs[run.id] = self._key(
            t.Run,
            t.Run.name,
            name,
            suite=clean(run.suite),
            reason=run.reason.value,
            revision_id=revision,
            environment_id=environment,
            machine_id=machine,
            host=clean(m.host),
            board_uuid=clean(m.board_uuid),
            machine_details=m.details,
            kernels_path=clean(e.kernels_path),
            started_at=run.started_at,
            finished_at=None,
            complete=False,
            planned=run.planned,
            measured=0,
            ruler_version=clean(run.ruler_version),
            options=run.options,
        )
        stored = self._connection.execute(
            select(t.Run.suite, t.Run.revision_id, t.Run.machine_id).where(t.Run.name == name)
        ).one()
        if tuple(stored) != (clean(run.suite), revision, machine):
            raise InputError(
                f"run id {run.id!r} is already stored for another suite, revision or machine; "
                "give the run an id of its own"
            )
        if SHARD in run.options and (note := shards.join(self._connection, self._runs[run.id], run, environment)):
            self.tally.notes[note] = None

    def _revision(self, r: Revision) -> int:
        """Id of a revision. What is known of it stays; what was unknown is filled in, and differences are noted.

        Nobody can tell here which of two bundles is right about a commit, so no later one may rewrite it, and none
        that differs passes in silence.
        """
        name, table = clean(r.id), table_of(t.Revision)
        given: dict[str, Any] = {
            "commit": clean(r.commit) if r.commit is not None else None,
            "dirty": r.dirty,
            "committed_at": r.committed_at,
            "subject": clean(r.subject),
            "kernels_hash": clean(r.kernels_hash),
        }
        found = self._key(t.Revision, t.Revision.name, name, **given)
        row = self._connection.execute(select(table).where(table.c.id == found)).one()._mapping
        unknown = {k: v for k, v in given.items() if row[k] in (None, "") and v not in (None, "")}
        if unknown:
            self._connection.execute(update(table).where(table.c.id == found).values(unknown))
        for key, value in given.items():
            if value not in (None, "") and key not in unknown and row[key] != value:
                note = f"{key} {_shown(value)} differs from {_shown(row[key])}, which is stored and kept"
                self.tally.notes[f"revision {name[:80]}: {note}"] = None
        return found

    def knows(self, run_id: str) -> bool:
        """True where the run is stored."""
        return self._run(run_id) is not None

    def end(self, end: RunEnd) -> None:
        """Close a run. The latest end counts, and a complete run stays complete.

        Raises InputError where it ends before it started.
        """
        run, table = self._known(end.run_id), table_of(t.Run)
        query = select(table.c.started_at, table.c.planned, table.c.options).where(table.c.id == run)
        started, planned, options = self._connection.execute(query).one()
        if end.finished_at < started:
            raise InputError(
                f"field finished_at: {end.finished_at!r} is before the start of the run ({started!r}); "
                "correct the time, in seconds since 1970, UTC"
            )
        last = or_(table.c.finished_at.is_(None), table.c.finished_at <= end.finished_at)
        values: dict[str, Any] = {"finished_at": end.finished_at}
        if SHARD in options:
            shards.count(self._connection, run, planned)
        else:
            values |= {
                "measured": end.measured,
                "complete": or_(table.c.complete, bindparam("now_complete", end.complete)),
            }
        self._connection.execute(update(table).where(table.c.id == run, last).values(values))

    def controls(self, run_id: str, values: Mapping[str, Value]) -> None:
        """Add one record of control kernels to a run, unless the same values are there."""
        run, table = self._known(run_id), table_of(t.ControlValue)
        rows = {(self._metric(k), v.value, v.low, v.high, v.n) for k, v in values.items()}
        found: dict[int, set[tuple[Any, ...]]] = {}
        query = select(table.c.ordinal, table.c.metric_id, table.c.value, table.c.low, table.c.high, table.c.n)
        for row in self._connection.execute(query.where(table.c.run_id == run)):
            found.setdefault(row.ordinal, set()).add(tuple(row)[1:])
        if not rows or rows in found.values():
            return
        ordinal = max(found, default=-1) + 1
        names = ("metric_id", "value", "low", "high", "n")
        self._connection.execute(
            insert(table),
            [{"run_id": run, "ordinal": ordinal, **dict(zip(names, row, strict=True))} for row in sorted(rows)],
        )

    def measurements(self, batch: Sequence[tuple[str, Measurement]]) -> None:
        """Store measurements, each with the id of its run; ``tally`` counts what became of them.

        An attempt that is stored already must say the same: it is counted as a duplicate and changes nothing.
        Raises :class:`BadMeasurement` where it says something else and for a value that is not a number, InputError for
        a run that is not stored.
        """
        keyed = [(self._known(run_id), m.case.key, m) for run_id, m in batch]
        cases = self._case_ids(keyed)
        stored = self._stored({run for run, _, _ in keyed}, {cases[key][0] for _, key, _ in keyed})
        new: dict[int, tuple[Any, ...]] = {}
        values: list[tuple[Any, ...]] = []
        metrics = self._metrics
        demoted: list[int] = []
        weights: dict[int, float] = {}
        made: dict[int, Measurement] = {}
        repeats: list[tuple[int, int]] = []
        for position, (run, key, m) in enumerate(keyed):
            case, weight = cases[key]
            known = stored.get((run, case))
            if known is None:
                known = stored[run, case] = _Stored({})
            elif m.attempt in known.attempts:
                repeats.append((position, known.attempts[m.attempt]))
                continue
            elif known.ok:
                self.tally.reasons[OK_STORED] += 1
                continue
            ok = m.status is Status.OK
            stands = ok or m.attempt > known.current
            row_id = self._next_id
            self._next_id += 1
            if stands:
                if known.current_id in new:
                    old = new[known.current_id]
                    new[known.current_id] = (*old[:4], True, *old[5:])
                elif known.current_id:
                    demoted.append(known.current_id)
                known.current, known.current_id, known.ok = m.attempt, row_id, ok
            known.attempts[m.attempt] = row_id
            made[row_id] = m
            new[row_id] = (
                row_id, run, case, m.attempt, not stands, m.status.value, clean(m.detail), m.started_at, m.duration_s,
                clean(m.stop_reason), codec.encode(m.samples, m.warmup),
                to_json(m.operators) if m.operators else None,
                to_json(m.telemetry) if m.telemetry else None,
                to_json(m.discarded) if m.discarded else None,
            )  # fmt: skip
            of_metric: dict[int, tuple[Any, ...]] = {}
            for name, v in m.metrics.items():
                if not -math.inf < v.value < math.inf:
                    raise BadMeasurement(position, f"field metrics.{name}.value: {v.value} is not a finite number")
                metric_id = metrics.get(name) or self._metric(name)
                of_metric[metric_id] = (row_id, metric_id, v.value, v.low, v.high, v.n)
            values += of_metric.values()
            if weight != m.case.workload.weight:
                weights[case] = m.case.workload.weight
                cases[key] = self._cases[key] = (case, m.case.workload.weight)
        check_repeats(self._connection, batch, repeats, made)
        self.tally.duplicates += len(repeats)
        self._insert_measurement(list(new.values()))
        self._insert_value(values)
        self._demote(demoted)
        self._reweigh(weights)
        self.tally.taken += len(new)
        if self._next_id > self._grown:
            refresh_statistics(self._connection)
            self._grown = 2 * self._next_id

    def _demote(self, ids: Sequence[int]) -> None:
        if ids:
            table = table_of(t.Measurement)
            statement = update(table).where(table.c.id == bindparam("row_id")).values(superseded=True)
            self._connection.execute(statement, [{"row_id": i} for i in ids])

    def _reweigh(self, weights: Mapping[int, float]) -> None:
        if weights:
            table = table_of(t.Case)
            statement = update(table).where(table.c.id == bindparam("row_id")).values(weight=bindparam("now"))
            self._connection.execute(statement, [{"row_id": i, "now": w} for i, w in weights.items()])

    def _stored(self, runs: Iterable[int], cases: Iterable[int]) -> dict[tuple[int, int], _Stored]:
        m, out = table_of(t.Measurement).c, dict[tuple[int, int], _Stored]()
        columns = select(m.run_id, m.case_id, m.attempt, m.id, m.status, m.superseded)
        for run in sorted(runs):
            for part in _parts(sorted(cases)):
                query = columns.where(m.run_id == run, m.case_id.in_(part))
                for row in self._connection.execute(query):
                    known = out.setdefault((row.run_id, row.case_id), _Stored({}))
                    known.attempts[row.attempt] = row.id
                    if not row.superseded:
                        known.current, known.current_id, known.ok = row.attempt, row.id, row.status == Status.OK
        return out

    def _case_ids(self, keyed: Sequence[tuple[int, str, Measurement]]) -> dict[str, tuple[int, float]]:
        if len(self._cases) > _CASE_CACHE:
            self._cases.clear()
        missing = {key: m.case for _, key, m in keyed if key not in self._cases}
        self._find_cases(missing)
        # An insert that meets its key uses up a number of PostgreSQL's sequence, so only what is new is inserted.
        new = {key: c for key, c in missing.items() if key not in self._cases}
        self._insert_case(
            [
                (
                    key, clean(c.benchmark), clean(c.benchmark_version), clean(c.workload.operation), clean(c.backend),
                    to_json(c.workload.params), clean(label(c.workload.params)), c.workload.weight,
                )
                for key, c in new.items()
            ]
        )  # fmt: skip
        self._find_cases(new)
        return {key: self._cases[key] for _, key, _ in keyed}

    def _find_cases(self, keys: Iterable[str]) -> None:
        table = table_of(t.Case).c
        for part in _parts(sorted(keys)):
            query = select(table.key, table.id, table.weight).where(table.key.in_(part))
            for row in self._connection.execute(query):
                self._cases[row.key] = (row.id, row.weight)

    def _metric(self, name: str) -> int:
        found = self._metrics.get(name)
        if found is None:
            known = metric(name)
            found = self._metrics[name] = self._key(
                t.Metric, t.Metric.name, clean(name), unit=known.unit, better=known.better, exact=known.exact
            )
        return found

    def _known(self, run_id: str) -> int:
        if (run := self._run(run_id)) is None:
            raise InputError(f"run_id {run_id!r} is not stored and no run record comes before")
        return run

    def _run(self, run_id: str) -> int | None:
        found = self._runs.get(run_id)
        if found is None:
            found = self._connection.execute(select(t.Run.id).where(t.Run.name == clean(run_id))).scalar()
            if found is not None:
                self._runs[run_id] = found
        return found

    def _key(self, model: Any, column: Any, value: str, **rest: object) -> int:
        find = select(model.id).where(column == value)
        found = self._connection.execute(find).scalar()
        if found is None:
            row = {column.key: value, **rest}
            self._connection.execute(upsert(self._connection, model).values(row).on_conflict_do_nothing())
            found = self._connection.execute(find).scalar_one()
        return int(found)


def _parts(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (values[i : i + _IN_LIST] for i in range(0, len(values), _IN_LIST))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
