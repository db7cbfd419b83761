"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite gives only "INTEGER PRIMARY KEY" its row number as key.
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "case",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("benchmark", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("backend", sa.String(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_case"),
        sa.UniqueConstraint("key", name="uq_case_key"),
    )
    op.create_index("ix_case_benchmark", "case", ["benchmark"])

    op.create_table(
        "machine",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("device_kind", sa.String(), nullable=False),
        sa.Column("device_model", sa.String(), nullable=False),
        sa.Column("clock_policy", sa.String(), nullable=False),
        sa.Column("ruler_version", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_machine"),
        sa.UniqueConstraint("fingerprint", name="uq_machine_fingerprint"),
    )
    op.create_table(
        "metric",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("unit", sa.String(), nullable=False),
        sa.Column("better", sa.String(), nullable=False),
        sa.Column("exact", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_metric"),
        sa.UniqueConstraint("name", name="uq_metric_name"),
    )
    op.create_table(
        "revision",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("commit", sa.String(), nullable=True),
        sa.Column("dirty", sa.Boolean(), nullable=False),
        sa.Column("committed_at", sa.Double(), nullable=True),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("kernels_hash", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_revision"),
        sa.UniqueConstraint("name", name="uq_revision_name"),
    )
    op.create_table(
        "environment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("machine_id", sa.Integer(), nullable=False),
        sa.Column("python", sa.String(), nullable=False),
        sa.Column("packages", sa.JSON(), nullable=False),
        sa.Column("driver", sa.String(), nullable=False),
        sa.Column("variables", sa.JSON(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("kernels_hash", sa.String(), nullable=False),
        sa.Column("ruler_version", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["machine_id"], ["machine.id"], name="fk_environment_machine_id"),
        sa.PrimaryKeyConstraint("id", name="pk_environment"),
        sa.UniqueConstraint("hash", name="uq_environment_hash"),
    )
    op.create_index("ix_environment_machine_id", "environment", ["machine_id"])

    op.create_table(
        "incident",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("trigger_text", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("machine_id", sa.Integer(), nullable=False),
        sa.Column("first_bad_revision_id", sa.Integer(), nullable=True),
        sa.Column("last_good_revision_id", sa.Integer(), nullable=True),
        sa.Column("effect", sa.Double(), nullable=True),
        sa.Column("effect_low", sa.Double(), nullable=True),
        sa.Column("effect_high", sa.Double(), nullable=True),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["first_bad_revision_id"], ["revision.id"], name="fk_incident_first_bad_revision_id"),
        sa.ForeignKeyConstraint(["last_good_revision_id"], ["revision.id"], name="fk_incident_last_good_revision_id"),
        sa.ForeignKeyConstraint(["machine_id"], ["machine.id"], name="fk_incident_machine_id"),
        sa.PrimaryKeyConstraint("id", name="pk_incident"),
    )
    op.create_index("ix_incident_machine_id", "incident", ["machine_id"])
    op.create_index("ix_incident_state_updated_at", "incident", ["state", "updated_at"])

    op.create_table(
        "run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("suite", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("revision_id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("machine_id", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("board_uuid", sa.String(), nullable=False),
        sa.Column("machine_details", sa.JSON(), nullable=False),
        sa.Column("kernels_path", sa.String(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("planned", sa.Integer(), nullable=False),
        sa.Column("measured", sa.Integer(), nullable=False),
        sa.Column("ruler_version", sa.String(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environment.id"], name="fk_run_environment_id"),
        sa.ForeignKeyConstraint(["machine_id"], ["machine.id"], name="fk_run_machine_id"),
        sa.ForeignKeyConstraint(["revision_id"], ["revision.id"], name="fk_run_revision_id"),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
        sa.UniqueConstraint("name", name="uq_run_name"),
    )
    op.create_index("ix_run_environment_id", "run", ["environment_id"])
    op.create_index("ix_run_machine_id_started_at", "run", ["machine_id", "started_at"])
    op.create_index("ix_run_revision_id", "run", ["revision_id"])
    op.create_index("ix_run_suite_started_at", "run", ["suite", "started_at"])

    op.create_table(
        "triage_event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("incident_id", sa.String(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("from_state", sa.String(), nullable=True),
        sa.Column("to_state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["incident_id"], ["incident.id"], name="fk_triage_event_incident_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_triage_event"),
    )
    op.create_index("ix_triage_event_incident_id", "triage_event", ["incident_id"])

    op.create_table(
        "control_value",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("metric_id", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["metric_id"], ["metric.id"], name="fk_control_value_metric_id"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_control_value_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "metric_id", "ordinal", name="pk_control_value"),
    )
    op.create_table(
        "measurement",
        sa.Column("id", BIG_KEY, autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("superseded", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=False),
        sa.Column("stop_reason", sa.String(), nullable=False),
        sa.Column("samples", sa.LargeBinary(), nullable=True),
        sa.Column("operators", sa.JSON(), nullable=True),
        sa.Column("telemetry", sa.JSON(), nullable=True),
        sa.Column("discarded", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["case_id"], ["case.id"], name="fk_measurement_case_id"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_measurement_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_measurement"),
        sa.UniqueConstraint("run_id", "case_id", "attempt", name="uq_measurement_run_id_case_id_attempt"),
    )
    op.create_index("ix_measurement_case_id_run_id", "measurement", ["case_id", "run_id"])
    op.create_index("ix_measurement_current", "measurement", ["run_id", "superseded", "case_id", "status"])

    op.create_table(
        "regression",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("incident_id", sa.String(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("metric_id", sa.Integer(), nullable=False),
        sa.Column("base_run_id", sa.Integer(), nullable=True),
        sa.Column("head_run_id", sa.Integer(), nullable=True),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.Column("ratio_low", sa.Double(), nullable=True),
        sa.Column("ratio_high", sa.Double(), nullable=True),
        sa.Column("p_value", sa.Double(), nullable=True),
        sa.Column("smallest_detectable", sa.Double(), nullable=True),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("base_status", sa.String(), nullable=False),
        sa.Column("head_status", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["base_run_id"], ["run.id"], name="fk_regression_base_run_id", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["case_id"], ["case.id"], name="fk_regression_case_id"),
        sa.ForeignKeyConstraint(["head_run_id"], ["run.id"], name="fk_regression_head_run_id", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["incident_id"], ["incident.id"], name="fk_regression_incident_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["metric_id"], ["metric.id"], name="fk_regression_metric_id"),
        sa.PrimaryKeyConstraint("id", name="pk_regression"),
        sa.UniqueConstraint("incident_id", "case_id", "metric_id", name="uq_regression_incident_id_case_id_metric_id"),
    )
    op.create_index("ix_regression_base_run_id", "regression", ["base_run_id"])
    op.create_index("ix_regression_case_id_metric_id", "regression", ["case_id", "metric_id"])
    op.create_index("ix_regression_head_run_id", "regression", ["head_run_id"])

    op.create_table(
        "metric_value",
        sa.Column("measurement_id", BIG_KEY, nullable=False),
        sa.Column("metric_id", sa.Integer(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["measurement_id"], ["measurement.id"], name="fk_metric_value_measurement_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["metric_id"], ["metric.id"], name="fk_metric_value_metric_id"),
        sa.PrimaryKeyConstraint("measurement_id", "metric_id", name="pk_metric_value"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    for table in (
        "metric_value",
        "regression",
        "measurement",
        "control_value",
        "triage_event",
        "run",
        "incident",
        "environment",
        "revision",
        "metric",
        "machine",
        "case",
    ):
        op.drop_table(table)
