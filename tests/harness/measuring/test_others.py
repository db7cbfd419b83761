"""What is right once is not yet right: results of later calls, and of other values in the same buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from harness.measuring import Bench, CaseFailed
from harness.measuring.gate import Problems, fingerprint
from harness.measuring.others import other_values
from harness.measuring.timing.clock import Account
from harness.model import Case, InputError, MeasureOptions, Status, Workload

from .conftest import QUICK, SMALL

Make = Callable[..., Case]

PAGED = {"batch": 3, "q_lens": "1,2,7", "kv_lens": "21,2,32", "q_len": 7, "kv_len": 32, "page_size": 16}


@pytest.fixture(autouse=True)
def forget(fakes: Any) -> Iterator[None]:
    fakes._counts.clear()
    fakes._remembered.clear()
    yield


@pytest.mark.parametrize("options", [QUICK, MeasureOptions(min_samples=6, max_samples=6, hot=False, memory=False)])
def test_a_kernel_that_goes_wrong_while_it_is_timed_is_caught(
    bench: Bench, case: Make, options: MeasureOptions
) -> None:
    got = bench.measure(case("wrong_from_the_fourth"), options)
    assert got.status is Status.WRONG and not got.samples
    assert "the last timed call, unlike the first: out[" in got.detail


def test_a_prepared_case_that_goes_wrong_later_is_caught(bench: Bench, case: Make, fakes: Any) -> None:
    prepared = bench.prepare(case("wrong_when_told"), QUICK)
    prepared.sample(1)
    fakes._counts["told"] = 1
    with pytest.raises(CaseFailed, match="unlike the first"):
        for _ in range(4):
            prepared.sample(1)


@pytest.mark.parametrize("function", ["result", "q", "k", "v", "q_and_k"])
@pytest.mark.parametrize("heads_kv", [1, 2])
def test_a_kernel_that_remembers_by_address_is_caught(bench: Bench, case: Make, function: str, heads_kv: int) -> None:
    more = {} if heads_kv == 2 else {"heads_q": 1, "heads_kv": 1}
    got = bench.measure(case(f"remembers_{function}", **more), QUICK)
    assert got.status is Status.WRONG and not got.samples
    assert "other values in the same buffers" in got.detail and "by the address of its inputs" in got.detail


def test_gradients_remembered_by_address_are_caught(bench: Bench, case: Make) -> None:
    got = bench.measure(case("remembers_grad", direction="bwd"), QUICK)
    assert got.status is Status.WRONG and "other values in the same buffers: grad_q[" in got.detail


def test_prepare_finds_it_too(bench: Bench, case: Make) -> None:
    with pytest.raises(CaseFailed, match="by the address"):
        bench.prepare(case("remembers_v"), QUICK)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("operation", "more"),
    [
        ("attention", {"layout": "bhsd"}),
        ("attention", {"layout": "bshd", "head_dim": 7}),
        ("attention", {"layout": "expanded_kv"}),
        ("attention", {"direction": "bwd"}),
        ("varlen_attention", {"batch": 2, "q_lens": "1,7", "kv_lens": "21,7", "q_len": 7, "kv_len": 21}),
        ("paged_attention", PAGED),
    ],
)
def test_buffers_are_put_back_bit_for_bit_poison_included(operation: str, more: dict[str, Any], dtype: str) -> None:
    workload = Workload(operation, {**SMALL, **more, "dtype": dtype})
    problem = Problems("cpu", 1 << 30).get(workload, 0, Account(), None)
    tensors = [*problem.inputs.everything(), *([] if problem.grad_out is None else [problem.grad_out])]
    before, copies = fingerprint(tensors), [t.clone() for t in tensors]
    with other_values(problem):
        changed = [not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(tensors, copies, strict=True)]
    assert fingerprint(tensors) == before
    if problem.backward:
        assert changed == [False, False, False, True]
    else:
        assert changed[:3] == [True] * 3 and not any(changed[3:]), "q, k and v, and nothing else"


def test_buffers_are_put_back_when_the_kernel_raises() -> None:
    problem = Problems("cpu", 1 << 30).get(Workload("attention", SMALL), 0, Account(), None)
    with pytest.raises(KeyError), other_values(problem):
        raise KeyError
    assert problem.unchanged()


def test_threads_are_told_before_and_after(bench: Bench, case: Make) -> None:
    telemetry = bench.measure(case(), QUICK).telemetry
    assert telemetry["threads"] == telemetry["threads_after"] == torch.get_num_threads()


def test_a_device_that_is_none_is_an_error_of_input(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="'gpu7': give cpu"):
        Bench("gpu7")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(InputError, match="cuda:99: there are 2 devices, cuda:0 to cuda:1"):
        Bench("cuda:99")
