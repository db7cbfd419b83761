from __future__ import annotations

import pytest
import torch

from harness.measuring import CaseFailed
from harness.measuring.gate import Expected, Problems, check, fingerprint, reference
from harness.measuring.timing.clock import Account
from harness.model import Status, Workload

from .conftest import SMALL

F32 = torch.float32


def oracle(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, dtype: torch.dtype) -> torch.Tensor:
    q, k, v = (t.to(dtype) for t in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def test_tolerance_is_twice_the_rough_error_and_a_little() -> None:
    problem = Problems("cpu", 1 << 30).get(Workload("attention", SMALL | {"dtype": "bfloat16"}), 0, Account(), oracle)
    (expected,) = problem.expected
    q, k, v = problem.inputs.tensors.values()
    exact, rough = oracle(q, k, v, causal=True, dtype=torch.float64), oracle(q, k, v, causal=True, dtype=torch.bfloat16)
    error = float((rough.double() - exact).abs().max())
    eps = torch.finfo(torch.bfloat16).eps
    assert expected.tolerance == pytest.approx(2 * error + eps * float(exact.abs().max()))
    assert torch.equal(expected.values, exact)


def test_reference_gradients_are_not_rounded_to_the_case_dtype() -> None:
    params = SMALL | {"dtype": "bfloat16", "direction": "bwd"}
    problem = Problems("cpu", 1 << 30).get(Workload("attention", params), 0, Account(), None)
    grads = reference(problem, params, oracle)
    assert [g.name for g in grads] == ["grad_q", "grad_k", "grad_v"]
    assert all(g.values.dtype == torch.float64 for g in grads)
    assert any(not torch.equal(g.values, g.values.bfloat16().double()) for g in grads)


def test_a_failing_oracle_says_so() -> None:
    def broken(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with pytest.raises(CaseFailed, match="oracle ran out of memory") as failed:
        Problems("cpu", 1 << 30).get(Workload("attention", SMALL), 0, Account(), broken)
    assert failed.value.status is Status.INVALID


def test_exactly_the_tolerance_passes_and_more_does_not() -> None:
    want = [Expected("out", torch.zeros(3, dtype=torch.float64), 0.5)]
    assert check([torch.tensor([0.0, -0.5, 0.25])], want, F32) == 0.5
    with pytest.raises(CaseFailed, match=r"out\[1\] is -0.75.*oracle says 0") as failed:
        check([torch.tensor([0.0, -0.75, 0.25])], want, F32)
    assert failed.value.status is Status.WRONG


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_not_finite(value: float) -> None:
    want = [Expected("out", torch.zeros(2, 2, dtype=torch.float64), 0.5)]
    with pytest.raises(CaseFailed, match=r"1 of 4 values not finite.*\[1, 0\]") as failed:
        check([torch.tensor([[0.0, 0.0], [value, 0.0]])], want, F32)
    assert failed.value.status is Status.NON_FINITE


def test_empty_results_pass() -> None:
    assert check([torch.empty(0, 2)], [Expected("out", torch.empty(0, 2, dtype=torch.float64), 0.0)], F32) == 0.0


def test_wrong_dtype_is_wrong() -> None:
    with pytest.raises(CaseFailed, match="float64"):
        check([torch.zeros(2, dtype=torch.float64)], [Expected("out", torch.zeros(2).double(), 1.0)], F32)


@pytest.mark.parametrize("size", [1, 31, 32, 1000])
def test_fingerprint_sees_any_change_and_any_swap(size: int) -> None:
    values = torch.arange(1.0, size + 1)
    values[-1] = torch.nan
    before = fingerprint([values])
    assert fingerprint([values.clone()]) == before
    for index in {0, size // 2, size - 1}:
        changed = values.clone()
        changed[index] = 1e-30
        assert fingerprint([changed]) != before


def test_fingerprint_sees_what_lies_behind_a_view() -> None:
    whole = torch.zeros(100)
    before = fingerprint([whole[10:20]])
    whole[50] = 1
    assert fingerprint([whole[10:20]]) != before


def test_problems_are_kept_up_to_a_budget() -> None:
    problems, account = Problems("cpu", 5000), Account()
    loads = [Workload("attention", SMALL | {"kv_len": n}) for n in (16, 17)]
    first = problems.get(loads[0], 0, account, None)
    assert problems.get(loads[0], 0, account, None) is first
    assert problems.get(loads[0], 1, account, None) is not first
    problems.get(loads[1], 0, account, None)
    assert problems.get(loads[0], 0, account, None) is not first
