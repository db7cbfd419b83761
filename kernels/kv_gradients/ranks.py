"""Data-parallel gradients of shared key and value heads: real processes, joined by ``torch.distributed`` over gloo.

The loss is the mean over the batch, so that gradients of equal parts of the batch have to be averaged. Ranks are
forked, which leaves the inputs where they are, and end before the call returns.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

Reduction = Literal["mean", "sum"]

#: Seconds after which a rank that waits for another gives up.
_PATIENCE_S = 30


def probe(device: str) -> str:
    """Version of torch. Raises where it comes without gloo or the system cannot fork."""
    if not (dist.is_available() and dist.is_gloo_available()):
        raise RuntimeError("torch was built without gloo")
    if not hasattr(os, "fork"):
        raise RuntimeError("this system cannot fork")
    return torch.__version__


def averaged(q: Tensor, x: Tensor, w: Tensor, g: Tensor, *, heads_kv: int, ranks: int) -> Tensor:
    """d loss / d w, (E, 2 * Hkv * D), loss = mean over the batch of <attention, g>.

    Args:
        q: (B, Hq, S, D). x: (B, S, E); what keys and values are made of. w: (E, 2 * Hkv * D); keys, then values.
        g: (B, Hq, S, D); gradient of each request's own loss.
        heads_kv: heads of keys and values, each shared by Hq / Hkv query heads. ranks: processes; divides B.
    """
    return reduced(q, x, w, g, heads_kv=heads_kv, ranks=ranks, reduction="mean")


def whole(q: Tensor, x: Tensor, w: Tensor, g: Tensor, *, heads_kv: int, ranks: int) -> Tensor:
    """The same in this process; ``ranks`` says nothing."""
    return gradient(q, x, w, g, heads_kv)


def reduced(q: Tensor, x: Tensor, w: Tensor, g: Tensor, *, heads_kv: int, ranks: int, reduction: Reduction) -> Tensor:
    """As :func:`averaged`, with the reduction over ranks given: only ``mean`` is right."""
    batch = q.shape[0]
    if batch % ranks:
        raise ValueError(f"batch {batch} does not divide over {ranks} ranks")
    if ranks == 1:
        return gradient(q, x, w, g, heads_kv)

    def mine(rank: int) -> Tensor:
        part = slice(rank * (batch // ranks), (rank + 1) * (batch // ranks))
        found = gradient(q[part], x[part], w, g[part], heads_kv)
        dist.all_reduce(found, dist.ReduceOp.SUM)
        return found / ranks if reduction == "mean" else found

    return _of_rank_0(mine, ranks, w)


def gradient(q: Tensor, x: Tensor, w: Tensor, g: Tensor, heads_kv: int) -> Tensor:
    """d w of the mean over this batch, (E, 2 * Hkv * D)."""
    leaf = w.detach().requires_grad_()
    with torch.enable_grad():
        both = torch.unflatten(x @ leaf, 2, (2, heads_kv, -1)).permute(2, 0, 3, 1, 4)
        k, v = both[0], both[1]
        rows = torch.unflatten(q, 1, (heads_kv, -1))
        scores = rows @ k[:, :, None].transpose(3, 4) / q.shape[-1] ** 0.5
        out = (torch.softmax(scores, -1) @ v[:, :, None]).flatten(1, 2)
        loss = (out * g).sum() / q.shape[0]
    return torch.autograd.grad(loss, leaf)[0]


def _of_rank_0(work: Callable[[int], Tensor], ranks: int, like: Tensor) -> Tensor:
    """What ``work`` gives in rank 0 of so many forked processes; RuntimeError with what a failing rank said."""
    shared = mmap.mmap(-1, max(like.numel() * like.element_size(), 1))
    folder = tempfile.mkdtemp(prefix="attnwatch-ranks-")
    said, says = os.pipe()
    pids = []
    try:
        for rank in range(ranks):
            pid = os.fork()
            if not pid:
                _serve(work, rank, ranks, folder, shared if rank == 0 else None, says)
            pids.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    finally:
        os.close(says)
        shutil.rmtree(folder, ignore_errors=True)
        with os.fdopen(said, errors="replace") as told:
            words = told.read(2000)
    if any(codes):
        raise RuntimeError(f"ranks ended with {codes}: {words or 'nothing said'}")
    return torch.frombuffer(shared, dtype=like.dtype, count=like.numel()).view(like.shape).clone()


def _serve(
    work: Callable[[int], Tensor], rank: int, ranks: int, folder: str, shared: mmap.mmap | None, says: int
) -> None:
    """A rank's life, ended without the parent's exit handlers."""
    code = 1
    try:
        # One thread each: what the parent's pool of threads holds is not there after a fork.
        torch.set_num_threads(1)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        store = dist.FileStore(f"{folder}/store", ranks)  # type: ignore[attr-defined]
        limit = timedelta(seconds=_PATIENCE_S)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=limit)
        found = work(rank).contiguous()
        if shared is not None:
            shared[:] = found.numpy().tobytes() or b"\0"
        dist.barrier()
        code = 0
    except BaseException as error:
        os.write(says, f"rank {rank}: {type(error).__name__}: {error}\n".encode()[:1000])
    finally:
        os._exit(code)
