"""How much memory K and V take: M(L) = C x L, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.model import Case, Params

ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}

#: Share by which measurement and model may part before it is told.
ALARM = 0.05


def bytes_per_token(*, layers: int, kv_heads: int, head_dim: int, itemsize: int, batch: int = 1) -> int:
    """C: keys and values of one position in every layer and sequence, in bytes."""
    if min(layers, kv_heads, head_dim, itemsize, batch) < 1:
        raise ValueError("layers, kv_heads, head_dim, itemsize and batch must be at least 1")
    return 2 * layers * kv_heads * head_dim * itemsize * batch


def model_bytes(params: Params) -> int | None:
    """Bytes that the valid keys of a workload need; None where the workload says too little.

    ``kv_dtype`` and ``head_dim_v`` count where they are given; under the layout ``expanded_kv`` there is one head.
    """
    try:
        keys, values = (
            bytes_per_token(
                layers=int(str(params.get("layers", 1))),
                kv_heads=1 if params.get("layout") == "expanded_kv" else int(str(params["heads_kv"])),
                head_dim=int(str(dim)),
                itemsize=ITEMSIZE[str(params.get("kv_dtype") or params["dtype"])],
            )
            for dim in (params["head_dim"], params.get("head_dim_v") or params["head_dim"])
        )
        per_token = (keys + values) // 2
        if (lens := params.get("kv_lens")) is not None:
            return per_token * sum(int(n) for n in str(lens).split(","))
        return per_token * int(str(params["kv_len"])) * int(str(params["batch"]))
    except (KeyError, ValueError):
        return None


def query_bytes(params: Params) -> int:
    """Bytes of q, which measured inputs hold too."""
    lens = params.get("q_lens")
    queries = (
        sum(int(n) for n in str(lens).split(","))
        if lens is not None
        else int(str(params["q_len"])) * int(str(params["batch"]))
    )
    one = int(str(params["heads_q"])) * int(str(params["head_dim"])) * ITEMSIZE[str(params["dtype"])]
    return queries * one * int(str(params.get("layers", 1)))


@dataclass(frozen=True)
class Gap:
    """Model and measurement of one row, in bytes; ``share`` is (measured - model) / model."""

    model: int
    measured: int
    share: float
    alarm: bool


def gap(params: Params, input_bytes: float, alarm: float = ALARM) -> Gap | None:
    """Measured inputs less q beside the model; None where the model does not apply. Capacity that nobody filled, pages
    that are not full and masks all show as a positive share."""
    model = model_bytes(params)
    if not model:
        return None
    measured = int(input_bytes) - query_bytes(params)
    share = measured / model - 1.0
    return Gap(model, measured, share, abs(share) > alarm)


#: Parameters by which a workload asks for more than its valid keys need.
_ASKED = ("capacity", "page_size")


def parted(rows: Iterable[tuple[str, Params, Mapping[str, float]]], alarm: float = ALARM) -> list[str]:
    """A sentence where keys and values take another amount of memory than C x L says, by more than ``alarm``.

    ``rows``: name, parameters and metrics of each case. Counted are those among the inputs and those that the call made
    for itself. Workloads that ask for more, by a capacity or by pages, are left out: what they leave unused is no
    surprise.
    """
    worst, name, many, total = 0.0, "", 0, 0
    for label, params, value in rows:
        model = value.get("kv_model_bytes")
        held = value.get("kv_cache_bytes", 0.0) + value.get("peak_kv_cache_bytes", 0.0)
        if not model or not held or any(params.get(n) is not None for n in _ASKED):
            continue
        total += 1
        share = held / model - 1.0
        if abs(share) > alarm:
            many += 1
            if abs(share) > abs(worst):
                worst, name = share, f"{label}: {held:.3g} B for {model:.3g} B"
    if not many:
        return []
    return [
        f"K/V memory parts from the model C x L by more than {alarm:.0%} in {many} of {total} cases, most in {name} "
        f"({worst:+.0%})"
    ]


def largest(cases: Iterable[Case]) -> tuple[int, Case] | None:
    """The most bytes that the keys and values of one of ``cases`` need, by the model, and that case."""
    found = ((size, case) for case in cases if (size := model_bytes(case.workload.params)) is not None)
    return max(found, key=lambda one: one[0], default=None)
