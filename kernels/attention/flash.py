"""What the adapters to FlashAttention-like libraries share. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backend import Capabilities, Support

if TYPE_CHECKING:
    from torch import Tensor

#: The element types of these libraries.
HALF = ("float16", "bfloat16")


def operations(module: str) -> dict[str, str]:
    """The three operations as functions of the same name in ``module``."""
    return {name: f"{module}:{name}" for name in ("attention", "varlen_attention", "paged_attention")}


def support(**changes: Any) -> Capabilities:
    """CUDA in half precision with window and softcap, aligned bottom-right; ``changes`` are fields of Support."""
    fields: dict[str, Any] = {
        "dtypes": HALF,
        "max_head_dim": 256,
        "head_dim_multiple": 8,
        "alignments": ("bottom_right",),
        "window": True,
        "softcap": True,
    }
    return Capabilities({"cuda": Support(**{**fields, **changes})})


def heads_last(*tensors: Tensor) -> tuple[Tensor, ...]:
    """(B, H, S, D) as views of (B, S, H, D), the layout of these libraries, and back."""
    return tuple(t.transpose(1, 2) for t in tensors)


def output(found: Any) -> Tensor:
    """The result alone; some versions return (out, lse)."""
    out: Tensor = found[0] if isinstance(found, tuple) else found
    return out


def left(window: int | None) -> int:
    """Keys to the left of the query's own; -1 is unlimited."""
    return -1 if window is None else window - 1


def rule(scale: float | None, causal: bool, window: int | None, softcap: float | None) -> dict[str, Any]:
    """The options by which versions 2 and 3 say scale, mask and softcap; 0 is no softcap."""
    return {
        "softmax_scale": scale,
        "causal": causal,
        "window_size": (left(window), -1),
        "softcap": softcap or 0.0,
    }


def refuse(
    library: str,
    q: Tensor,
    k: Tensor,
    causal: bool,
    alignment: str,
    window: int | None,
    mask: Tensor | None,
) -> None:
    """Raise for what libraries that align bottom-right and take no mask would get wrong."""
    if mask is not None:
        raise NotImplementedError(f"{library} takes no mask")
    if alignment != "bottom_right" and (causal or window is not None) and q.shape[2] != k.shape[2]:
        raise NotImplementedError(f"{library} aligns bottom-right where q_len != kv_len")
