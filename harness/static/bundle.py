"""Static records as what a bundle holds: a run for each target, a case for each variant, exact metrics.

The machine of such a run is the architecture that was compiled for, so that its series go on wherever the compiler ran.
A case is a problem, not a tile: tile sizes and launch options stand in the telemetry beside the full count of
instructions, and another tile is a change of the same series.
"""

from __future__ import annotations

import platform
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.bundle import BundleWriter
from harness.model import (
    Case,
    Environment,
    InputError,
    Machine,
    Measurement,
    Reason,
    Revision,
    Run,
    RunEnd,
    Scalar,
    Status,
    Value,
    Workload,
)
from harness.model.terms import COMPILE_TARGET

from .records import StaticRecord

BENCHMARK = "static"

#: grid -> suite. A part of the variants is a suite of its own, or the others would be missed in every small run.
SUITES = {"pull_request": "static", "full": "static-full"}


def refuse_compiled(cases: Iterable[str], incident_id: str) -> None:
    """InputError where an incident (benchmarks of its cases) is about compiled code, which nobody can time."""
    if BENCHMARK in cases:
        raise InputError(
            f"incident {incident_id} is about compiled code, which is exact; compare its revisions with "
            "`attnwatch static --base REF --head REF`"
        )


def case_of(record: StaticRecord) -> Case:
    """The case of a record: its problem, with the kernel and the target among the parameters."""
    held = dict(record.problem) or {"configuration": record.configuration}
    backend, operation = str(held.pop("backend", record.kernel)), str(held.pop("operation", "compile"))
    params: dict[str, Scalar] = {"kernel": record.kernel, "target": record.target, **held}
    return Case(BENCHMARK, Workload(operation, params), backend)


def measurement_of(record: StaticRecord, at: float) -> Measurement:
    """What a record says, as a measurement: ``crashed`` where the variant does not compile."""
    telemetry: dict[str, Scalar] = {
        **record.options,
        "limited_by": record.limited_by,
        "fp_fusion": record.fp_fusion,
        "source_hash": record.source_hash,
        **{f"sass_{kind}": n for kind, n in record.instructions.items()},
    }
    if record.error:
        detail = f"does not compile: {record.error}"
        return Measurement(case_of(record), Status.CRASHED, at, detail=detail, telemetry=telemetry)
    share = record.wide_load_share
    values: dict[str, float] = {
        "registers": record.registers,
        "spill_bytes": record.spill_bytes,
        "stack_bytes": record.stack_bytes,
        "shared_bytes": record.shared_bytes,
        "tensor_columns": record.tensor_columns,
        "blocks_per_sm": record.blocks_per_sm,
        "occupancy": record.occupancy,
        "instructions": record.count("total"),
        "matrix_instructions": record.matrix_instructions,
        "matrix_level": record.matrix_level,
        "local_accesses": record.count("ldl", "stl"),
        **({} if share is None else {"wide_load_share": share}),
        **({} if record.bank_conflict_ways is None else {"bank_conflict_ways": record.bank_conflict_ways}),
    }
    return Measurement(
        case_of(record), Status.OK, at, metrics={k: Value(float(v)) for k, v in values.items()}, telemetry=telemetry
    )


def run_of(
    records: Sequence[StaticRecord],
    revision: Revision,
    *,
    grid: str,
    kernels_path: str = "",
    started_at: float | None = None,
    reason: Reason = Reason.MANUAL,
) -> Run:
    """The run of records of one target, not empty."""
    first = records[0]
    environment = Environment(
        machine=Machine(COMPILE_TARGET, first.target, "none"),
        python=platform.python_version(),
        packages={"triton": first.triton_version, "ptxas": first.ptxas_version},
        kernels_hash=revision.kernels_hash,
        kernels_path=kernels_path,
    )
    at = time.time() if started_at is None else started_at
    return Run(uuid.uuid4().hex, SUITES[grid], revision, environment, at, reason, len(records), options={"grid": grid})


def write_bundle(path: Path, runs: Sequence[tuple[Run, Sequence[StaticRecord]]]) -> None:
    """Append runs with their records to the bundle at ``path``, each closed as complete."""
    with BundleWriter(path) as writer:
        for run, records in runs:
            writer.run(run)
            for record in records:
                writer.measurement(run.id, measurement_of(record, run.started_at))
            writer.end(RunEnd(run.id, max(time.time(), run.started_at), True, len(records)))
