"""From tensors to launches of the forward kernel: whole, or split along the keys and merged."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ..backend import Unsupported
from . import tiles
from .choices import choose
from .forward_kernel import attend, merge
from .launch import Launch
from .targets import EIGHT_SINCE, Facts, interpreting
from .tiles import Config

LOG2E = math.log2(math.e)

#: Most packed rows (queries x group) of a sequence at which keys are split over programs.
SPLIT_ROWS = 128


@dataclass(frozen=True)
class Rule:
    """Which keys a query sees and how scores are made; ``scale`` is already a number."""

    causal: bool
    bottom_right: bool
    window: int | None
    softcap: float | None
    scale: float


@dataclass(frozen=True)
class Layout:
    """Where sequences and their keys lie.

    ``batch`` sequences with at most ``q_len`` queries and ``kv_len`` keys. With ``cu_q`` queries are (total, Hq, D);
    with ``cu_k`` keys are (total, Hkv, D); with ``table`` and ``lens`` they are pages of ``page_size``.
    """

    batch: int
    q_len: int
    kv_len: int
    cu_q: Tensor | None = None
    cu_k: Tensor | None = None
    table: Tensor | None = None
    lens: Tensor | None = None
    page_size: int = 0


@dataclass(frozen=True)
class Forward:
    """Launches in order, and what they write: ``out``, and ``lse`` (query rows, Hq) float32 where it was asked for."""

    launches: tuple[Launch, ...]
    out: Tensor
    lse: Tensor | None
    config: Config
    splits: int

    def run(self) -> Tensor:
        """Queue all launches; the result is ``out``."""
        for launch in self.launches:
            launch.run()
        return self.out


def plan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rule: Rule,
    layout: Layout,
    facts: Facts,
    *,
    keep_lse: bool = False,
    config: Config | None = None,
    splits: int | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> Forward:
    """Launches that compute attention of ``q`` over ``k`` and ``v``, laid out as ``layout`` says.

    Args:
        q: (B, Hq, Sq, Dk), or (total_q, Hq, Dk) with ``layout.cu_q``.
        k, v: (B, Hkv, Skv, D*), (total_k, Hkv, D*), or caches (num_blocks, page_size, Hkv, D*). Any strides; may be
            of an 8-bit float type, which is converted tile by tile.
        config, splits: tile sizes and segments instead of the chosen ones.
        k_scale, v_scale: what stored keys and values are to be multiplied by.

    Nothing is run, and no length is read from the device. Tensors are allocated on the device of ``q``.
    """
    if k.dtype is torch.float8_e4m3fn and facts.arch < EIGHT_SINCE and not interpreting():
        raise Unsupported(f"float8_e4m3fn needs compute capability 8.9; this device has {facts.arch / 10:.1f}")
    heads_q = q.shape[1]
    heads_kv = k.shape[2] if layout.page_size else k.shape[1]
    group = heads_q // heads_kv
    head_k, head_v = k.shape[-1], v.shape[-1]
    rows = layout.q_len * group
    query_rows = q.shape[0] if layout.cu_q is not None else layout.batch * layout.q_len
    out = q.new_empty((*q.shape[:-1], head_v))
    lse = torch.empty((query_rows, heads_q), dtype=torch.float32, device=q.device) if keep_lse else None
    if config is None:
        plain = rule.window is None and rule.softcap is None and layout.cu_q is None
        kind = "paged" if layout.page_size else "ragged" if layout.cu_q is not None else "dense"
        # The key holds what changes the code or the balance of the tile; lengths only as a power of two.
        key = (
            f"attend {kind} {str(q.dtype)[6:]} {str(k.dtype)[6:]} dk{head_k} dv{head_v} group{group} "
            f"rows{min(256, tiles.power_of_two(rows))} kv{tiles.power_of_two(layout.kv_len)} "
            f"causal{int(rule.causal)} window{int(rule.window is not None)} softcap{int(rule.softcap is not None)}"
        )
        config = choose(facts.name, key, tiles.forward_config(facts.arch, max(head_k, head_v), rows, plain, group))
    per_head = -(-rows // config.block_m)
    programs = per_head * layout.batch * heads_kv
    if splits is None:
        splits = 1
        if rows <= SPLIT_ROWS:
            splits = tiles.segments(programs, -(-layout.kv_len // config.block_n), facts.sms)
    if config.descriptor and not _descriptors_fit(k, v, layout, facts):
        config = replace(config, descriptor=False)

    bytes_per_key = head_k * k.element_size() + head_v * v.element_size()
    scale, cap = rule.scale * k_scale * LOG2E, 0.0
    if rule.softcap is not None:
        scale, cap = rule.scale * k_scale / rule.softcap, rule.softcap * LOG2E
    part = top = total = None
    if splits > 1:
        part = torch.empty((splits, query_rows * heads_q, head_v), dtype=torch.float32, device=q.device)
        top, total = torch.empty((2, splits, query_rows * heads_q), dtype=torch.float32, device=q.device)
    k0, k1 = tiles.halves(head_k)
    v0, v1 = tiles.halves(head_v)
    arguments = {
        "Q": q,
        "K": _descriptor(k, config, k0) if config.descriptor else k,
        "V": _descriptor(v, config, v0) if config.descriptor else v,
        "Out": out,
        "Lse": lse if splits == 1 else None,
        "Part": part,
        "PartTop": top,
        "PartTotal": total,
        "CuQ": layout.cu_q,
        "CuK": layout.cu_k,
        "Table": layout.table,
        "Lens": layout.lens,
        **strides("q", q, layout.cu_q is not None, 0),
        **strides("k", k, layout.cu_k is not None, layout.page_size),
        **strides("v", v, layout.cu_k is not None, layout.page_size),
        **strides("o", out, layout.cu_q is not None, 0),
        "stride_table": 0 if layout.table is None else layout.table.stride(0),
        "part_rows": query_rows * heads_q,
        "heads_kv": heads_kv,
        "rows_kv": layout.batch * heads_kv,
        "q_len": layout.q_len,
        "kv_len": layout.kv_len,
        "window": rule.window or 0,
        "tiles": per_head,
        "band": tiles.band(layout.kv_len, bytes_per_key, layout.batch * heads_kv, facts.l2),
        "splits": splits,
        "scale": scale,
        "cap": cap,
        "v_scale": v_scale,
        "GROUP": group,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "DK": head_k,
        "DK0": k0,
        "DK1": k1,
        "DV": head_v,
        "DV0": v0,
        "DV1": v1,
        "CAUSAL": rule.causal,
        "BOTTOM_RIGHT": rule.bottom_right,
        "WINDOW": rule.window is not None,
        "SOFTCAP": rule.softcap is not None,
        "SCALE_LATE": rule.softcap is None and rule.scale * k_scale > 0,
        "PAGE_SIZE": layout.page_size,
        "USE_DESC": config.descriptor,
        "WIDE": far(
            config.block_n, *(strides("k", x, layout.cu_k is not None, layout.page_size)["stride_ks"] for x in (k, v))
        ),
        "SPLIT": splits > 1,
        "KEEP_LSE": keep_lse,
    }
    launches = [Launch(attend, programs * splits, arguments, config.options)]
    if splits > 1:
        assert part is not None and top is not None and total is not None
        launches.append(_merge(part, top, total, out, lse, layout, head_v, splits, v_scale))
    return Forward(tuple(launches), out, lse, config, splits)


def _merge(
    part: Tensor,
    top: Tensor,
    total: Tensor,
    out: Tensor,
    lse: Tensor | None,
    layout: Layout,
    head_v: int,
    splits: int,
    v_scale: float,
) -> Launch:
    block_d = tiles.power_of_two(head_v)
    rows = part.shape[1]
    arguments = {
        "Part": part,
        "PartTop": top,
        "PartTotal": total,
        "Out": out,
        "Lse": lse,
        **strides("o", out, layout.cu_q is not None, 0),
        "part_rows": rows,
        "heads": out.shape[1],
        "q_len": max(1, out.shape[0] if layout.cu_q is not None else layout.q_len),
        "splits": splits,
        "v_scale": v_scale,
        "DV": head_v,
        "BLOCK_D": block_d,
        # Up to 4096 partial numbers at a time keep loads in flight without filling the registers.
        "BLOCK_S": max(2, min(tiles.power_of_two(splits), 4096 // block_d)),
        "KEEP_LSE": lse is not None,
    }
    return Launch(merge, rows, arguments, {"num_warps": 4})


def strides(name: str, x: Tensor, ragged: bool, page_size: int) -> dict[str, int]:
    """Strides of batch (or page), head, sequence and head_dim, in elements."""
    if page_size:
        block, row, head, column = x.stride()
    elif ragged:
        block, (row, head, column) = 0, x.stride()
    else:
        block, head, row, column = x.stride()
    return {f"stride_{name}b": block, f"stride_{name}h": head, f"stride_{name}s": row, f"stride_{name}d": column}


def far(rows: int, *steps: int) -> bool:
    """Whether an offset inside a tile of that many rows may need 64 bits."""
    return any(rows * step >= 2**30 for step in steps)


def _descriptors_fit(k: Tensor, v: Tensor, layout: Layout, facts: Facts) -> bool:
    """Whether K and V can be read through tensor descriptors.

    Ragged K/V cannot: a tile past the end of one sequence would bring in its neighbour, and 0 x NaN is NaN.
    """
    if facts.arch < 90 or layout.page_size or layout.cu_k is not None or not k.numel():
        return False
    for x in (k, v):
        bits = x.element_size()
        rows = all(s > 0 and s * bits % 16 == 0 for s in x.stride()[:-1])
        aligned = x.device.type == "meta" or x.data_ptr() % 16 == 0
        if not (rows and aligned and x.stride(-1) == 1 and tiles.halves(x.shape[-1])[1] == 0):
            return False
    return True


def _descriptor(x: Tensor, config: Config, width: int) -> TensorDescriptor:
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, config.block_n, width])
