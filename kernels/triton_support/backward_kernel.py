# mypy: ignore-errors
# The bodies below are Triton's language, which has no Python types; host code that launches them is checked.
"""The backward kernels: weights are recomputed from the log-sum-exp that the forward pass kept.

``backward_kv`` owns a tile of keys and walks the packed rows that see it, so that the heads of a group add to dK and dV
in one place; ``backward_q`` owns a tile of packed rows and walks its keys. Nothing is added atomically: the same input
gives the same bits. Packing, split head sizes and offsets are those of the forward kernel.
"""

import triton
import triton.language as tl

from .forward_kernel import load_rows, store_rows, tanh, wide, widened

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit(do_not_specialize=["q_len", "heads", "rows"])
def backward_prepare(
    Out, Grad, Lse, Top, Delta,
    stride_ob, stride_oh, stride_os, stride_od, stride_gb, stride_gh, stride_gs, stride_gd,
    q_len, heads, rows,
    DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    """Delta = sum(Out * Grad) and Top = log2-sum-exp of every (query row, head), flat; float32.

    Top is +inf for rows that saw no key, so that their recomputed weights are exactly 0.
    """
    flat = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    live = flat < rows
    query, head = flat // heads, flat % heads
    b, i = query // q_len, query % q_len
    d = tl.arange(0, BLOCK_D)
    keep = live[:, None] & (d[None, :] < DV)
    at = (b * stride_ob + i * stride_os + head * stride_oh)[:, None] + d[None, :] * stride_od
    out = tl.load(Out + at, mask=keep, other=0.0).to(tl.float32)
    at = (b * stride_gb + i * stride_gs + head * stride_gh)[:, None] + d[None, :] * stride_gd
    grad = tl.load(Grad + at, mask=keep, other=0.0).to(tl.float32)
    tl.store(Delta + flat, tl.sum(out * grad, 1), mask=live)
    lse = tl.load(Lse + flat, mask=live, other=0.0)
    tl.store(Top + flat, tl.where(lse == float("-inf"), float("inf"), lse * LOG2E), mask=live)


@triton.jit
def weigh(s, dp, top, delta, keep, scale, cap, SOFTCAP: tl.constexpr, MASKED: tl.constexpr):
    """(weights, gradient of the scaled scores) from raw products ``s`` and ``dp``; top and delta broadcast."""
    if SOFTCAP:
        t = tanh(s * scale)
        p = tl.exp2(cap * t - top)
        ds = p * (dp - delta) * (1.0 - t * t)
    else:
        p = tl.exp2(s * scale - top)
        ds = p * (dp - delta)
    if MASKED:
        p = tl.where(keep, p, 0.0)
        ds = tl.where(keep, ds, 0.0)
    return p, ds


@triton.jit
def product(a0, a1, b0, b1, SECOND: tl.constexpr):
    """a b^T over a head size in two parts."""
    s = tl.dot(a0, tl.trans(b0))
    if SECOND > 0:
        s = tl.dot(a1, tl.trans(b1), s)
    return s


@triton.jit
def visible(live, key, position, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Which (row, key) pairs take part; the arguments broadcast to the tile."""
    keep = live
    if CAUSAL:
        keep = keep & (key <= position)
    if WINDOW:
        keep = keep & (key > position - window)
    return keep


@triton.jit
def walk_rows(
    dk0, dk1, dv0, dv1, k0, k1, v0, v1, key, lo, hi,
    Q, Grad, Top, Delta, q_base, g_base, flat_base,
    stride_qh, stride_qs, stride_qd, stride_gh, stride_gs, stride_gd,
    heads_q, q_len, offset, window, scale, cap,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, ROWS_FIRST: tl.constexpr,
    WIDE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Packed rows [lo, hi) in steps of BLOCK_M. MASKED tiles check every row; the others see all keys of the tile.

    ROWS_FIRST makes scores as (rows, keys) and turns the weights over through shared memory; otherwise they are made
    turned over, which keeps K and V in registers for the whole walk: too many for large heads.
    """
    for start in tl.range(lo, hi, BLOCK_M):
        r = start + tl.arange(0, BLOCK_M)
        first = start // GROUP
        near, member = widened(r // GROUP - first, WIDE), widened(r % GROUP, WIDE)
        live = r < q_len * GROUP
        q_tile, g_tile = Q + q_base + wide(first) * stride_qs, Grad + g_base + wide(first) * stride_gs
        q_rows = near * stride_qs + member * stride_qh
        g_rows = near * stride_gs + member * stride_gh
        flat = flat_base + wide(first) * heads_q + near * heads_q + member
        if MASKED:
            top = tl.load(Top + flat, mask=live, other=float("inf"))
            delta = tl.load(Delta + flat, mask=live, other=0.0)
        else:
            top = tl.load(Top + flat)
            delta = tl.load(Delta + flat)
        q0 = load_rows(q_tile, q_rows, live, stride_qd, 0, DK0, DK, MASKED)
        q1 = q0
        if DK1 > 0:
            q1 = load_rows(q_tile, q_rows, live, stride_qd, DK0, DK1, DK, MASKED)
        g0 = load_rows(g_tile, g_rows, live, stride_gd, 0, DV0, DV, MASKED)
        g1 = g0
        if DV1 > 0:
            g1 = load_rows(g_tile, g_rows, live, stride_gd, DV0, DV1, DV, MASKED)
        position = r // GROUP + offset
        if ROWS_FIRST:
            s = product(q0, q1, k0, k1, DK1)
            dp = product(g0, g1, v0, v1, DV1)
            keep = visible(live[:, None], key[None, :], position[:, None], window, CAUSAL, WINDOW)
            p, ds = weigh(s, dp, top[:, None], delta[:, None], keep, scale, cap, SOFTCAP, MASKED)
            p, ds = tl.trans(p.to(k0.dtype)), tl.trans(ds.to(k0.dtype))
        else:
            s = product(k0, k1, q0, q1, DK1)
            dp = product(v0, v1, g0, g1, DV1)
            keep = visible(live[None, :], key[:, None], position[None, :], window, CAUSAL, WINDOW)
            p, ds = weigh(s, dp, top[None, :], delta[None, :], keep, scale, cap, SOFTCAP, MASKED)
            p, ds = p.to(k0.dtype), ds.to(k0.dtype)
        dv0 = tl.dot(p, g0, dv0)
        if DV1 > 0:
            dv1 = tl.dot(p, g1, dv1)
        dk0 = tl.dot(ds, q0, dk0)
        if DK1 > 0:
            dk1 = tl.dot(ds, q1, dk1)
    return dk0, dk1, dv0, dv1


# Lengths and counts change from call to call; compiling anew for those that are 1 or a multiple of 16 buys nothing.
@triton.jit(do_not_specialize=["heads_kv", "q_len", "kv_len", "window", "tiles"])
def backward_kv(
    Q, K, V, Grad, Top, Delta, GradK, GradV, CuQ, CuK,
    stride_qb, stride_qh, stride_qs, stride_qd, stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd, stride_gb, stride_gh, stride_gs, stride_gd,
    stride_xb, stride_xh, stride_xs, stride_xd, stride_yb, stride_yh, stride_ys, stride_yd,
    heads_kv, q_len, kv_len, window, tiles, scale, cap, grad_scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    CAUSAL: tl.constexpr, BOTTOM_RIGHT: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
    ROWS_FIRST: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """GradK (strides x) and GradV (strides y) of one tile of keys of one K/V head. Layouts as in ``attend``."""
    pid = tl.program_id(0)
    tile, row_kv = pid % tiles, pid // tiles
    b, head = row_kv // heads_kv, (row_kv % heads_kv).to(tl.int64)
    heads_q = heads_kv * GROUP
    row_q = b.to(tl.int64) * q_len
    first_q = tl.zeros([], tl.int64)
    first_k = tl.zeros([], tl.int64)
    if CuQ is not None:
        begin = tl.load(CuQ + b)
        q_len = tl.load(CuQ + b + 1) - begin
        row_q = begin.to(tl.int64)
        first_q = row_q
    if CuK is not None:
        begin = tl.load(CuK + b)
        kv_len = tl.load(CuK + b + 1) - begin
        first_k = begin.to(tl.int64)
    n0 = tile * BLOCK_N
    if n0 >= kv_len:
        return
    wide_b = b.to(tl.int64)
    key = n0 + tl.arange(0, BLOCK_N)
    inside = key < kv_len
    place = first_k + key
    k_rows = wide_b * stride_kb + place * stride_ks + head * stride_kh
    v_rows = wide_b * stride_vb + place * stride_vs + head * stride_vh
    k0 = load_rows(K, k_rows, inside, stride_kd, 0, DK0, DK, True)
    k1 = k0
    v0 = load_rows(V, v_rows, inside, stride_vd, 0, DV0, DV, True)
    v1 = v0
    dk0 = tl.zeros([BLOCK_N, DK0], tl.float32)
    dk1 = dk0
    dv0 = tl.zeros([BLOCK_N, DV0], tl.float32)
    dv1 = dv0
    if DK1 > 0:
        k1 = load_rows(K, k_rows, inside, stride_kd, DK0, DK1, DK, True)
        dk1 = tl.zeros([BLOCK_N, DK1], tl.float32)
    if DV1 > 0:
        v1 = load_rows(V, v_rows, inside, stride_vd, DV0, DV1, DV, True)
        dv1 = tl.zeros([BLOCK_N, DV1], tl.float32)

    offset = kv_len - q_len if BOTTOM_RIGHT else 0
    last = tl.minimum(n0 + BLOCK_N, kv_len) - 1
    # Queries [lo, hi) see some key of the tile, [full_lo, full_hi) all of them.
    lo, full_lo, hi, full_hi = 0, 0, q_len, q_len
    if CAUSAL:
        lo = tl.minimum(tl.maximum(n0 - offset, 0), q_len)
        full_lo = tl.minimum(tl.maximum(last - offset, 0), q_len)
    if WINDOW:
        hi = tl.minimum(tl.maximum(last + window - offset, 0), q_len)
        full_hi = tl.minimum(tl.maximum(n0 + window - offset, 0), q_len)
    lo, hi = lo * GROUP // BLOCK_M * BLOCK_M, hi * GROUP
    full_lo = tl.minimum(tl.cdiv(full_lo * GROUP, BLOCK_M) * BLOCK_M, tl.maximum(tl.cdiv(hi, BLOCK_M) * BLOCK_M, lo))
    full_hi = tl.maximum(full_hi * GROUP // BLOCK_M * BLOCK_M, full_lo)
    q_base = wide_b * stride_qb + first_q * stride_qs + head * GROUP * stride_qh
    g_base = wide_b * stride_gb + first_q * stride_gs + head * GROUP * stride_gh
    flat_base = row_q * heads_q + head * GROUP
    if CAUSAL:
        dk0, dk1, dv0, dv1 = walk_rows(
            dk0, dk1, dv0, dv1, k0, k1, v0, v1, key, lo, full_lo, Q, Grad, Top, Delta, q_base, g_base, flat_base,
            stride_qh, stride_qs, stride_qd, stride_gh, stride_gs, stride_gd,
            heads_q, q_len, offset, window, scale, cap,
            GROUP, BLOCK_M, DK, DK0, DK1, DV, DV0, DV1, CAUSAL, WINDOW, SOFTCAP, ROWS_FIRST, WIDE, True,
        )  # fmt: skip
    dk0, dk1, dv0, dv1 = walk_rows(
        dk0, dk1, dv0, dv1, k0, k1, v0, v1, key, full_lo, full_hi, Q, Grad, Top, Delta, q_base, g_base, flat_base,
        stride_qh, stride_qs, stride_qd, stride_gh, stride_gs, stride_gd, heads_q, q_len, offset, window, scale, cap,
        GROUP, BLOCK_M, DK, DK0, DK1, DV, DV0, DV1, CAUSAL, WINDOW, SOFTCAP, ROWS_FIRST, WIDE, False,
    )  # fmt: skip
    dk0, dk1, dv0, dv1 = walk_rows(
        dk0, dk1, dv0, dv1, k0, k1, v0, v1, key, full_hi, hi, Q, Grad, Top, Delta, q_base, g_base, flat_base,
        stride_qh, stride_qs, stride_qd, stride_gh, stride_gs, stride_gd, heads_q, q_len, offset, window, scale, cap,
        GROUP, BLOCK_M, DK, DK0, DK1, DV, DV0, DV1, CAUSAL, WINDOW, SOFTCAP, ROWS_FIRST, WIDE, True,
    )  # fmt: skip
    x_rows = wide_b * stride_xb + place * stride_xs + head * stride_xh
    y_rows = wide_b * stride_yb + place * stride_ys + head * stride_yh
    store_rows(GradK, x_rows, inside, stride_xd, dk0 * grad_scale, 0, DK0, DK)
    if DK1 > 0:
        store_rows(GradK, x_rows, inside, stride_xd, dk1 * grad_scale, DK0, DK1, DK)
    store_rows(GradV, y_rows, inside, stride_yd, dv0, 0, DV0, DV)
    if DV1 > 0:
        store_rows(GradV, y_rows, inside, stride_yd, dv1, DV0, DV1, DV)


@triton.jit
def walk_keys(
    dq0, dq1, q0, q1, g0, g1, top, delta, position, lo, hi, K, V, k_base, v_base,
    stride_ks, stride_kd, stride_vs, stride_vd, kv_len, window, scale, cap,
    BLOCK_N: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, WIDE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Keys [lo, hi) in steps of BLOCK_N, as ``walk`` of the forward kernel."""
    for start in tl.range(lo, hi, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        inside = key < kv_len
        k_tile, v_tile = K + k_base + wide(start) * stride_ks, V + v_base + wide(start) * stride_vs
        n = widened(tl.arange(0, BLOCK_N), WIDE)
        k_rows, v_rows = n * stride_ks, n * stride_vs
        k0 = load_rows(k_tile, k_rows, inside, stride_kd, 0, DK0, DK, MASKED)
        k1 = k0
        if DK1 > 0:
            k1 = load_rows(k_tile, k_rows, inside, stride_kd, DK0, DK1, DK, MASKED)
        v0 = load_rows(v_tile, v_rows, inside, stride_vd, 0, DV0, DV, MASKED)
        v1 = v0
        if DV1 > 0:
            v1 = load_rows(v_tile, v_rows, inside, stride_vd, DV0, DV1, DV, MASKED)
        s = product(q0, q1, k0, k1, DK1)
        dp = product(g0, g1, v0, v1, DV1)
        keep = visible(inside[None, :], key[None, :], position[:, None], window, CAUSAL, WINDOW)
        _, ds = weigh(s, dp, top, delta, keep, scale, cap, SOFTCAP, MASKED)
        ds = ds.to(q0.dtype)
        dq0 = tl.dot(ds, k0, dq0)
        if DK1 > 0:
            dq1 = tl.dot(ds, k1, dq1)
    return dq0, dq1


@triton.jit(do_not_specialize=["heads_kv", "q_len", "kv_len", "window", "tiles"])
def backward_q(
    Q, K, V, Grad, Top, Delta, GradQ, CuQ, CuK,
    stride_qb, stride_qh, stride_qs, stride_qd, stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd, stride_gb, stride_gh, stride_gs, stride_gd,
    stride_xb, stride_xh, stride_xs, stride_xd,
    heads_kv, q_len, kv_len, window, tiles, scale, cap, grad_scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    CAUSAL: tl.constexpr, BOTTOM_RIGHT: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """GradQ (strides x) of one tile of packed rows of one K/V head. Layouts as in ``attend``."""
    pid = tl.program_id(0)
    tile, row_kv = pid % tiles, pid // tiles
    if CAUSAL:
        tile = tiles - 1 - tile
    b, head = row_kv // heads_kv, (row_kv % heads_kv).to(tl.int64)
    heads_q = heads_kv * GROUP
    row_q = b.to(tl.int64) * q_len
    first_q = tl.zeros([], tl.int64)
    first_k = tl.zeros([], tl.int64)
    if CuQ is not None:
        begin = tl.load(CuQ + b)
        q_len = tl.load(CuQ + b + 1) - begin
        row_q = begin.to(tl.int64)
        first_q = row_q
    if CuK is not None:
        begin = tl.load(CuK + b)
        kv_len = tl.load(CuK + b + 1) - begin
        first_k = begin.to(tl.int64)
    if tile * BLOCK_M >= q_len * GROUP:
        return
    wide_b = b.to(tl.int64)
    r = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    live = r < q_len * GROUP
    query = (r // GROUP).to(tl.int64)
    head_q = head * GROUP + r % GROUP
    flat = (row_q + query) * heads_q + head_q
    top = tl.load(Top + flat, mask=live, other=float("inf"))[:, None]
    delta = tl.load(Delta + flat, mask=live, other=0.0)[:, None]
    q_rows = wide_b * stride_qb + (first_q + query) * stride_qs + head_q * stride_qh
    g_rows = wide_b * stride_gb + (first_q + query) * stride_gs + head_q * stride_gh
    q0 = load_rows(Q, q_rows, live, stride_qd, 0, DK0, DK, True)
    q1 = q0
    g0 = load_rows(Grad, g_rows, live, stride_gd, 0, DV0, DV, True)
    g1 = g0
    dq0 = tl.zeros([BLOCK_M, DK0], tl.float32)
    dq1 = dq0
    if DK1 > 0:
        q1 = load_rows(Q, q_rows, live, stride_qd, DK0, DK1, DK, True)
        dq1 = tl.zeros([BLOCK_M, DK1], tl.float32)
    if DV1 > 0:
        g1 = load_rows(Grad, g_rows, live, stride_gd, DV0, DV1, DV, True)

    offset = kv_len - q_len if BOTTOM_RIGHT else 0
    position = r // GROUP + offset
    low_q = tile * BLOCK_M // GROUP + offset
    high_q = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // GROUP, q_len - 1) + offset
    lo, full_lo, hi, full_hi = 0, 0, kv_len, kv_len
    if CAUSAL:
        hi = tl.minimum(tl.maximum(high_q + 1, 0), kv_len)
        full_hi = tl.minimum(tl.maximum(low_q + 1, 0), kv_len)
    if WINDOW:
        lo = tl.maximum(low_q - window + 1, 0) // BLOCK_N * BLOCK_N
        full_lo = tl.cdiv(tl.maximum(high_q - window + 1, 0), BLOCK_N) * BLOCK_N
    full_hi = full_hi // BLOCK_N * BLOCK_N
    full_lo = tl.minimum(tl.maximum(full_lo, lo), tl.maximum(tl.cdiv(hi, BLOCK_N) * BLOCK_N, lo))
    full_hi = tl.maximum(full_hi, full_lo)
    k_base = wide_b * stride_kb + first_k * stride_ks + head * stride_kh
    v_base = wide_b * stride_vb + first_k * stride_vs + head * stride_vh
    if WINDOW:
        dq0, dq1 = walk_keys(
            dq0, dq1, q0, q1, g0, g1, top, delta, position, lo, full_lo, K, V, k_base, v_base,
            stride_ks, stride_kd, stride_vs, stride_vd, kv_len, window, scale, cap,
            BLOCK_N, DK, DK0, DK1, DV, DV0, DV1, CAUSAL, WINDOW, SOFTCAP, WIDE, True,
        )  # fmt: skip
    dq0, dq1 = walk_keys(
        dq0, dq1, q0, q1, g0, g1, top, delta, position, full_lo, full_hi, K, V, k_base, v_base,
        stride_ks, stride_kd, stride_vs, stride_vd, kv_len, window, scale, cap,
        BLOCK_N, DK, DK0, DK1, DV, DV0, DV1, CAUSAL, WINDOW, SOFTCAP, WIDE, False,
    )  # fmt: skip
    dq0, dq1 = walk_keys(
        dq0, dq1, q0, q1, g0, g1, top, delta, position, full_hi, hi, K, V, k_base, v_base,
        stride_ks, stride_kd, stride_vs, stride_vd, kv_len, window, scale, cap,
        BLOCK_N, DK, DK0, DK1, DV, DV0, DV1, CAUSAL, WINDOW, SOFTCAP, WIDE, True,
    )  # fmt: skip
    x_rows = wide_b * stride_xb + (first_q + query) * stride_xs + head_q * stride_xh
    store_rows(GradQ, x_rows, live, stride_xd, dq0 * grad_scale, 0, DK0, DK)
    if DK1 > 0:
        store_rows(GradQ, x_rows, live, stride_xd, dq1 * grad_scale, DK0, DK1, DK)
