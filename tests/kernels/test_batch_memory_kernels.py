"""Gradients over ranks, masks per token, pruned caches: sound ones against their oracles, faulty ones as they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.faults import batch_memory
from kernels.kv_gradients import ranks
from kernels.kv_gradients import reference as gradients_reference
from kernels.kv_pruning import pruning
from kernels.kv_pruning import reference as pruning_reference
from kernels.token_mask import reference as mask_reference
from kernels.token_mask import steps


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def problem(heads_kv: int, batch: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, g = (normal(batch, 4, 5, 8, seed=s) for s in (0, 3))
    return q, normal(batch, 5, 6, seed=1), normal(6, 2 * heads_kv * 8, seed=2), g


@pytest.mark.parametrize("heads_kv", [4, 2, 1])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_averaged_gradients_do_not_depend_on_the_ranks(heads_kv: int, count: int) -> None:
    given = problem(heads_kv)
    want = gradients_reference.kv_gradients(*given, heads_kv=heads_kv, ranks=count)
    got = ranks.averaged(*given, heads_kv=heads_kv, ranks=count)
    assert torch.allclose(got.double(), want, atol=1e-5)
    assert torch.allclose(ranks.whole(*given, heads_kv=heads_kv, ranks=count).double(), want, atol=1e-5)
    summed = batch_memory.gradients_summed(*given, heads_kv=heads_kv, ranks=count)
    # As many times too large as there are ranks, whatever the batch; heads that are not shared are right.
    assert torch.allclose(summed.double(), want * (count if heads_kv < 4 else 1), atol=1e-4)


def test_ranks_are_processes_that_end_with_the_call() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text().split()
    seen = ranks._of_rank_0(lambda rank: torch.tensor([float(os.getpid()), float(os.getppid())]), 2, torch.zeros(2))
    assert int(seen[0]) != os.getpid() == int(seen[1])
    assert set(children.read_text().split()) <= set(before)


def test_a_rank_that_fails_says_why() -> None:
    def fails(rank: int) -> Tensor:
        raise ValueError(f"no gradient in rank {rank}")

    with pytest.raises(RuntimeError, match=r"ranks ended with .1, 1.: rank .: ValueError: no gradient"):
        ranks._of_rank_0(fails, 2, torch.zeros(1))
    with pytest.raises(ValueError, match="does not divide"):
        ranks.averaged(*problem(2, batch=3), heads_kv=2, ranks=2)


@pytest.mark.parametrize("count, hidden", [(1, True), (1, False), (4, True), (7, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_agree_with_the_oracle_however_made(count: int, hidden: bool, dtype: torch.dtype) -> None:
    q, k, v = normal(2, 3, count, 8).to(dtype), *(normal(2, 3, 7, 8, seed=s).to(dtype) for s in (1, 2))
    seen = torch.rand((2, 7), generator=torch.Generator().manual_seed(0)) < 0.5 if hidden else torch.ones(2, 7).bool()
    want = mask_reference.token_mask(q, k, v, seen=seen)
    for made in (steps.dynamic, steps.static, steps.pooled, batch_memory.mask_per_step):
        got = made(q, k, v, seen=seen).double()
        assert torch.allclose(got, want, atol=1e-5 if dtype == torch.float32 else 3e-2), made.__name__


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names of the operators that compute something: views launch nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not any(a.alias_info is not None and not a.alias_info.is_write for a in func._schema.returns):
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_mask_made_on_the_device_is_eight_operators_a_step() -> None:
    q, k, v = (normal(1, 1, n, 4) for n in (3, 8, 8))
    seen = torch.ones(1, 8, dtype=torch.bool)
    with Operators() as made:
        steps._made(seen, 5, q)
    assert len(made.names) == 8
    counts = []
    for count in (1, 3):
        held = []
        for form in (steps.dynamic, steps.pooled):
            with Operators() as seen_by:
                form(q[:, :, :count], k, v, seen=seen)
            held.append(len(seen_by.names))
        counts.append(held)
    (one_dynamic, one_pooled), (dynamic, pooled) = counts
    assert (dynamic - one_dynamic) - (pooled - one_pooled) == 2 * 8


@pytest.mark.parametrize("keep", [1.0, 0.7, 0.01])
@pytest.mark.parametrize("shared", [False, True])
def test_pruned_caches_agree_with_the_oracle(keep: float, shared: bool) -> None:
    q, k, v = normal(2, 4, 3, 8), normal(2, 2, 20, 8, seed=1), normal(2, 2, 20, 8, seed=2)
    given = {"observed": normal(2, 4, 5, 8, seed=3), "keep": keep, "shared": shared}
    want = pruning_reference.kv_pruning(q, k, v, **given)  # type: ignore[arg-type]
    for form in (pruning.compacted, pruning.masked):
        assert torch.allclose(form(q, k, v, **given).double(), want, atol=1e-5)  # type: ignore[arg-type]
    zeroed = batch_memory.zeroed_keys(q, k, v, **given)  # type: ignore[arg-type]
    assert torch.allclose(zeroed.double(), want, atol=1e-5) is (keep == 1.0)


def test_everything_kept_is_full_attention_bit_for_bit() -> None:
    q, k, v, observed = normal(1, 2, 3, 8), normal(1, 1, 9, 8, seed=1), normal(1, 1, 9, 8, seed=2), normal(1, 2, 2, 8)
    full = pruning.attend(q, k, v, None)
    assert torch.equal(pruning.compacted(q, k, v, observed=observed, keep=1.0, shared=False), full)
    positions = pruning.kept(pruning.importance(observed, k), 1.0, False)
    assert positions.tolist() == [[list(range(9))]]
    assert torch.equal(pruning.compact(k, positions), k)


def test_kept_keys_are_those_that_matter_and_take_their_share_of_memory() -> None:
    k = torch.eye(10)[None, None]
    observed = k[:, :, [3, 7]] * 50
    positions = pruning.kept(pruning.importance(observed, k), 0.2, False)
    assert positions.tolist() == [[[3, 7]]]
    small = pruning.compact(k, positions)
    assert small.untyped_storage().nbytes() == 0.2 * k.untyped_storage().nbytes()
    scores = torch.tensor([[[3.0, 0.0, 1.0], [0.0, 5.0, 4.5]]])
    assert pruning.kept(scores, 0.3, False).tolist() == [[[0], [1]]]
    assert pruning.kept(scores, 0.3, True).tolist() == [[[2], [2]]]
    with pytest.raises(ValueError, match="a share above 0"):
        pruning.kept(scores, 0.0, False)
