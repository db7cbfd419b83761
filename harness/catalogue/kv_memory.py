"""How much memory K and V take: M(L) = C x L, beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from harness.model import Params

ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}

#: Share by which measurement and model may part before it is told.
ALARM = 0.05


def bytes_per_token(*, layers: int, kv_heads: int, head_dim: int, itemsize: int, batch: int = 1) -> int:
    """C: keys and values of one position in every layer and sequence, in bytes."""
    if min(layers, kv_heads, head_dim, itemsize, batch) < 1:
        raise ValueError("layers, kv_heads, head_dim, itemsize and batch must be at least 1")
    return 2 * layers * kv_heads * head_dim * itemsize * batch


def model_bytes(params: Params) -> int | None:
    """Bytes that the valid keys of a workload need; None where the workload says too little."""
    try:
        per_token = bytes_per_token(
            layers=int(str(params.get("layers", 1))),
            kv_heads=int(str(params["heads_kv"])),
            head_dim=int(str(params["head_dim"])),
            itemsize=ITEMSIZE[str(params["dtype"])],
        )
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
