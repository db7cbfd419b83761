"""Operations of a server: decode steps over a request mix, batches through a compiler, a pool of cache blocks.

For each the inputs that the ruler owns, how much work they are, and what is read off the notes that an implementation
takes while it runs once, outside all timing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from harness.catalogue.fragmentation import trace
from harness.catalogue.traffic import Schedule, Traffic, quantile_ranks, schedule
from harness.model import Params, Value

from .arguments import Inputs, Note, Notes
from .counting import ITEMSIZE, Span, Work, work
from .params import ParamError, dtype_name, integer, numbers, optional_number

#: Requests stay this many arrivals' units of time on the average.
_STAY = 100.0


def _positive(params: Params, name: str) -> float:
    found = optional_number(params, name)
    if found is None or not math.isfinite(found) or found <= 0:
        raise ParamError(f"parameter {name}: {params.get(name)!r} is no number above 0")
    return found


def _mix(params: Params) -> tuple[int, ...]:
    found = numbers(params, "lengths")
    if min(found) < 1 or (min(found), max(found)) != (params.get("shortest"), params.get("longest")):
        raise ParamError(f"parameters shortest and longest: must be the ends of lengths, which are {found}")
    return found


def _schedule(params: Params) -> Schedule:
    new, capacity = integer(params, "new_tokens"), integer(params, "capacity")
    mix = _mix(params)
    if max(mix) + new - 1 > capacity:
        raise ParamError(f"parameter capacity: {capacity} does not hold {max(mix)} tokens and {new - 1} more")
    traffic = Traffic(integer(params, "requests"), _positive(params, "rate"), 0, mix, new, heavy=0.0)
    return schedule(traffic, integer(params, "max_batch"))


def serving(params: Params, seed: int, device: str) -> Inputs:
    """x (tokens, H) of variance ``variance``, cache (max_batch, 2, Hkv, capacity, D), weight and bias (H,); H is
    heads_q x head_dim. ``schedule`` (steps, max_batch) int32 on the host: valid keys per slot, 0 where it is empty.

    A slot's keys are the same whoever sits in it, and nothing is appended: what is measured is reading them.
    """
    import torch

    from . import inputs

    heads_q, heads_kv, dim = (integer(params, n) for n in ("heads_q", "heads_kv", "head_dim"))
    steps, hidden, dtype = _schedule(params).steps, heads_q * dim, dtype_name(params)
    tokens = sum(n > 0 for row in steps for n in row)
    made = inputs.Maker(seed, device)
    x = (made.normal((tokens, hidden), "float32") * math.sqrt(_positive(params, "variance"))).to(getattr(torch, dtype))
    cache = made.normal((integer(params, "max_batch"), 2, heads_kv, integer(params, "capacity"), dim), dtype)
    weight, bias = (made.normal((hidden,), dtype) for _ in range(2))
    options = {"schedule": torch.tensor(steps, dtype=torch.int32), "note": Notes()}
    return Inputs({"x": x, "cache": cache, "weight": weight, "bias": bias}, options)


def serving_work(params: Params) -> Work:
    """Attention of each token over its valid keys."""
    heads_q, heads_kv, dim = (integer(params, n) for n in ("heads_q", "heads_kv", "head_dim"))
    spans = [Span(1, n) for row in _schedule(params).steps for n in row if n]
    return work(spans, heads_q=heads_q, heads_kv=heads_kv, head_dim=dim, itemsize=ITEMSIZE[dtype_name(params)])


def serving_seen(call: Callable[[], Any], inputs: Inputs, params: Params) -> dict[str, float | Value]:
    """FLOPs over those needed; time of a token, and from a request's arrival to its first token, by step."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    plan = _schedule(params)
    keys = sum(map(sum, plan.steps))
    found: dict[str, float | Value] = {
        "wasted_work_ratio": counter.get_total_flops()
        / (4.0 * integer(params, "heads_q") * integer(params, "head_dim") * keys)
    }
    ends = [n.at_s for n in _notes(inputs).during(call) if n.what in ("start", "step")]
    if len(ends) != len(plan.steps) + 1:
        return found
    spent = [b - a for a, b in pairwise(ends)]
    tokens = [s for s, row in zip(spent, plan.steps, strict=True) for n in row if n]
    firsts = [ends[given + 1] - ends[waits] for waits, given in plan.waits]
    for name, values, q in (("token_p50_s", tokens, 0.5), ("token_p95_s", tokens, 0.95),
                            ("token_p99_s", tokens, 0.99), ("first_token_p99_s", firsts, 0.99)):  # fmt: skip
        if (value := _quantile(values, q)) is not None:
            found[name] = value
    return found


def _quantile(values: list[float], q: float) -> Value | None:
    """None where there are too few values for an interval with two ends."""
    low, high = quantile_ranks(len(values), q)
    if low < 1 or high > len(values):
        return None
    ordered = sorted(values)
    return Value(
        ordered[min(len(ordered) - 1, int(q * len(ordered)))], ordered[low - 1], ordered[high - 1], len(values)
    )


def _notes(inputs: Inputs) -> Notes:
    found = inputs.options["note"]
    assert isinstance(found, Notes)
    return found


def _batches(params: Params) -> list[int]:
    """Batch sizes of the calls: every size once in the given order, then drawn alike."""
    sizes, calls = numbers(params, "sizes"), integer(params, "calls")
    if min(sizes) < 1 or len(set(sizes)) != len(sizes) or params.get("distinct") != len(sizes) or calls < len(sizes):
        raise ParamError("parameters sizes, distinct, calls: distinct must count the sizes, and calls must reach them")
    rng = random.Random(0)
    return [*sizes, *(rng.choice(sizes) for _ in range(calls - len(sizes)))]


def compiled_batches(params: Params, seed: int, device: str) -> Inputs:
    """x (longest batch, H), w (H, H); ``batches`` (calls,) int32 on the host: rows of each call."""
    import torch

    from . import inputs

    batches, hidden, dtype = _batches(params), integer(params, "hidden_size"), dtype_name(params)
    made = inputs.Maker(seed, device)
    x, w = made.normal((max(batches), hidden), dtype), made.normal((hidden, hidden), dtype) / math.sqrt(hidden)
    return Inputs({"x": x, "w": w}, {"batches": torch.tensor(batches, dtype=torch.int32), "note": Notes()})


def compiled_batches_work(params: Params) -> Work:
    """One product for each call."""
    rows, hidden = sum(_batches(params)), integer(params, "hidden_size")
    return Work(0, rows, 0, 2.0 * rows * hidden**2, (2 * rows * hidden + hidden**2) * ITEMSIZE[dtype_name(params)])


def compiled_batches_seen(call: Callable[[], Any], inputs: Inputs, params: Params) -> dict[str, float | Value]:
    """Graphs that a cold cache had to compile, calls that a graph from before ran, rows of padding, and their times."""
    batches = _batches(params)
    graphs = hits = padded = 0
    fresh = ran = False
    compiling, steady = 0.0, []
    begin = 0.0
    for n in _notes(inputs).during(call):
        if n.what == "call":
            begin, fresh, ran, padded = n.at_s, False, False, padded + int(n.value)
        elif n.what == "compiled":
            graphs, fresh = graphs + 1, True
        elif n.what == "ran":
            ran = True
        elif n.what == "done":
            hits += ran and not fresh
            if fresh:
                compiling += n.at_s - begin
            else:
                steady.append(n.at_s - begin)
    found: dict[str, float | Value] = {
        "compiled_graphs": float(graphs), "cache_hit_rate": hits / len(batches),
        "padding_share": padded / sum(batches) - 1.0, "compile_s": compiling,
    }  # fmt: skip
    if (value := _quantile(steady, 0.5)) is not None:
        found["steady_call_s"] = value
    return found


def _events(params: Params) -> list[tuple[int, int]]:
    """(request, blocks) of arrivals and (request, 0) of departures, in order of time."""
    mix, capacity, page = _mix(params), integer(params, "capacity"), integer(params, "page_size")
    mean_blocks = sum(-(-n // page) for n in mix) / len(mix)
    load = _positive(params, "held") * capacity / mean_blocks / _STAY
    requests = trace(integer(params, "requests"), seed=0, lengths=mix, page=page, load=load, mean_stay=_STAY)
    times = [(r.arrives, 1, i, r.blocks) for i, r in enumerate(requests)]
    times += [(r.arrives + r.stays, 0, i, 0) for i, r in enumerate(requests)]
    return [(i, blocks) for _, _, i, blocks in sorted(times)]


def block_pool(params: Params, seed: int, device: str) -> Inputs:
    """values (requests, head_dim), what each request writes into its blocks; ``events`` (2 requests, 2) int32 on the
    host: (request, blocks) as it arrives, (request, 0) as it leaves; ``capacity`` in blocks."""
    import torch

    from . import inputs

    values = inputs.Maker(seed, device).normal(
        (integer(params, "requests"), integer(params, "head_dim")), dtype_name(params)
    )
    events = torch.tensor(_events(params), dtype=torch.int32)
    return Inputs({"values": values}, {"events": events, "capacity": integer(params, "capacity"), "note": Notes()})


def block_pool_work(params: Params) -> Work:
    """Every block of a request written once and read once."""
    blocks = sum(n for _, n in _events(params))
    moved = 2 * blocks * integer(params, "head_dim") * ITEMSIZE[dtype_name(params)]
    return Work(0, integer(params, "requests"), 0, 0.0, moved)


def block_pool_seen(call: Callable[[], Any], inputs: Inputs, params: Params) -> dict[str, float | Value]:
    """Requests that found no place though there were blocks enough; the incident's two indices after each arrival."""
    misplaced, scatter, largest = 0, [], []
    notes: list[Note] = _notes(inputs).during(call)
    for n in notes:
        if n.what == "no_place":
            misplaced += 1
        elif n.what == "scatter":
            scatter.append(n.value)
        elif n.what == "largest":
            largest.append(n.value)
    found: dict[str, float | Value] = {"misplaced_requests": float(misplaced)}
    if scatter and largest:
        found |= {"free_run_scatter": max(scatter), "largest_free_share": min(largest)}
    return found
