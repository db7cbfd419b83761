"""What exports need beyond the screens: samples of a whole run, and what metrics mean."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from . import samples as codec
from . import tables as t
from .engine import Store


@dataclass(frozen=True, slots=True)
class MetricRow:
    """Name, unit and direction (``lower``, ``higher``, ``none``) of a stored metric."""

    name: str
    unit: str
    better: str


def metric_rows(store: Store) -> dict[str, MetricRow]:
    """Every metric that the store knows, by name."""
    with store.read() as connection:
        rows = connection.execute(select(t.Metric.name, t.Metric.unit, t.Metric.better).order_by(t.Metric.id))
        return {row.name: MetricRow(*row) for row in rows}


def samples_of_run(store: Store, run_id: str) -> dict[int, codec.Samples]:
    """Measurement id -> samples kept, by metric; measurements without any are left out."""
    m = t.Measurement
    query = select(m.id, m.samples).join(t.Run, t.Run.id == m.run_id).where(t.Run.name == run_id)
    with store.read() as connection:
        rows = connection.execute(query.where(m.samples.is_not(None))).all()
    return {row.id: kept for row in rows if (kept := codec.decode(row.samples)[0])}


def run_ids(store: Store) -> list[str]:
    """Ids of all runs, oldest first."""
    with store.read() as connection:
        return list(connection.execute(select(t.Run.name).order_by(t.Run.started_at, t.Run.id)).scalars())
