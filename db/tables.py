"""The tables. Units are SI and stand in the names; times are seconds since the epoch, UTC.

Rows of what was measured carry small integer keys; what people and files know them by (case key, run id, machine
fingerprint, environment hash) is unique beside it, so that every write can be repeated without doubling anything.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, LargeBinary, MetaData, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# SQLite gives only "INTEGER PRIMARY KEY" its row number as key; PostgreSQL needs eight bytes for many measurements.
BigKey = BigInteger().with_variant(Integer, "sqlite")

JsonObject = dict[str, Any]


class Base(DeclarativeBase):
    """Names constraints the same way on every database, so that migrations can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {JsonObject: JSON, list[Any]: JSON}  # noqa: RUF012


class Machine(Base):
    """Series identity: device model, clock policy and ruler version. Hosts and boards stand with the run."""

    __tablename__ = "machine"
    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(unique=True)
    device_kind: Mapped[str]
    device_model: Mapped[str]
    clock_policy: Mapped[str]
    ruler_version: Mapped[str]


class Environment(Base):
    """Everything around the kernels that may change a number."""

    __tablename__ = "environment"
    id: Mapped[int] = mapped_column(primary_key=True)
    hash: Mapped[str] = mapped_column(unique=True)
    machine_id: Mapped[int] = mapped_column(ForeignKey("machine.id"), index=True)
    python: Mapped[str]
    packages: Mapped[JsonObject]
    driver: Mapped[str]
    variables: Mapped[JsonObject]
    threads: Mapped[int]
    kernels_hash: Mapped[str]
    ruler_version: Mapped[str]


class Revision(Base):
    """What was under test: a commit, a dirty tree, or something without a version."""

    __tablename__ = "revision"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    commit: Mapped[str | None]
    dirty: Mapped[bool]
    committed_at: Mapped[float | None]
    subject: Mapped[str]
    kernels_hash: Mapped[str]


class Run(Base):
    """All measurements of one revision on one machine. ``name`` is the run id of the bundle."""

    __tablename__ = "run"
    __table_args__ = (
        Index(None, "machine_id", "started_at"),
        Index(None, "suite", "started_at"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    suite: Mapped[str]
    reason: Mapped[str]
    revision_id: Mapped[int] = mapped_column(ForeignKey("revision.id"), index=True)
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"), index=True)
    machine_id: Mapped[int] = mapped_column(ForeignKey("machine.id"))
    host: Mapped[str]
    board_uuid: Mapped[str]
    machine_details: Mapped[JsonObject]
    kernels_path: Mapped[str]
    started_at: Mapped[float]
    finished_at: Mapped[float | None]
    complete: Mapped[bool]
    planned: Mapped[int]
    measured: Mapped[int]
    ruler_version: Mapped[str]
    options: Mapped[JsonObject]


class Case(Base):
    """Benchmark x workload x backend. ``key`` is :attr:`harness.model.Case.key`; the weight is the newest known."""

    __tablename__ = "case"
    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    benchmark: Mapped[str] = mapped_column(index=True)
    version: Mapped[str]
    operation: Mapped[str]
    backend: Mapped[str]
    params: Mapped[JsonObject]
    label: Mapped[str]
    weight: Mapped[float]


class Metric(Base):
    """Name, unit and direction of a number; ``better`` is ``lower``, ``higher`` or ``none``."""

    __tablename__ = "metric"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    unit: Mapped[str]
    better: Mapped[str]
    exact: Mapped[bool]


class Measurement(Base):
    """One attempt at one case in one run.

    ``superseded`` marks attempts that another attempt of the same case and run stands for. ``samples`` is the
    text of :mod:`db.samples`. The JSON columns are NULL where empty.
    """

    __tablename__ = "measurement"
    __table_args__ = (
        UniqueConstraint("run_id", "case_id", "attempt"),
        # Holds all that the history of a machine and the counts by status read of this wide table.
        Index("ix_measurement_current", "run_id", "superseded", "case_id", "status"),
        Index(None, "case_id", "run_id"),
    )
    id: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=False)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    case_id: Mapped[int] = mapped_column(ForeignKey("case.id"))
    attempt: Mapped[int]
    superseded: Mapped[bool]
    status: Mapped[str]
    detail: Mapped[str]
    started_at: Mapped[float]
    duration_s: Mapped[float]
    stop_reason: Mapped[str]
    samples: Mapped[bytes | None] = mapped_column(LargeBinary)
    operators: Mapped[list[Any] | None]
    telemetry: Mapped[JsonObject | None]
    discarded: Mapped[JsonObject | None]


class MetricValue(Base):
    """One metric of one measurement: value, 95 % interval where it is an estimate, number of samples."""

    __tablename__ = "metric_value"
    __table_args__ = ({"sqlite_with_rowid": False},)
    measurement_id: Mapped[int] = mapped_column(
        BigKey, ForeignKey("measurement.id", ondelete="CASCADE"), primary_key=True
    )
    metric_id: Mapped[int] = mapped_column(ForeignKey("metric.id"), primary_key=True)
    value: Mapped[float]
    low: Mapped[float | None]
    high: Mapped[float | None]
    n: Mapped[int]


class ControlValue(Base):
    """A frozen control kernel in a run. ``ordinal`` counts the control records of the run in its bundle, from 0."""

    __tablename__ = "control_value"
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    metric_id: Mapped[int] = mapped_column(ForeignKey("metric.id"), primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float]
    low: Mapped[float | None]
    high: Mapped[float | None]
    n: Mapped[int]


class Incident(Base):
    """Regressions that share a trigger and a start. ``id`` is the short text that people type."""

    __tablename__ = "incident"
    __table_args__ = (Index(None, "state", "updated_at"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    title: Mapped[str]
    trigger_text: Mapped[str]
    state: Mapped[str]
    machine_id: Mapped[int] = mapped_column(ForeignKey("machine.id"), index=True)
    first_bad_revision_id: Mapped[int | None] = mapped_column(ForeignKey("revision.id"))
    last_good_revision_id: Mapped[int | None] = mapped_column(ForeignKey("revision.id"))
    effect: Mapped[float | None]
    effect_low: Mapped[float | None]
    effect_high: Mapped[float | None]
    opened_at: Mapped[float]
    updated_at: Mapped[float]
    owner: Mapped[str]
    evidence: Mapped[JsonObject]


class Regression(Base):
    """An adverse change of one case and metric, as its incident knows it now."""

    __tablename__ = "regression"
    __table_args__ = (UniqueConstraint("incident_id", "case_id", "metric_id"), Index(None, "case_id", "metric_id"))
    id: Mapped[int] = mapped_column(primary_key=True)
    incident_id: Mapped[str] = mapped_column(ForeignKey("incident.id", ondelete="CASCADE"))
    case_id: Mapped[int] = mapped_column(ForeignKey("case.id"))
    metric_id: Mapped[int] = mapped_column(ForeignKey("metric.id"))
    base_run_id: Mapped[int | None] = mapped_column(ForeignKey("run.id", ondelete="SET NULL"), index=True)
    head_run_id: Mapped[int | None] = mapped_column(ForeignKey("run.id", ondelete="SET NULL"), index=True)
    ratio: Mapped[float | None]
    ratio_low: Mapped[float | None]
    ratio_high: Mapped[float | None]
    p_value: Mapped[float | None]
    smallest_detectable: Mapped[float | None]
    verdict: Mapped[str]
    state: Mapped[str]
    base_status: Mapped[str]
    head_status: Mapped[str]


class TriageEvent(Base):
    """Who moved an incident from one state to another, when and why."""

    __tablename__ = "triage_event"
    id: Mapped[int] = mapped_column(primary_key=True)
    incident_id: Mapped[str] = mapped_column(ForeignKey("incident.id", ondelete="CASCADE"), index=True)
    at: Mapped[float]
    from_state: Mapped[str | None]
    to_state: Mapped[str]
    reason: Mapped[str]
    author: Mapped[str]
