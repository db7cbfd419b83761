"""PyTorch FlexAttention, compiled. The eager form keeps all scores in memory and is another thing; never used.

Block masks of causal and window depend on lengths only and are made once per shape, as models that use flex
do; block masks of the caller's boolean mask are made in each call.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..backend import Backend, Capabilities, Support, Unavailable, device_kind

if TYPE_CHECKING:
    from torch import Tensor

MODULE = "kernels.attention.flex"


def probe(device: str) -> str:
    """Version of torch; raises where flex cannot be compiled for ``device``."""
    import os

    from .devices import torch_version

    version = torch_version(device)
    if device_kind(device) == "cpu":
        compilers = (os.environ.get("CXX"), "g++", "clang++", "c++")
        if not any(shutil.which(c) for c in compilers if c):
            raise Unavailable("no C++ compiler, which torch.compile needs on a CPU", "install g++ or set CXX")
    else:
        import triton  # noqa: F401
    import torch.nn.attention.flex_attention  # noqa: F401

    return version


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., Any]:
    """One compiled function for all shapes. ``fullgraph`` makes torch raise instead of falling back to eager."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    # A sweep brings more shapes than the default allows before torch gives up compiling.
    config: Any = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, 4096)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, 65536)
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    causal_alignment: str = "bottom_right",
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Shapes and meaning as in :func:`kernels.attention.attention`. The first call of a shape compiles."""
    import torch

    q_len, kv_len = q.shape[2], k.shape[2]
    offset = kv_len - q_len if causal_alignment == "bottom_right" else 0
    boolean = mask if mask is not None and mask.dtype == torch.bool else None
    additive = mask if boolean is None else None
    if boolean is not None:
        block_mask = _block_mask_of(boolean, q, kv_len, causal, offset, window)
    else:
        block_mask = _block_mask(q_len, kv_len, causal, offset, window, str(q.device))
    out: Tensor = _compiled()(
        q,
        k,
        v,
        score_mod=_score_mod(softcap) if additive is None else _biased(additive, q, kv_len, softcap),
        block_mask=block_mask,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out


def _mask_mod(causal: bool, offset: int, window: int | None) -> Callable[..., Any]:
    def both(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (j <= i + offset) & (j > i + offset - window)

    def before(b: Any, h: Any, i: Any, j: Any) -> Any:
        return j <= i + offset

    def recent(b: Any, h: Any, i: Any, j: Any) -> Any:
        return j > i + offset - window

    if causal:
        return before if window is None else both
    return recent


@lru_cache(maxsize=256)
def _block_mask(q_len: int, kv_len: int, causal: bool, offset: int, window: int | None, device: str) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    if not causal and window is None:
        return None
    return create_block_mask(_mask_mod(causal, offset, window), None, None, q_len, kv_len, device=device)


def _block_mask_of(mask: Tensor, q: Tensor, kv_len: int, causal: bool, offset: int, window: int | None) -> Any:
    from torch.nn.attention.flex_attention import and_masks, create_block_mask

    batch, heads, q_len, _ = q.shape
    full = mask.expand(batch, heads, q_len, kv_len)

    def allowed(b: Any, h: Any, i: Any, j: Any) -> Any:
        return full[b, h, i, j]

    rules = [allowed]
    if causal or window is not None:
        rules.append(_mask_mod(causal, offset, window))
    # Heads and sequences that share the mask share the block mask.
    own = [size if mask.dim() == 4 and mask.shape[n] > 1 else None for n, size in enumerate((batch, heads))]
    return create_block_mask(and_masks(*rules), own[0], own[1], q_len, kv_len, device=str(q.device))


@lru_cache(maxsize=16)
def _score_mod(softcap: float | None) -> Callable[..., Any] | None:
    if softcap is None:
        return None
    import torch

    def capped(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return softcap * torch.tanh(score / softcap)

    return capped


def _biased(bias: Tensor, q: Tensor, kv_len: int, softcap: float | None) -> Callable[..., Any]:
    full = bias.expand(q.shape[0], q.shape[1], q.shape[2], kv_len)
    cap = _score_mod(softcap)

    def biased(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return (score if cap is None else cap(score, b, h, i, j)) + full[b, h, i, j]

    return biased


BACKENDS = (
    Backend(
        "flex",
        {"attention": f"{MODULE}:attention"},
        Capabilities(
            {
                "cpu": Support(
                    directions=("fwd",),
                    head_dim_v=True,
                    masks=("bool", "additive"),
                    window=True,
                    softcap=True,
                    empty=False,
                ),
                "cuda": Support(
                    head_dim_v=True,
                    masks=("bool", "additive"),
                    window=True,
                    softcap=True,
                    empty=False,
                ),
            }
        ),
        "PyTorch FlexAttention, compiled",
        "comes with torch; a CPU needs a C++ compiler (g++), CUDA needs triton",
        probe=f"{MODULE}:probe",
    ),
)
