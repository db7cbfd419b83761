"""The shared parameter names, once: their order on screens and the kind of value each holds."""

from __future__ import annotations

#: name -> type of its value, in the order in which people read them.
PARAMETERS: dict[str, type] = {
    "batch": int,
    "heads_q": int,
    "heads_kv": int,
    "q_len": int,
    "kv_len": int,
    "head_dim": int,
    "dtype": str,
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
