"""What the page on numerics shows, as rows for its tables: rates, a traced path, a difference of snapshots. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from db.screens import CaseValues
from harness.catalogue.estimates import share
from harness.model import InputError, Status

#: Reports that the page reads, and the commands that write them.
TRACE, DIFFERENCE = "trace-nan.json", "diff-snapshots.json"
COMMANDS = {
    TRACE: "attnwatch trace-nan MODULE:CALLABLE --json > reports/trace-nan.json",
    DIFFERENCE: "attnwatch diff-snapshots A B --json > reports/diff-snapshots.json",
}

#: Statuses of a case whose result was looked at.
_GATED = (Status.OK, Status.WRONG, Status.NON_FINITE)

#: Steps of a path that are listed, the first ones.
STEPS = 100


def rates(rows: Sequence[CaseValues]) -> list[dict[str, Any]]:
    """Per backend and dtype: cases whose result was looked at, how many were wrong or not finite, the share that was
    not finite with its 95 % interval, and the largest errors."""
    tally = Counter((*_group(r), r.status) for r in rows)
    found = []
    for backend, dtype in sorted({_group(r) for r in rows}):
        ok, wrong, bad = (tally[backend, dtype, s] for s in _GATED)
        gated = ok + wrong + bad
        rate = share(bad, gated) if gated else None
        mine = [r.values for r in rows if _group(r) == (backend, dtype)]
        found.append(
            {
                "backend": backend, "dtype": dtype, "gated": gated, "wrong": wrong, "NaN or infinity": bad,
                "share not finite": None if rate is None else f"{rate.value:.1%} [{rate.low:.1%}, {rate.high:.1%}]",
                "largest error": _largest(mine, "max_abs_error"),
                "over the largest value": _largest(mine, "max_rel_error"),
            }
        )  # fmt: skip
    return found


def _group(row: CaseValues) -> tuple[str, str]:
    return row.case.backend, str(row.case.params.get("dtype") or "-")


def _largest(values: Sequence[Mapping[str, Any]], name: str) -> float | None:
    return max((v[name].value for v in values if name in v), default=None)


def path(text: str) -> tuple[str, list[dict[str, Any]]]:
    """(what was found, a row per step from the culprit to the result) of a record of ``trace-nan --json``.

    InputError for anything else.
    """
    try:
        found = json.loads(text)
        target = f"{found['target']}: " if found.get("target") else ""
        if "nodes" in found:
            r = found["record"]
            if r is None:
                return f"{target}every node is finite ({int(found['nodes'])} ran).", []
            return f"{target}node {r['node']} of graph {int(r['graph'])} first.", [
                {"operator": str(r["op"]), "module": "", "NaN and +inf": int(r["not_finite"]), "dtype": str(r["dtype"]),
                 "shape": str(r["shape"])}
            ]  # fmt: skip
        state = "finite" if found["finite"] else "not finite"
        bad, ran = int(found["bad_steps"]), int(found["operators"])
        said = f"{target}the result is {state}; {bad} of {ran} operators gave NaN or +inf"
        if (culprit := found["culprit"]) is not None:
            said += f", first {culprit['op']} in {culprit['module'] or culprit['node'] or 'no module'}"
        return f"{said}.", [_step(s) for s in found["path"][:STEPS]]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise InputError(f"{TRACE} is no record of trace-nan: {type(error).__name__}: {error}") from None


def _step(s: Mapping[str, Any]) -> dict[str, Any]:
    inputs = [float(t["absmax"]) for t in s["inputs"] if t["absmax"] is not None]
    return {
        "operator": str(s["op"]), "module": str(s["module"] or s["node"]), "phase": str(s["phase"]),
        "largest finite input": max(inputs, default=None),
        "NaN": sum(int(t["nan"]) for t in s["outputs"]), "+inf": sum(int(t["inf"]) for t in s["outputs"]),
        "dtype": ", ".join(dict.fromkeys(str(t["dtype"]) for t in s["outputs"])),
        "shape": ", ".join(str(t["shape"]) for t in s["outputs"]),
    }  # fmt: skip


def difference(text: str) -> tuple[str, list[dict[str, Any]]]:
    """(what was found, a row for each side) of a record of ``diff-snapshots --json``. InputError for anything else."""
    try:
        found = json.loads(text)
        sides = [str(found.get(side) or side.upper()) for side in ("a", "b")]
        d = found["difference"]
        if d is None:
            return f"No node differs between {sides[0]} and {sides[1]}.", []
        rows = [
            {"side": name, "graph": int(r["graph"]), "node": str(r["node"]), "operator": str(r["op"]),
             "dtype": str(r["dtype"]), "shape": str(r["shape"]), "min": r["low"], "max": r["high"], "mean": r["mean"],
             "not finite": int(r["not_finite"])}
            for name, r in zip(sides, (d["a"], d["b"]), strict=True) if r is not None
        ]  # fmt: skip
        return f"First at node {int(d['index'])}: {d['what']}.", rows
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise InputError(f"{DIFFERENCE} is no record of diff-snapshots: {type(error).__name__}: {error}") from None
