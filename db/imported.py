"""What was taken from files of others: the content it came from, and its series as flat arrays for judging."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select, update

from harness.model.terms import COMPILE_TARGET

from . import tables as t
from .bulk import table_of
from .engine import Store
from .history import CaseRow

#: Rulers of results that no ruler of ours measured begin so.
RULER = "imported:"
#: How a run is marked that was judged as a night, with its suspects measured again.
NIGHT = "night"
_BATCH = 50_000
#: Runs of one machine that begin to be a history.
_HISTORY = 4
#: Asked of machines, which are few; their runs are found by an index.
_IS_IMPORTED = t.Machine.ruler_version.startswith(RULER, autoescape=True)


@dataclass(frozen=True)
class ImportedMetric:
    """All series of one metric on one imported machine, end to end.

    ``cases`` [S]; series i has the entries ``start[i]`` to ``start[i + 1]`` of ``run`` (index into ``run_ids``, rising)
    and ``value``, float64 in the metric's unit. ``run_ids`` [R] are in order of time.
    """

    name: str
    better: str
    cases: list[CaseRow]
    start: NDArray[np.int64]
    run: NDArray[np.int64]
    value: NDArray[np.float64]
    run_ids: list[str]


def imported_options(store: Store) -> dict[str, dict[str, Any]]:
    """Run id -> options of every run that was not measured by a ruler of ours."""
    query = select(t.Run.name, t.Run.options).join(t.Machine, t.Machine.id == t.Run.machine_id).where(_IS_IMPORTED)
    with store.read() as connection:
        return {row.name: row.options for row in connection.execute(query)}


def values_of_run(store: Store, run_id: str) -> dict[str, dict[str, float]]:
    """Case key -> metric -> value of one run."""
    m, v = t.Measurement, t.MetricValue
    query = (
        select(t.Case.key, t.Metric.name, v.value)
        .join(m, m.case_id == t.Case.id)
        .join(t.Run, t.Run.id == m.run_id)
        .join(v, v.measurement_id == m.id)
        .join(t.Metric, t.Metric.id == v.metric_id)
        .where(t.Run.name == run_id, m.superseded.is_(False))
    )
    out: dict[str, dict[str, float]] = {}
    with store.read() as connection:
        for key, name, value in connection.execute(query):
            out.setdefault(key, {})[name] = value
    return out


def unjudged_machines(store: Store) -> dict[str, list[str]]:
    """Fingerprint -> ids of runs whose history :func:`mark_judged` has not seen.

    Machines on which nights are judged are left out: there every suspect is measured again, and history without that
    would tell again what was dismissed. So are those of our ruler with too few runs to be a history, and compiled code,
    which :func:`unjudged_compiled` lists.
    """
    query = (
        select(t.Machine.fingerprint, t.Machine.ruler_version, t.Run.name, t.Run.options)
        .join(t.Machine, t.Machine.id == t.Run.machine_id)
        .where(t.Machine.device_kind != COMPILE_TARGET)
        .order_by(t.Run.id)
    )
    out: dict[str, list[str]] = {}
    held: Counter[str] = Counter()
    nightly, foreign = set(), set()
    with store.read() as connection:
        for fingerprint, ruler, name, options in connection.execute(query):
            held[fingerprint] += 1
            if ruler.startswith(RULER):
                foreign.add(fingerprint)
            judged = options.get("judged")
            if judged == NIGHT:
                nightly.add(fingerprint)
            elif not judged:
                out.setdefault(fingerprint, []).append(name)
    return {m: names for m, names in out.items() if m not in nightly and (m in foreign or held[m] >= _HISTORY)}


def unjudged_compiled(store: Store) -> list[str]:
    """Ids of runs of compiled code that were not judged yet, in the order of their start."""
    query = (
        select(t.Run.name, t.Run.options)
        .join(t.Machine, t.Machine.id == t.Run.machine_id)
        .where(t.Machine.device_kind == COMPILE_TARGET)
        .order_by(t.Run.started_at, t.Run.id)
    )
    with store.read() as connection:
        return [name for name, options in connection.execute(query) if not options.get("judged")]


def mark_judged(store: Store, run_ids: Collection[str], by: str | bool = True) -> None:
    """Note in the options of runs that history was judged with them, or that ``by`` = :data:`NIGHT` they were."""
    table = table_of(t.Run)
    with store.write() as connection:
        for name in run_ids:
            options = connection.execute(select(t.Run.options).where(t.Run.name == name)).scalar_one()
            connection.execute(update(table).where(table.c.name == name).values(options={**options, "judged": by}))


def is_imported(store: Store, machine: str) -> bool:
    """Whether a machine (a fingerprint) stands for results that no ruler of ours measured."""
    with store.read() as connection:
        query = select(t.Machine.id).where(t.Machine.fingerprint == machine, _IS_IMPORTED)
        return connection.execute(query).first() is not None


def imported_metrics(store: Store, machine: str) -> list[tuple[int, str, str]]:
    """(key, name, better) of the metrics of a machine for which a direction is known."""
    m, v = t.Measurement, t.MetricValue
    used = (
        select(v.metric_id)
        .join(m, m.id == v.measurement_id)
        .join(t.Run, t.Run.id == m.run_id)
        .join(t.Machine, t.Machine.id == t.Run.machine_id)
        .where(t.Machine.fingerprint == machine)
        .distinct()
    )
    query = select(t.Metric.id, t.Metric.name, t.Metric.better).where(t.Metric.id.in_(used), t.Metric.better != "none")
    with store.read() as connection:
        return [(row[0], row[1], row[2]) for row in connection.execute(query.order_by(t.Metric.id))]


def imported_series(store: Store, machine: str, metric: tuple[int, str, str]) -> ImportedMetric:
    """All series of one metric of :func:`imported_metrics`; memory is some 30 bytes a point."""
    m, v, r, c = t.Measurement, t.MetricValue, t.Run, t.Case
    with store.read() as connection:
        here = select(t.Machine.id).where(t.Machine.fingerprint == machine).scalar_subquery()
        runs = connection.execute(select(r.id, r.name).where(r.machine_id == here).order_by(r.started_at, r.id)).all()
        ranks = {row.id: i for i, row in enumerate(runs)}
        query = (
            select(m.case_id, m.run_id, v.value)
            .join(v, (v.measurement_id == m.id) & (v.metric_id == metric[0]))
            .join(r, r.id == m.run_id)
            .where(r.machine_id == here, m.superseded.is_(False))
        )
        parts = []
        for rows in connection.execute(query).partitions(_BATCH):
            case, run, value = zip(*rows, strict=True)
            parts.append((np.array(case), np.array([ranks[k] for k in run]), np.array(value, np.float64)))
        if not parts:
            return ImportedMetric(metric[1], metric[2], [], np.zeros(1, np.int64), *_EMPTY, [row.name for row in runs])
        of, at, values = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((at, of))
        ids, first = np.unique(of[order], return_index=True)
        columns = (c.id, c.key, c.benchmark, c.version, c.operation, c.backend, c.params, c.label, c.weight)
        found: dict[int, CaseRow] = {}
        for i in range(0, len(ids), 1000):
            wanted = select(*columns).where(c.id.in_(ids[i : i + 1000].tolist()))
            found |= {row[0]: CaseRow(*row[1:]) for row in connection.execute(wanted)}
    start = np.append(first, len(of)).astype(np.int64)
    return ImportedMetric(
        metric[1], metric[2], [found[i] for i in ids.tolist()], start, at[order].astype(np.int64), values[order],
        [row.name for row in runs],
    )  # fmt: skip


_EMPTY: tuple[NDArray[np.int64], NDArray[np.float64]] = (np.empty(0, np.int64), np.empty(0))
