"""Grids of ten parameters, about a million points each, and tables drawn from them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.model.expr import compile_expr

Row = dict[str, Any]
Grid = dict[str, list[Any]]

SERVING: Grid = {
    "backend": ["sdpa_flash", "sdpa_efficient", "flash_attn", "xformers"],
    "dtype": ["float16", "bfloat16", "float32"],
    "batch": [1, 3, 16, 64, 256],
    "heads_q": [8, 12, 32, 64],
    "heads_kv": [1, 4, 8],
    "q_len": [1, 4, 17, 512, 2048],
    "kv_len": [64, 127, 512, 1000, 1024, 1025, 1056, 2048, 4096, 32768],
    "head_dim": [64, 80, 96, 128, 256],
    "causal": [False, True],
    "page_size": [1, 16, 256],
}
TRAINING: Grid = {
    "backend": ["flex", "sdpa_cudnn", "flash_attn", "xformers"],
    "dtype": ["float16", "bfloat16"],
    "batch": [1, 2, 31, 32, 33, 128],
    "heads": [6, 8, 12, 16, 40],
    "seq_len": [128, 192, 320, 500, 512, 513, 1023, 1024, 1088, 2048, 3000, 8192],
    "head_dim": [32, 64, 72, 128, 132, 192, 256, 512],
    "causal": [False, True],
    "mask": ["none", "bool", "bias"],
    "direction": ["fwd", "bwd"],
    "window": [None, 128, 1024],
}
LARGE: Grid = {
    "backend": ["triton", "cutlass", "flash_attn", "segmented"],
    "layout": ["bhsd", "bshd", "thd"],
    "batch": [1, 8, 128, 1024, 16384, 65535, 65536],
    "heads": [1, 5, 16, 96, 128],
    "q_len": [1, 2, 63, 64, 1024],
    "kv_len": [1, 100, 255, 1024, 4097, 65536, 131072, 131073],
    "head_dim": [16, 64, 120, 128],
    "num_splits": [1, 2, 7],
    "segment_len": [64, 128, 4096],
    "dtype": ["float16", "bfloat16", "float8_e4m3"],
}
DECODE: Grid = {
    "backend": ["paged", "paged_gather", "flashinfer", "flash_attn_3"],
    "kv_dtype": ["bfloat16", "fp8", "int8"],
    "batch": [1, 2, 8, 24, 96, 192],
    "heads_q": [16, 28, 48, 64],
    "heads_kv": [2, 4, 16],
    "q_len": [1, 2, 8],
    "kv_len": [33, 256, 1040, 2049, 4096, 6000, 8191, 16384, 70000],
    "head_dim": [64, 96, 128, 160, 576],
    "page_size": [16, 32, 128],
    "graph": [False, True],
    "softcap": [0.0, 30.0, 50.0],
}
VARLEN: Grid = {
    "kernel": ["varlen_v1", "varlen_v2", "padded", "nested", "jagged"],
    "arch": ["sm80", "sm90", "sm100"],
    "sequences": [1, 7, 16, 63, 64, 65],
    "max q len": [1, 96, 128, 1000, 1536, 4096],
    "max kv len": [96, 128, 1000, 1536, 5000, 16384, 16385],
    "heads": [2, 3, 8, 24],
    "head_dim": [40, 64, 112, 128, 256],
    "dropout": [0.0, 0.1],
    "alibi": [False, True],
    "block_m": [32, 64, 128],
    "block_n": [32, 64, 128],
}

GRIDS = {"serving": SERVING, "training": TRAINING, "large": LARGE, "decode": DECODE, "varlen": VARLEN}


@dataclass(frozen=True)
class Table:
    """Rows drawn from a grid and the truth of a predicate on them."""

    rows: list[Row]
    truth: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def draw(grid: Grid, predicate: str, n: int, rng: np.random.Generator) -> Table:
    """``n`` distinct combinations, uniformly, with the truth of ``predicate``."""
    names = list(grid)
    seen: dict[tuple[int, ...], None] = {}
    while len(seen) < n:
        picks = np.stack([rng.integers(0, len(grid[c]), n) for c in names], axis=1)
        for pick in map(tuple, picks.tolist()):
            if len(seen) < n:
                seen.setdefault(pick)
    rows = [{c: grid[c][i] for c, i in zip(names, pick, strict=True)} for pick in seen]
    test = compile_expr(predicate)
    return Table(rows, np.array([test(r) for r in rows]))


def same_on_grid(grid: Grid, first: str, second: str) -> bool:
    """True where both predicates hold on the same points of the whole grid."""
    a, b = compile_expr(first), compile_expr(second)
    used = [c for c in grid if c in a.names | b.names]
    size = math.prod(len(grid[c]) for c in used)
    points = itertools.product(*(grid[c] for c in used))
    if size > 150_000:
        # Most wrong predicates differ on many points: look at some before looking at all.
        rng = np.random.default_rng(size)
        for _ in range(5000):
            row = {c: grid[c][int(rng.integers(len(grid[c])))] for c in used}
            if a(row) != b(row):
                return False
    for point in points:
        row = dict(zip(used, point, strict=True))
        if a(row) != b(row):
            return False
    return True


def union_text(texts: list[str]) -> str:
    """The texts of several triggers as one expression."""
    return " or ".join(f"({t})" for t in texts) if texts else "False"
