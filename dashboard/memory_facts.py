"""What the page on memory shows, as rows for its charts: parts, gaps, lines, traces, histories. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from db.screens import CaseValues
from harness.catalogue import bandwidth
from harness.catalogue.growth import Line, fit, knee, lines
from harness.catalogue.kv_memory import ALARM, ITEMSIZE, gap
from harness.model import InputError
from harness.model.trace import Event

MIB = 1 / 2**20

#: Part of a peak -> the metric that holds it, in the order of the bars.
PARTS = {
    name: f"peak_{name}_bytes"
    for name in ("kv_cache", "activations", "gradients", "optimiser", "results", "workspace", "other")
}
#: Runs of before there were parts have these two.
OLD_PARTS = {"results": "output_bytes", "workspace": "workspace_bytes"}

#: Operations whose inputs are queries, keys and values.
_HOLD_KEYS = ("attention", "varlen_attention", "paged_attention", "kv_cache")

#: Moments and parts of the address space in a picture of a trace.
_MOMENTS, _CELLS = 120, 96


def parts_of(row: CaseValues) -> dict[str, float]:
    """Part -> bytes of the peak, and the inputs that it stands on; the K/V cache among them apart."""
    value = {name: v.value for name, v in row.values.items()}
    found = {part: value[metric] for part, metric in PARTS.items() if value.get(metric)}
    if not found:
        found = {part: value[metric] for part, metric in OLD_PARTS.items() if metric in value}
    cache = value.get("kv_cache_bytes", 0.0)
    return {"inputs": value.get("input_bytes", 0.0) - cache, "kv_cache input": cache, **found}


def gaps(rows: Sequence[CaseValues]) -> list[dict[str, Any]]:
    """Rows for the chart of model against measured: keys and values among the inputs or made by the call."""
    found = []
    for r in rows:
        if "kv_model_bytes" not in r.values or "input_bytes" not in r.values:
            continue
        model = r.values["kv_model_bytes"].value
        measured = sum(r.values[n].value for n in ("kv_cache_bytes", "peak_kv_cache_bytes") if n in r.values)
        if not measured and r.case.operation in _HOLD_KEYS:  # a run of before keys were counted apart
            told = gap(r.case.params, r.values["input_bytes"].value)
            measured = 0.0 if told is None else float(told.measured)
        if model > 0 and measured > 0:
            share = measured / model - 1.0
            found.append(
                {
                    "backend": r.case.backend, "x": model * MIB, "y": measured * MIB, "label": r.case.label,
                    "share": share, "alarm": abs(share) > ALARM,
                }
            )  # fmt: skip
    return found


def exponent_rows(rows: Sequence[CaseValues], metric: str, limit: int = 40) -> list[dict[str, Any]]:
    """One row per line of the sweep, the steepest first: exponent with interval, and the knee where there is one."""
    cases = [r.case for r in rows]
    values = [r.values[metric].value if metric in r.values else None for r in rows]
    found: list[dict[str, Any]] = []
    for line in lines([c.columns for c in cases]):
        got = fit(line, values)
        if got is None:
            continue
        known = [(x, v) for x, i in zip(line.x, line.rows, strict=True) if (v := values[i]) is not None]
        bend = knee(*zip(*known, strict=True))
        found.append(
            {"backend": cases[line.rows[0]].backend, "axis": line.axis, "name": _name(line), "value": got.value,
             "low": got.low, "high": got.high, "shown": str(got), "points": got.n,
             "knee": "" if bend is None else f"{bend.at:g}: {bend.before} -> {bend.after}"}
        )  # fmt: skip
    return sorted(found, key=lambda f: -float(f["value"]))[:limit]


def saturation(rows: Sequence[CaseValues]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """(dots, curves, words) of the cases of the ``stream`` operation, per backend and variables; nothing where too few.

    Bytes in flight are those read and written. The published curves are drawn with the peak measured here, since what
    they are in bytes is not said; they are no fit.
    """
    groups: dict[str, list[tuple[float, float]]] = {}
    for r in rows:
        p, value = r.case.params, r.values.get("bytes_per_s")
        if r.case.operation != "stream" or value is None or value.value <= 0:
            continue
        size = 2.0 * float(str(p["rows"])) * float(str(p["columns"])) * ITEMSIZE[str(p["dtype"])]
        name = f"{r.case.backend} {p['env']}" if p.get("env") else r.case.backend
        groups.setdefault(name, []).append((size, value.value))
    dots: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    words: list[str] = []
    for name, pairs in sorted(groups.items()):
        pairs.sort()
        sizes, speeds = [a for a, _ in pairs], [b for _, b in pairs]
        try:
            found = bandwidth.fit(sizes, speeds)
        except ValueError as error:
            words.append(f"{name}: {error}")
            continue
        words.append(f"{name}: peak {found.peak} B/s, a {found.a}, b {found.b} B")
        dots += [
            {"backend": name, "x": x, "y": y / 1e9, "residual": float(np.expm1(e))}
            for x, y, e in zip(sizes, speeds, found.residuals, strict=True)
        ]
        grid = np.geomspace(sizes[0], sizes[-1], 60)
        shapes = {"fit": (found.a.value, found.b.value)} | {
            f"a of {gpu} as published": (a, found.b.value) for gpu, (_, a, _) in bandwidth.PUBLISHED.items()
        }
        for what, (a, b) in shapes.items():
            fitted = bandwidth.curve(grid, found.peak.value, a, b)
            curves += [
                {"backend": name, "x": float(x), "y": float(y) / 1e9, "what": what}
                for x, y in zip(grid, fitted, strict=True)
            ]
    return dots, curves, words


def _name(line: Line) -> str:
    """The backend and what else tells a line apart, short."""
    fixed = dict(line.fixed)
    told = [f"{k}={fixed[k]}" for k in ("phase", "batch", "q_len", "kv_len", "head_dim", "direction") if fixed.get(k)]
    return f"{fixed.get('backend')} over {line.axis} {' '.join(told)}".strip()


def levels(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Bytes held after each allocation and release, in MiB over microseconds, from the first event to the last."""
    start, last = (events[0].at_ns, events[-1].at_ns) if events else (0, 0)
    now = 0
    found: list[dict[str, Any]] = [{"t": 0.0, "mib": 0.0, "size": 0, "kind": ""}]
    for e in events:
        if e.kind in ("ALLOC", "FREE"):
            now += e.size if e.kind == "ALLOC" else -e.size
            found.append({"t": (e.at_ns - start) / 1e3, "mib": now * MIB, "size": e.size, "kind": e.kind})
    return [*found, {"t": (last - start) / 1e3, "mib": now * MIB, "size": 0, "kind": ""}]


def marks(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Copies and entries of kernels."""
    start = events[0].at_ns if events else 0
    return [
        {"t": (e.at_ns - start) / 1e3, "what": e.name or e.kind, "size": e.size}
        for e in events
        if e.kind not in ("ALLOC", "FREE")
    ]


def address_rows(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Share of each part of the used address space that is held over time; gaps that nothing ever used are left out."""
    allocated = [e for e in events if e.kind == "ALLOC" and e.size > 0]
    if len(allocated) < 2:
        return []
    spans = _merged(sorted((e.ptr, e.ptr + e.size) for e in allocated))
    offsets = np.concatenate(([0], np.cumsum([b - a for a, b in spans])))
    starts = np.array([a for a, _ in spans])
    total = int(offsets[-1])
    first, last = events[0].at_ns, events[-1].at_ns
    times = np.linspace(first, last, min(_MOMENTS, 2 * len(events)) + 1)
    edges = np.linspace(0, total, min(_CELLS, total) + 1)
    held = np.zeros(len(edges) - 1)
    sizes: dict[int, int] = {}
    rows, at = [], 0
    ordered = [e for e in events if e.kind in ("ALLOC", "FREE")]
    for begin, end in pairwise(times):
        while at < len(ordered) and ordered[at].at_ns <= end:
            e, sign = ordered[at], 1.0 if ordered[at].kind == "ALLOC" else -1.0
            size = e.size if sign > 0 else sizes.pop(e.ptr, 0)
            if sign > 0:
                sizes[e.ptr] = size
            region = int(np.searchsorted(starts, e.ptr, side="right")) - 1
            if size and region >= 0:
                low = int(offsets[region]) + e.ptr - int(starts[region])
                held += sign * np.clip(np.minimum(edges[1:], low + size) - np.maximum(edges[:-1], low), 0, None)
            at += 1
        rows += [
            {"t": (begin - first) / 1e3, "t2": (end - first) / 1e3, "cell": float(a), "cell2": float(b),
             "held": round(float(h / (b - a)), 3)}
            for a, b, h in zip(edges, edges[1:], held, strict=False)
        ]  # fmt: skip
    return rows


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found = [spans[0]]
    for a, b in spans[1:]:
        if a <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], b)
        else:
            found.append((a, b))
    return found


def history_rows(text: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """(cells for the chart, a table of the policies, number of blocks) of a recorded history of fragmentation.

    InputError for a text that ``python -m harness.catalogue.fragmentation`` did not write.
    """
    try:
        found = json.loads(text)
        blocks = int(found["blocks"])
        rows, table = [], []
        for policy, told in found["policies"].items():
            times = [*told["time"], 2 * told["time"][-1] - told["time"][-2]]
            for t, t2, cells in zip(times[:-1], times[1:], told["held"], strict=True):
                edge = blocks / len(cells)
                rows += [
                    {
                        "t": t,
                        "t2": t2,
                        "cell": i * edge,
                        "cell2": (i + 1) * edge,
                        "held": float(h),
                        "policy": str(policy),
                    }
                    for i, h in enumerate(cells)
                ]
            table.append(
                {
                    "policy": str(policy), "refused": int(told["refused"]),
                    "refused with blocks enough": int(told["fragmented"]),
                    "flagged by the incident's rule": f"{float(told['flagged']):.0%}",
                }
            )  # fmt: skip
        return rows, table, blocks
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, ZeroDivisionError) as error:
        raise InputError(f"no history of fragmentation: {type(error).__name__}: {error}") from None
