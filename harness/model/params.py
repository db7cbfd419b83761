"""The shared parameter names, once: their order on screens and the kind of value each holds; and the taken names."""

from __future__ import annotations

from .metrics import METRICS

#: name -> type of its value, in the order in which people read them.
PARAMETERS: dict[str, type] = {
    "batch": int,
    "heads_q": int,
    "heads_kv": int,
    "q_len": int,
    "kv_len": int,
    "head_dim": int,
    "head_dim_v": int,
    "dtype": str,
    "kv_dtype": str,
    "causal": bool,
    "direction": str,
    "page_size": int,
    "segment_len": int,
    "layout": str,
    "mask": str,
    "causal_alignment": str,
    "window": int,
    "softcap": float,
    "scale": float,
    "q_lens": str,
    "kv_lens": str,
}

#: Stands for q_len and kv_len where both are the same.
SEQ_LEN = "seq_len"

#: Longest name (of a parameter, metric, backend, run, ...) and longest other text, in characters.
NAME_CHARS = 512
TEXT_CHARS = 64 * 1024

#: Columns of tables, exports and expressions that stand beside the parameters; a parameter called so would hide one.
RESERVED = frozenset(
    {"backend", "operation", "benchmark", "case", "status", "detail", "attempt", "stop_reason", "metrics"}
    | {"regressed", "ratio", "ratio_se"}
    | {f"{name}{end}" for name in METRICS for end in ("", "_low", "_high")}
)
