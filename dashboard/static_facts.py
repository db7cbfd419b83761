"""Compiled kernels as rows of tables, and what differs between two runs of them. Pure: records in, rows out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.labels import short_names
from db.queries import MeasurementRow
from harness.model import METRICS, Status

#: metric -> column.
COLUMNS = {
    "registers": "registers", "spill_bytes": "spills (B)", "stack_bytes": "stack (B)", "shared_bytes": "shared (B)",
    "occupancy": "occupancy (%)", "blocks_per_sm": "blocks per multiprocessor", "matrix_level": "matrix instructions",
    "wide_load_share": "wide loads (%)", "instructions": "instructions", "bank_conflict_ways": "bank turns",
}  # fmt: skip
_SHARES = ("occupancy", "wide_load_share")
_MATRIX = {0: "none", 1: "warp", 2: "warp group", 3: "tensor memory"}
#: What was chosen for a variant, beside what came of it.
_CHOSEN = ("block_m", "block_n", "num_warps", "num_stages", "use_desc")


def shown(metric: str, value: float | None) -> Any:
    """A value as a cell: shares in percent, the level of matrix instructions in words."""
    if value is None:
        return None
    if metric == "matrix_level":
        return _MATRIX.get(int(value), "?")
    return round(value * 100, 1) if metric in _SHARES else int(value)


def table(rows: Sequence[MeasurementRow]) -> list[dict[str, Any]]:
    """A row for each variant: kernel, problem, what was chosen, what came of it."""
    names, _ = short_names(r.case for r in rows)
    return [
        {
            "kernel": r.case.params.get("kernel"), "problem": names[r.case.key], "tile": _tile(r.telemetry),
            **{column: shown(m, _value(r, m)) for m, column in COLUMNS.items()},
            "limited by": r.telemetry.get("limited_by"), "does not compile": r.detail if r.status != Status.OK else "",
        }
        for r in rows
    ]  # fmt: skip


def differences(base: Sequence[MeasurementRow], head: Sequence[MeasurementRow]) -> list[dict[str, Any]]:
    """A row for each metric and tile of a variant that differs; what alerts comes first, then by kernel and problem."""
    old = {r.case.key: r for r in base}
    both = [(old[r.case.key], r) for r in head if r.case.key in old]
    names, _ = short_names(r.case for r in head)
    found: list[tuple[bool, dict[str, Any]]] = []
    for a, b in both:
        about = {"kernel": b.case.params.get("kernel"), "problem": names[b.case.key]}
        if a.status != b.status:
            found.append((b.status != Status.OK, {**about, "what": "compiles", "base": a.status, "head": b.status}))
        for metric, column in COLUMNS.items():
            x, y = _value(a, metric), _value(b, metric)
            if x is not None and y is not None and x != y:
                row = {**about, "what": column, "base": shown(metric, x), "head": shown(metric, y)}
                found.append((alerts(metric, x, y), row))
        if _tile(a.telemetry) != _tile(b.telemetry):
            row = {**about, "what": "tile", "base": _tile(a.telemetry), "head": _tile(b.telemetry)}
            found.append((False, row))
    found.sort(key=lambda item: (not item[0], str(item[1]["kernel"]), item[1]["problem"]))
    return [
        {"alerts": "yes" if told else "", **{k: str(v) if k in ("base", "head") else v for k, v in row.items()}}
        for told, row in found
    ]


def alerts(metric: str, base: float, head: float) -> bool:
    """Whether the judge tells of this change: a judged metric that got worse by more than its slack."""
    known = METRICS[metric]
    worse = (head - base) * (1.0 if known.better == "lower" else -1.0)
    return known.judged and worse > known.slack


def only_in(rows: Sequence[MeasurementRow], others: Sequence[MeasurementRow]) -> int:
    """How many variants the other side lacks."""
    return len({r.case.key for r in rows} - {r.case.key for r in others})


def _value(row: MeasurementRow, metric: str) -> float | None:
    held = row.metrics.get(metric)
    return None if held is None else held.value


def _tile(telemetry: Mapping[str, Any]) -> str:
    held = {name: telemetry[name] for name in _CHOSEN if telemetry.get(name) not in (None, False)}
    size = f"{held['block_m']}x{held['block_n']} " if {"block_m", "block_n"} <= held.keys() else ""
    words = {"num_warps": "warps", "num_stages": "stages"}
    parts = [f"{held[name]} {word}" for name, word in words.items() if name in held]
    return (size + ", ".join(parts + (["descriptors"] if "use_desc" in held else []))).strip()
