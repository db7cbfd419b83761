"""PyTorch SDPA, one backend per kernel, pinned: what was asked for runs or an error is raised.

SDPA's ``is_causal`` is top-left. Ours is bottom-right by default, so where q_len != kv_len the adapters pass
an explicit mask, or the lower-right bias that the CUDA kernels know, or declare it unsupported.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..backend import Backend, Capabilities, Problem, Support, lengths
from .masks import combine, keep_mask

if TYPE_CHECKING:
    from torch import Tensor

MODULE = "kernels.attention.sdpa"
HALF = ("float16", "bfloat16")


def probe(device: str) -> str:
    """Version of torch; raises where the device is not there."""
    from .devices import torch_version

    return torch_version(device)


def math(
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
    """The math kernel: scores in memory. Shapes as in :func:`kernels.attention.attention`."""
    return _sdpa("MATH", q, k, v, causal, causal_alignment, window, softcap, scale, mask)


def flash(
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
    """The flash kernel of PyTorch (its own on a CPU, FlashAttention-2 on CUDA)."""
    return _sdpa("FLASH_ATTENTION", q, k, v, causal, causal_alignment, window, softcap, scale, mask)


def efficient(
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
    """The memory-efficient kernel (CUDA)."""
    return _sdpa("EFFICIENT_ATTENTION", q, k, v, causal, causal_alignment, window, softcap, scale, mask)


def cudnn(
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
    """The cuDNN kernel (CUDA)."""
    return _sdpa("CUDNN_ATTENTION", q, k, v, causal, causal_alignment, window, softcap, scale, mask)


def _sdpa(
    kernel: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    alignment: str,
    window: int | None,
    softcap: float | None,
    scale: float | None,
    mask: Tensor | None,
) -> Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    if softcap is not None:
        raise NotImplementedError("SDPA has no softcap")
    q_len, kv_len = q.shape[-2], k.shape[-2]
    is_causal, keep = _causal(kernel, q, kv_len, causal, alignment, window, mask)
    if is_causal is None:
        from torch.nn.attention.bias import causal_lower_right

        bias: Tensor | None = causal_lower_right(q_len, kv_len)
    else:
        bias = combine(keep, mask, q.dtype)
    with sdpa_kernel([getattr(SDPBackend, kernel)]):
        return scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=bias,
            is_causal=bool(is_causal),
            scale=scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )


def _causal(
    kernel: str, q: Tensor, kv_len: int, causal: bool, alignment: str, window: int | None, mask: Tensor | None
) -> tuple[bool | None, Tensor | None]:
    """(is_causal, explicit mask); None for the first asks for the lower-right bias."""
    q_len = q.shape[-2]
    if q_len == 1 and causal and alignment == "bottom_right":
        causal = False  # the one query is the last position and sees every key
    if window is None and mask is None:
        if not causal or q_len == kv_len:
            return causal, None
        if alignment == "top_left" and kernel != "CUDNN_ATTENTION":
            return True, None
        if q.is_cuda and kernel in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION"):
            return None, None
    if not causal and window is None:
        return False, None
    keep = keep_mask(q_len, kv_len, causal=causal, alignment=alignment, window=window, device=q.device)
    return False, keep


def _flash_cuda(problem: Problem) -> str | None:
    """On CUDA, flash aligns causal masks bottom-right where the lengths differ and has no bias."""
    top_left = problem.get("causal_alignment") == "top_left"
    if top_left and problem.get("causal") and any(q != k for q, k in lengths(problem)):
        return "causal_alignment top_left is not computed where q_len != kv_len"
    return None


_CPU = Support(masks=("bool", "additive"), window=True)
_MATH = replace(_CPU, head_dim_v=True)

BACKENDS = (
    Backend(
        "sdpa_math",
        {"attention": f"{MODULE}:math"},
        Capabilities({"cpu": _MATH, "cuda": _MATH}),
        "PyTorch SDPA, math kernel",
        probe=f"{MODULE}:probe",
    ),
    Backend(
        "sdpa_flash",
        {"attention": f"{MODULE}:flash"},
        Capabilities({"cpu": _CPU, "cuda": Support(dtypes=HALF, max_head_dim=256, also=_flash_cuda)}),
        "PyTorch SDPA, flash kernel",
        probe=f"{MODULE}:probe",
    ),
    Backend(
        "sdpa_efficient",
        {"attention": f"{MODULE}:efficient"},
        Capabilities(
            {
                "cuda": Support(
                    masks=("bool", "additive"),
                    window=True,
                    gqa=False,
                    head_dim_multiple=8,
                    masked_rows=False,
                )
            }
        ),
        "PyTorch SDPA, memory-efficient kernel",
        "needs a CUDA device and a CUDA build of torch",
        probe=f"{MODULE}:probe",
    ),
    Backend(
        "sdpa_cudnn",
        {"attention": f"{MODULE}:cudnn"},
        Capabilities(
            {
                "cuda": Support(
                    dtypes=HALF,
                    masks=("bool", "additive"),
                    window=True,
                    max_head_dim=256,
                    head_dim_multiple=8,
                    masked_rows=False,
                    empty=False,
                )
            }
        ),
        "PyTorch SDPA, cuDNN kernel",
        "needs a CUDA device, a CUDA build of torch and cuDNN 9",
        probe=f"{MODULE}:probe",
    ),
)
