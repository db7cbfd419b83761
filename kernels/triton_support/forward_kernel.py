# mypy: ignore-errors
# The bodies below are Triton's language, which has no Python types; host code that launches them is checked.
"""The forward kernel: one query tile against the keys it may see, with a running softmax.

One kernel serves dense, ragged (``cu_seqlens``) and paged K/V, whole or split along the keys; what differs is
constexpr, so a compiled variant holds only its own path.

Grouped heads are packed into the rows of the tile: row r of a K/V head is query ``r // GROUP`` of query head
``r % GROUP`` of the group, so K and V are loaded once per group whatever its size. A head size that is no power of
two is cut into two powers of two (80 = 64 + 16, 96 = 64 + 32, 160 = 128 + 32, 192 = 128 + 64): no padded copy, and
no padded multiplication where the two parts fit exactly; otherwise the tail is masked.

Offsets of batch, page, tile and head are int64 throughout; inside a tile they are where they must be. Scores are
kept in log2 units.
"""

import triton
import triton.language as tl

LN2: tl.constexpr = tl.constexpr(0.6931471805599453)
TWO_LOG2E: tl.constexpr = tl.constexpr(2.8853900817779268)


@triton.jit
def tanh(x):
    """tanh by exp2; ends in -1 and 1 without NaN."""
    return 1.0 - 2.0 / (tl.exp2(x * TWO_LOG2E) + 1.0)


@triton.jit
def load_rows(
    base, rows, keep, stride_d, FIRST: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr, KEEP: tl.constexpr
):
    """(rows, WIDTH) of columns FIRST.. of a matrix with SIZE columns; zeros where not ``keep`` and past SIZE.

    ``rows``: offsets of the rows in elements. KEEP says whether ``keep`` is looked at.
    """
    cols = FIRST + tl.arange(0, WIDTH)
    pointers = base + rows[:, None] + cols[None, :] * stride_d
    if FIRST + WIDTH > SIZE:
        inside = cols[None, :] < SIZE
        if KEEP:
            inside = inside & keep[:, None]
        value = tl.load(pointers, mask=inside, other=0.0)
    elif KEEP:
        value = tl.load(pointers, mask=keep[:, None], other=0.0)
    else:
        value = tl.load(pointers)
    return value


@triton.jit
def store_rows(base, rows, keep, stride_d, value, FIRST: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr):
    """The reverse of :func:`load_rows`; converts to the type of ``base``."""
    cols = FIRST + tl.arange(0, WIDTH)
    pointers = base + rows[:, None] + cols[None, :] * stride_d
    value = value.to(base.dtype.element_ty)
    if FIRST + WIDTH > SIZE:
        tl.store(pointers, value, mask=keep[:, None] & (cols[None, :] < SIZE))
    else:
        tl.store(pointers, value, mask=keep[:, None])


@triton.jit
def wide(x):
    """``x`` as int64, also where the interpreter has a plain number."""
    return tl.zeros([], tl.int64) + x


@triton.jit
def widened(x, WIDE: tl.constexpr):
    """``x`` as int64 where offsets inside a tile need it. 32 bits spare a register per address otherwise."""
    return x.to(tl.int64) if WIDE else x


@triton.jit
def key_rows(
    start, base, table, stride_block, stride_row, kv_len,
    BLOCK_N: tl.constexpr, PAGE_SIZE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """(int64 offset of the tile, offsets of its rows) of keys start.. start + BLOCK_N, from ``base`` or by the table.

    Table entries past the last used key are not read.
    """
    n = tl.arange(0, BLOCK_N)
    if PAGE_SIZE == 0:
        tile = base + wide(start) * stride_row
        rows = widened(n, WIDE) * stride_row
    elif PAGE_SIZE % BLOCK_N == 0:
        # ``start`` is a multiple of BLOCK_N, so the tile lies in one page.
        page = tl.load(table + start // PAGE_SIZE).to(tl.int64)
        tile = base + page * stride_block + wide(start % PAGE_SIZE) * stride_row
        rows = widened(n, WIDE) * stride_row
    else:
        key = start + n
        page = tl.load(table + key // PAGE_SIZE, mask=key < kv_len, other=0).to(tl.int64)
        tile = base
        rows = page * stride_block + widened(key % PAGE_SIZE, WIDE) * stride_row
    return tile, rows


@triton.jit
def load_tile(
    base, offset, rows, keep, stride_d, start, b, head,
    FIRST: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr, BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr, USE_DESC: tl.constexpr,
):  # fmt: skip
    """(BLOCK_N, WIDTH) of K or V. A descriptor fills what lies outside the tensor with zeros by itself."""
    if USE_DESC:
        tile = base.load([b, head, start, FIRST]).reshape([BLOCK_N, WIDTH])
    else:
        tile = load_rows(base + offset, rows, keep, stride_d, FIRST, WIDTH, SIZE, MASKED)
    return tile


@triton.jit
def walk(
    acc0, acc1, total, top, q0, q1, K, V, lo, hi,
    k_base, v_base, table, stride_kb, stride_ks, stride_kd, stride_vb, stride_vs, stride_vd,
    b, head, position, kv_len, window, scale, cap,
    BLOCK_N: tl.constexpr, DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr,
    DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, SCALE_LATE: tl.constexpr,
    PAGE_SIZE: tl.constexpr, USE_DESC: tl.constexpr, WIDE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Keys [lo, hi) in steps of BLOCK_N. MASKED tiles check every key; the others are seen whole by every row."""
    n = tl.arange(0, BLOCK_N)
    for start in tl.range(lo, hi, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)
        key = start + n
        inside = key < kv_len
        at, rows = key_rows(start, k_base, table, stride_kb, stride_ks, kv_len, BLOCK_N, PAGE_SIZE, WIDE)
        k = load_tile(K, at, rows, inside, stride_kd, start, b, head, 0, DK0, DK, BLOCK_N, MASKED, USE_DESC)
        s = tl.dot(q0, tl.trans(k.to(q0.dtype)))
        if DK1 > 0:
            k = load_tile(K, at, rows, inside, stride_kd, start, b, head, DK0, DK1, DK, BLOCK_N, MASKED, USE_DESC)
            s = tl.dot(q1, tl.trans(k.to(q0.dtype)), s)
        if SOFTCAP:
            s = cap * tanh(s * scale)
        elif not SCALE_LATE:
            s = s * scale
        if MASKED:
            keep = inside[None, :]
            if CAUSAL:
                keep = keep & (key[None, :] <= position[:, None])
            if WINDOW:
                keep = keep & (key[None, :] > position[:, None] - window)
            s = tl.where(keep, s, float("-inf"))
        peak = tl.max(s, 1)
        if SCALE_LATE:
            # A positive scale may wait until after the maximum: one multiply-add per score instead of two steps.
            peak = peak * scale
        new_top = tl.maximum(top, peak)
        # A row that has seen no key yet stays at -inf; subtracting that from itself would be NaN.
        base = tl.where(new_top == float("-inf"), 0.0, new_top) if MASKED else new_top
        p = tl.exp2(s * scale - base[:, None] if SCALE_LATE else s - base[:, None])
        fade = tl.exp2(top - base)
        total = total * fade + tl.sum(p, 1)
        top = new_top
        p = p.to(q0.dtype)
        at, rows = key_rows(start, v_base, table, stride_vb, stride_vs, kv_len, BLOCK_N, PAGE_SIZE, WIDE)
        v = load_tile(V, at, rows, inside, stride_vd, start, b, head, 0, DV0, DV, BLOCK_N, MASKED, USE_DESC)
        acc0 = tl.dot(p, v.to(q0.dtype), acc0 * fade[:, None])
        if DV1 > 0:
            v = load_tile(V, at, rows, inside, stride_vd, start, b, head, DV0, DV1, DV, BLOCK_N, MASKED, USE_DESC)
            acc1 = tl.dot(p, v.to(q0.dtype), acc1 * fade[:, None])
    return acc0, acc1, total, top


# Lengths and counts change from call to call; compiling anew for those that are 1 or a multiple of 16 buys nothing.
@triton.jit(
    do_not_specialize=[
        "stride_table", "part_rows", "heads_kv", "rows_kv", "q_len", "kv_len", "window", "tiles", "band", "splits",
    ]
)  # fmt: skip
def attend(
    Q, K, V, Out, Lse, Part, PartTop, PartTotal, CuQ, CuK, Table, Lens,
    stride_qb, stride_qh, stride_qs, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    stride_ob, stride_oh, stride_os, stride_od,
    stride_table, part_rows,
    heads_kv, rows_kv, q_len, kv_len, window, tiles, band, splits, scale, cap, v_scale,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr,
    DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    CAUSAL: tl.constexpr, BOTTOM_RIGHT: tl.constexpr, WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr, SCALE_LATE: tl.constexpr, PAGE_SIZE: tl.constexpr,
    USE_DESC: tl.constexpr, WIDE: tl.constexpr, SPLIT: tl.constexpr, KEEP_LSE: tl.constexpr,
):  # fmt: skip
    """A program is one query tile of one K/V head (and one segment of its keys where SPLIT).

    Q (B, Hq, Sq, DK), Out (B, Hq, Sq, DV); with CuQ, batch strides are 0 and rows begin at CuQ[b]. K, V
    (B, Hkv, Skv, D*), tensors or, with USE_DESC, 4-dimensional descriptors of them; with CuK rows begin at CuK[b];
    with PAGE_SIZE the batch stride is that of a page, Table (B, max_blocks) and Lens (B,) say what is used.
    Lse: float32 natural-log sums at [query row][Hq]. Part, PartTop, PartTotal: float32 [splits][query row * Hq + head]
    (Part with DV columns): weighted sum not yet divided, running maximum (log2) and sum.
    WIDE: offsets inside a tile of K or V pass 2^31. ``rows_kv`` is B * Hkv; ``band`` K/V heads share the L2 at a time;
    ``tiles`` query tiles per K/V head.
    """
    pid = tl.program_id(0)
    if SPLIT:
        split = pid % splits
        pid = pid // splits
    # A band of heads is worked on together, longest causal tiles first, so that short ones fill the gaps at the end.
    in_band = pid % (band * tiles)
    first = pid // (band * tiles) * band
    width = tl.minimum(band, rows_kv - first)
    tile = in_band // width
    if CAUSAL:
        tile = tiles - 1 - tile
    row_kv = first + in_band % width
    b = row_kv // heads_kv
    head = row_kv % heads_kv

    row_q = b.to(tl.int64) * q_len
    if CuQ is not None:
        begin = tl.load(CuQ + b)
        q_len = tl.load(CuQ + b + 1) - begin
        row_q = begin.to(tl.int64)
    start_k = tl.zeros([], tl.int64)
    if CuK is not None:
        begin = tl.load(CuK + b)
        kv_len = tl.load(CuK + b + 1) - begin
        start_k = begin.to(tl.int64)
    if Lens is not None:
        kv_len = tl.load(Lens + b)
    if tile * BLOCK_M >= q_len * GROUP:
        return

    wide_b, wide_head = wide(b), wide(head)
    r = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    live = r < q_len * GROUP
    query, member = r // GROUP, r % GROUP
    head_q = wide_head * GROUP + member
    first_row = row_q if CuQ is not None else tl.zeros([], tl.int64)
    q_rows = wide_b * stride_qb + (first_row + query) * stride_qs + head_q * stride_qh
    q0 = load_rows(Q, q_rows, live, stride_qd, 0, DK0, DK, True)
    q1 = q0
    if DK1 > 0:
        q1 = load_rows(Q, q_rows, live, stride_qd, DK0, DK1, DK, True)

    offset = kv_len - q_len if BOTTOM_RIGHT else 0
    position = query + offset
    low_q = tile * BLOCK_M // GROUP + offset
    high_q = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // GROUP, q_len - 1) + offset
    # [lo, hi) is seen by some row, [full_lo, full_hi) by all.
    lo, full_lo, hi, full_hi = 0, 0, kv_len, kv_len
    if CAUSAL:
        hi = tl.minimum(tl.maximum(high_q + 1, 0), kv_len)
        full_hi = tl.minimum(tl.maximum(low_q + 1, 0), kv_len)
    if WINDOW:
        lo = tl.maximum(low_q - window + 1, 0) // BLOCK_N * BLOCK_N
        full_lo = tl.cdiv(tl.maximum(high_q - window + 1, 0), BLOCK_N) * BLOCK_N
    if SPLIT:
        part = tl.cdiv(tl.cdiv(tl.maximum(hi - lo, 0), BLOCK_N), splits) * BLOCK_N
        lo += split * part
        hi = tl.minimum(hi, lo + part)
        full_hi = tl.minimum(full_hi, hi)
    full_hi = full_hi // BLOCK_N * BLOCK_N
    full_lo = tl.minimum(tl.maximum(full_lo, lo), tl.maximum(tl.cdiv(hi, BLOCK_N) * BLOCK_N, lo))
    full_hi = tl.maximum(full_hi, full_lo)

    k_base = start_k * stride_ks + wide_head * stride_kh
    v_base = start_k * stride_vs + wide_head * stride_vh
    table = Table
    if PAGE_SIZE == 0:
        k_base += wide_b * stride_kb
        v_base += wide_b * stride_vb
    else:
        table = Table + wide_b * stride_table
    acc0 = tl.zeros([BLOCK_M, DV0], tl.float32)
    acc1 = acc0
    if DV1 > 0:
        acc1 = tl.zeros([BLOCK_M, DV1], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    if WINDOW:
        acc0, acc1, total, top = walk(
            acc0, acc1, total, top, q0, q1, K, V, lo, full_lo,
            k_base, v_base, table, stride_kb, stride_ks, stride_kd, stride_vb, stride_vs, stride_vd,
            b, head, position, kv_len, window, scale, cap,
            BLOCK_N, DK, DK0, DK1, DV, DV0, DV1, CAUSAL, WINDOW, SOFTCAP, SCALE_LATE, PAGE_SIZE, USE_DESC, WIDE, True,
        )  # fmt: skip
    acc0, acc1, total, top = walk(
        acc0, acc1, total, top, q0, q1, K, V, full_lo, full_hi,
        k_base, v_base, table, stride_kb, stride_ks, stride_kd, stride_vb, stride_vs, stride_vd,
        b, head, position, kv_len, window, scale, cap,
        BLOCK_N, DK, DK0, DK1, DV, DV0, DV1, CAUSAL, WINDOW, SOFTCAP, SCALE_LATE, PAGE_SIZE, USE_DESC, WIDE, False,
    )  # fmt: skip
    acc0, acc1, total, top = walk(
        acc0, acc1, total, top, q0, q1, K, V, full_hi, hi,
        k_base, v_base, table, stride_kb, stride_ks, stride_kd, stride_vb, stride_vs, stride_vd,
        b, head, position, kv_len, window, scale, cap,
        BLOCK_N, DK, DK0, DK1, DV, DV0, DV1, CAUSAL, WINDOW, SOFTCAP, SCALE_LATE, PAGE_SIZE, USE_DESC, WIDE, True,
    )  # fmt: skip

    out_row = row_q + query
    flat = out_row * (heads_kv * GROUP) + head_q
    if SPLIT:
        slot = split.to(tl.int64) * part_rows + flat
        tl.store(PartTop + slot, top, mask=live)
        tl.store(PartTotal + slot, total, mask=live)
        # A segment without keys leaves its sums unwritten: the merge reads only what has a finite maximum.
        seen = live & (top > float("-inf"))
        store_rows(Part, slot * DV, seen, 1, acc0, 0, DV0, DV)
        if DV1 > 0:
            store_rows(Part, slot * DV, seen, 1, acc1, DV0, DV1, DV)
    else:
        norm = (v_scale / tl.where(total == 0.0, 1.0, total))[:, None]
        o_rows = wide_b * stride_ob + (first_row + query) * stride_os + head_q * stride_oh
        store_rows(Out, o_rows, live, stride_od, acc0 * norm, 0, DV0, DV)
        if DV1 > 0:
            store_rows(Out, o_rows, live, stride_od, acc1 * norm, DV0, DV1, DV)
        if KEEP_LSE:
            tl.store(Lse + flat, (top + tl.log2(total)) * LN2, mask=live)


@triton.jit(do_not_specialize=["part_rows", "heads", "q_len", "splits"])
def merge(
    Part, PartTop, PartTotal, Out, Lse,
    stride_ob, stride_oh, stride_os, stride_od,
    part_rows, heads, q_len, splits, v_scale,
    DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr, KEEP_LSE: tl.constexpr,
):  # fmt: skip
    """Joins the segments of one (query, head): a program per row of ``Part``. A row that no segment saw gives 0.

    ``q_len`` splits a flat query row into batch and query; ragged output has batch stride 0 and q_len the total.
    """
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    acc = tl.zeros([BLOCK_D], tl.float32)
    total = 0.0
    top = float("-inf")
    for first in range(0, splits, BLOCK_S):
        s = first + tl.arange(0, BLOCK_S)
        slot = s.to(tl.int64) * part_rows + row
        tops = tl.load(PartTop + slot, mask=s < splits, other=float("-inf"))
        totals = tl.load(PartTotal + slot, mask=s < splits, other=0.0)
        new_top = tl.maximum(top, tl.max(tops, 0))
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
        weight = tl.exp2(tops - base)
        seen = (tops > float("-inf"))[:, None] & (d[None, :] < DV)
        part = tl.load(Part + slot[:, None] * DV + d[None, :], mask=seen, other=0.0)
        fade = tl.exp2(top - base)
        acc = acc * fade + tl.sum(part * weight[:, None], 0)
        total = total * fade + tl.sum(totals * weight, 0)
        top = new_top
    query, head = row // heads, row % heads
    at = query // q_len * stride_ob + head * stride_oh + query % q_len * stride_os
    value = acc * (v_scale / tl.where(total == 0.0, 1.0, total))
    tl.store(Out + at + d * stride_od, value.to(Out.dtype.element_ty), mask=d < DV)
    if KEEP_LSE:
        tl.store(Lse + row, (top + tl.log2(total)) * LN2)
