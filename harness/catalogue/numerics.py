"""What half precision does to layer norm and to block-wise softmax, against a float64 oracle, over seeds.

Kernels are handed in by whoever can import them: a layer norm is ``f(x, weight, bias, eps=)``, a softmax
``f(x, block=, clip=)``, a sum ``f(x)`` over the last axis; an oracle takes ``dtype`` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .estimates import Estimate, exponent, mean, share

if TYPE_CHECKING:
    from torch import Tensor

Kernel = Callable[..., Any]

#: A row counts as wrong when its largest error exceeds this share of the row's largest right value.
WRONG = 0.05


@dataclass(frozen=True)
class NormRow:
    """One variant at one point: shares of rows that are not finite, and of rows that are finite and wrong; the largest
    relative error of the finite rows (mean over seeds)."""

    variant: str
    hidden_size: int
    amplitude: float
    variance: float
    eps: float
    not_finite: Estimate
    wrong: Estimate
    error: Estimate | None


def layer_norms(
    variants: Mapping[str, Kernel],
    oracle: Kernel,
    points: Iterable[tuple[int, float, float, float]],
    *,
    dtype: str = "float16",
    seeds: Sequence[int] = range(5),
    rows: int = 32,
) -> list[NormRow]:
    """Every variant at every (hidden_size, amplitude, variance, eps); rows have mean ``amplitude``."""
    import torch

    found = []
    for hidden, amplitude, variance, eps in points:
        counts = {name: [0, 0] for name in variants}
        errors: dict[str, list[float]] = {name: [] for name in variants}
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            x = torch.randn((rows, hidden), generator=generator) * variance**0.5 + amplitude
            weight, bias = (torch.randn((hidden,), generator=generator).to(getattr(torch, dtype)) for _ in range(2))
            x = x.to(getattr(torch, dtype))
            right = oracle(x, weight, bias, eps=eps, dtype=torch.float64)
            for name, kernel in variants.items():
                bad, error = _against(kernel(x, weight, bias, eps=eps), right)
                counts[name][0] += int(bad.sum())
                counts[name][1] += int((error[~bad] > WRONG).sum())
                if not bool(bad.all()):
                    errors[name].append(float(error[~bad].max()))
        n = rows * len(seeds)
        for name, (bad_rows, wrong_rows) in counts.items():
            error_of = mean(errors[name]) if errors[name] else None
            found.append(
                NormRow(name, hidden, amplitude, variance, eps, share(bad_rows, n), share(wrong_rows, n), error_of)
            )
    return found


def _against(got: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Per row: whether anything is not finite, and the largest error over the row's largest right value."""
    import torch

    bad = ~torch.isfinite(got).all(-1)
    error = (got.double() - right).abs().amax(-1) / right.abs().amax(-1).clamp_min(1e-30)
    return bad, error


@dataclass(frozen=True)
class SoftmaxRow:
    """One form at one point: share of rows that overflow (something not finite); mean squared and largest relative
    error of the other rows, means over seeds; None where every row overflows."""

    form: str
    clip: float | None
    block: int
    spread: float
    overflow: Estimate
    mse: Estimate | None
    relative_error: Estimate | None


def softmaxes(
    forms: Mapping[str, Kernel],
    oracle: Kernel,
    *,
    clips: Sequence[float | None],
    block_sizes: Sequence[int],
    spreads: Sequence[float],
    columns: int = 1024,
    rows: int = 128,
    seeds: Sequence[int] = range(5),
    dtype: str = "float16",
) -> list[SoftmaxRow]:
    """Every form over clip x block size x spread of the scores."""
    import torch

    found = []
    for spread in spreads:
        inputs = []
        for seed in seeds:
            x = torch.randn((rows, columns), generator=torch.Generator().manual_seed(seed)) * spread
            x = x.to(getattr(torch, dtype))
            inputs.append((x, oracle(x, dtype=torch.float64)))
        for block in block_sizes:
            for clip in clips:
                for name, form in forms.items():
                    found.append(_softmax_row(name, form, clip, block, spread, inputs))
    return found


def _softmax_row(
    name: str, form: Kernel, clip: float | None, block: int, spread: float, inputs: Sequence[tuple[Tensor, Tensor]]
) -> SoftmaxRow:
    over, n = 0, 0
    squares: list[float] = []
    relative: list[float] = []
    for x, right in inputs:
        got = form(x, block=block, clip=clip)
        bad, error = _against(got, right)
        over, n = over + int(bad.sum()), n + len(x)
        if not bool(bad.all()):
            squares.append(float((got.double() - right)[~bad].square().mean()))
            relative.append(float(error[~bad].max()))
    return SoftmaxRow(
        name, clip, block, spread, share(over, n), mean(squares) if squares else None,
        mean(relative) if relative else None,
    )  # fmt: skip


@dataclass(frozen=True)
class Growth:
    """How an error grows with H: the largest over rows, per H (mean over seeds), and the fitted exponent; ``bound`` is
    the exponent of the worst-case bound."""

    what: str
    summation: str
    hidden_sizes: tuple[int, ...]
    errors: tuple[float, ...]
    fitted: Estimate
    bound: int


def error_growth(
    sums: Mapping[str, Kernel],
    *,
    hidden_sizes: Sequence[int],
    seeds: Sequence[int] = range(5),
    rows: int = 32,
    dtype: str = "float16",
) -> list[Growth]:
    """Errors of mean and variance of uniform values in [0, 1), computed with each summation in ``dtype``.

    Relative to the exact mean and variance of the rounded values. Bounds: mean O(H eps), variance O(H^2 eps)."""
    import torch

    errors: dict[tuple[str, str], list[float]] = {(w, n): [] for n in sums for w in ("mean", "variance")}
    for hidden in hidden_sizes:
        per: dict[tuple[str, str], list[float]] = {key: [] for key in errors}
        for seed in seeds:
            x = torch.rand((rows, hidden), generator=torch.Generator().manual_seed(seed)).to(getattr(torch, dtype))
            exact = x.double()
            exact_mean = exact.mean(-1, keepdim=True)
            exact_variance = (exact - exact_mean).square().mean(-1, keepdim=True)
            for name, add in sums.items():
                got = add(x).double() / hidden
                centred = x - got.to(x.dtype)
                spread = add(centred * centred).double() / hidden
                per["mean", name].append(float(((got - exact_mean) / exact_mean).abs().max()))
                per["variance", name].append(float(((spread - exact_variance) / exact_variance).abs().max()))
        for key, values in per.items():
            errors[key].append(sum(values) / len(values))
    return [
        Growth(
            what, name, tuple(hidden_sizes), tuple(values), exponent(hidden_sizes, values), 1 if what == "mean" else 2
        )
        for (what, name), values in errors.items()
    ]


@dataclass(frozen=True)
class ScaledBackward:
    """Gradients of x that survive a backward pass in half precision: shares flushed to 0 though the exact one is not,
    and not finite; the median relative error of the others."""

    scale: float
    gradient: float
    flushed: Estimate
    overflowed: Estimate
    median_error: float | None


def loss_scaling(
    kernel: Kernel, oracle: Kernel, *, scales: Sequence[float], gradients: Sequence[float], hidden_size: int = 256,
    rows: int = 16, seed: int = 0,
) -> list[ScaledBackward]:  # fmt: skip
    """Backward of ``kernel`` in float16 for incoming gradients of about ``gradients``, multiplied by a scale before and
    divided by it in float32 after; against float64."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((rows, hidden_size), generator=generator).half()
    weight, bias = (torch.randn((hidden_size,), generator=generator).half() for _ in range(2))
    incoming = torch.randn((rows, hidden_size), generator=generator).double()
    found = []
    for gradient in gradients:
        wide = x.double().requires_grad_()
        out = oracle(wide, weight, bias, eps=1e-5, dtype=torch.float64)
        (exact,) = torch.autograd.grad(out, wide, incoming * gradient)
        for scale in scales:
            leaf = x.clone().requires_grad_()
            (got,) = torch.autograd.grad(
                kernel(leaf, weight, bias, eps=1e-5), leaf, (incoming * gradient * scale).half()
            )
            back = got.double() / scale
            lost = (back == 0) & (exact != 0)
            over = ~torch.isfinite(back)
            error = ((back - exact) / exact)[~lost & ~over & (exact != 0)].abs()
            found.append(
                ScaledBackward(
                    scale, gradient, share(int(lost.sum()), lost.numel()), share(int(over.sum()), over.numel()),
                    float(error.median()) if error.numel() else None,
                )
            )  # fmt: skip
    return found
