"""What each node of a compiled graph held: a torch.compile backend that records, files of records, and their first
difference. torch is imported only where something is recorded.

A file is JSON lines: a header, then one record per node in the order of running. Memory is that of one node's values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from harness.model import InputError

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "attnwatch snapshots"

#: Values kept of a tensor, evenly spaced, to tell what the statistics do not.
PROBES = 16

#: Largest difference, as a share of the tensor's absmax, that rounding in another order explains.
TOLERANCE = {"float64": 1e-12, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}


@dataclass(frozen=True)
class Record:
    """One node of one graph. Statistics are over finite values; None where there are none, or for no floats."""

    graph: int
    node: str
    op: str
    shape: list[int]
    dtype: str
    low: float | None
    high: float | None
    mean: float | None
    absmax: float | None
    not_finite: int
    probes: list[float | None]


def record_of(graph: int, node: str, op: str, tensor: Tensor) -> Record:
    """What is kept of a node's tensor."""
    import torch

    values = tensor.detach().flatten()
    statistics = (torch.min, torch.max, torch.mean, lambda x: x.abs().max())
    dtype = str(tensor.dtype).removeprefix("torch.")
    if not tensor.is_floating_point():
        values = values.to(torch.float64) if not tensor.is_complex() else values.abs().double()
    finite = torch.isfinite(values)
    some = values[finite].double()
    at = torch.linspace(0, max(values.numel() - 1, 0), min(PROBES, values.numel()), dtype=torch.float64).long()
    probes = [float(v) if math.isfinite(float(v)) else None for v in values[at.to(values.device)]]
    low, high, mean, absmax = (float(f(some)) if some.numel() else None for f in statistics)
    return Record(graph, node, op, list(tensor.shape), dtype, low, high, mean, absmax, int((~finite).sum()), probes)


def _operator(target: Any) -> str:
    """The same text in every process and version: no addresses."""
    return target if isinstance(target, str) else str(getattr(target, "__name__", target))


def recording(keep: Callable[[Record, bool], None]) -> Callable[..., Any]:
    """A backend for ``torch.compile`` that runs each graph node by node and hands every computed tensor to ``keep``,
    with whether all of the node's inputs were finite. Parameters and inputs are told by the nodes that use them: their
    order in a graph depends on the code around it."""
    import torch
    from torch.fx import GraphModule, Interpreter, Node

    graphs = 0

    class Recording(Interpreter):
        def __init__(self, module: GraphModule, graph: int) -> None:
            super().__init__(module)
            self._graph = graph

        def run_node(self, n: Node) -> Any:
            result = super().run_node(n)
            if isinstance(result, torch.Tensor) and n.op.startswith("call_"):
                inputs = [self.env[i] for i in n.all_input_nodes if isinstance(self.env.get(i), torch.Tensor)]
                clean = all(bool(torch.isfinite(t).all()) for t in inputs if t.is_floating_point())
                keep(record_of(self._graph, n.name, _operator(n.target), result), clean)
            return result

    def backend(module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        nonlocal graphs
        graphs += 1
        return Recording(module, graphs - 1).run

    return backend


def write(function: Callable[[], Any], path: Path, tag: str = "") -> int:
    """Compile and run ``function``; write its records to ``path`` as they come. Returns their number."""
    import torch

    with path.open("w", encoding="utf-8") as file:
        _line(file, {"format": FORMAT, "version": 1, "torch": torch.__version__, "tag": tag})
        count = 0

        def keep(record: Record, _: bool) -> None:
            nonlocal count
            count += 1
            _line(file, asdict(record))

        torch._dynamo.reset()
        torch.compile(function, backend=recording(keep))()
    return count


def _line(file: TextIO, data: dict[str, Any]) -> None:
    file.write(json.dumps(data, allow_nan=False) + "\n")


def read(path: Path) -> Iterator[Record]:
    """Records of a file, one at a time. InputError names the file and line."""
    names = {f.name for f in fields(Record)}
    try:
        file = path.open(encoding="utf-8")
    except OSError as err:
        raise InputError(f"{path}: cannot be read: {err.strerror}") from None
    with file:
        for number, text in enumerate(file, 1):
            try:
                data = json.loads(text)
            except ValueError as err:
                raise InputError(f"{path}:{number}: not JSON: {err}") from None
            if number == 1:
                if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != 1:
                    raise InputError(f"{path}:1: not a file of snapshots of version 1 (format {FORMAT!r})")
            elif not isinstance(data, dict) or set(data) != names:
                raise InputError(f"{path}:{number}: a record has the fields {', '.join(sorted(names))}")
            else:
                yield Record(**data)


@dataclass(frozen=True)
class Difference:
    """The first node where two files part. ``what`` says how; ``share`` is the difference over the larger absmax."""

    index: int
    a: Record | None
    b: Record | None
    what: str
    share: float | None = None


def first_difference(a: Iterator[Record], b: Iterator[Record], tolerance: float | None = None) -> Difference | None:
    """Walks both files together; None where all nodes agree. ``tolerance`` replaces the ones per dtype, of which the
    coarser of the two dtypes counts."""
    index = 0
    while True:
        one, two = next(a, None), next(b, None)
        if one is None and two is None:
            return None
        found = _differ(index, one, two, tolerance)
        if found is not None:
            return found
        index += 1


def _differ(index: int, a: Record | None, b: Record | None, tolerance: float | None) -> Difference | None:
    if a is None or b is None:
        return Difference(index, a, b, "only one of the two has this node")
    if a.op != b.op:
        return Difference(index, a, b, f"operator {a.op} against {b.op}")
    if a.shape != b.shape:
        return Difference(index, a, b, f"shape {a.shape} against {b.shape}")
    if (a.not_finite > 0) != (b.not_finite > 0):
        return Difference(index, a, b, f"{a.not_finite} values not finite against {b.not_finite}")
    allowed = max(TOLERANCE.get(a.dtype, 0.0), TOLERANCE.get(b.dtype, 0.0)) if tolerance is None else tolerance
    scale = max(a.absmax or 0.0, b.absmax or 0.0)
    pairs = [("low", a.low, b.low), ("high", a.high, b.high), ("mean", a.mean, b.mean)]
    pairs += [("value", x, y) for x, y in zip(a.probes, b.probes, strict=True)]
    worst, name = 0.0, ""
    for label, x, y in pairs:
        if (x is None) != (y is None):
            return Difference(index, a, b, f"{label} is finite on one side only")
        if x is not None and y is not None and scale > 0 and abs(x - y) / scale > worst:
            worst, name = abs(x - y) / scale, label
    if worst > allowed:
        return Difference(
            index, a, b, f"{name} differs by {worst:.3g} of the largest value, {allowed:.3g} allowed", worst
        )
    return None


@dataclass(frozen=True)
class FirstBad:
    """The first node of a compiled run that was not finite though its inputs were; ``nodes`` ran in all."""

    record: Record | None
    nodes: int


def first_bad(function: Callable[[], Any]) -> FirstBad:
    """Compile and run ``function``, looking for that node. -inf that a mask fills in counts once it is NaN or +inf."""
    import torch

    found: list[Record] = []
    count = 0

    def keep(record: Record, clean: bool) -> None:
        nonlocal count
        count += 1
        if record.not_finite and clean and not found and "masked_fill" not in record.op:
            found.append(record)

    torch._dynamo.reset()
    torch.compile(function, backend=recording(keep))()
    return FirstBad(found[0] if found else None, count)
