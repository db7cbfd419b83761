"""Declared and true are the same: None only where it runs and is right, text where the entry refuses."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from kernels.attention import attention, reference, varlen_attention
from kernels.backend import has_masked_rows, lengths, mask_kind
from kernels.paged import paged_attention
from kernels.registry import BACKENDS, Capabilities, Support, Unsupported

from . import test_paged, test_varlen
from .helpers import DTYPES, check_backward, check_forward, normal, qkv, ragged

ON_CPU = [b.name for b in BACKENDS.values() if "cpu" in b.capabilities.devices]
FAST = [n for n in ON_CPU if n != "flex"]
COMMON: dict[str, list[Any]] = {
    "dtype": list(DTYPES),
    "head_dim": [8, 20],
    "heads": [(2, 2), (6, 1)],
    "direction": ["fwd", "bwd"],
    "causal": [False, True],
    "window": [None, 3],
    "softcap": [None, 2.0],
}
DENSE: dict[str, list[Any]] = {
    "q_len": [0, 1, 5, 40],
    "kv_len": [0, 1, 5, 30],
    "mask": [None, "bool", "bool:masked_rows", "additive"],
    "causal_alignment": ["bottom_right", "top_left"],
}
RAGGED: dict[str, list[Any]] = {"lens": [([5, 1, 0], [5, 9, 2]), ([7, 2], [3, 0]), ([1, 4], [30, 12])]}


def draw(random_: random.Random, operation: str) -> dict[str, Any]:
    choices = COMMON | (DENSE if operation == "attention" else RAGGED)
    if operation == "paged_attention":
        choices = choices | {"page_size": [1, 5, 16]}
    problem = {name: random_.choice(values) for name, values in choices.items()}
    problem["heads_q"], problem["heads_kv"] = problem.pop("heads")
    problem["batch"] = 2
    if "lens" in problem:
        q_lens, kv_lens = problem.pop("lens")
        problem |= {"q_lens": ",".join(map(str, q_lens)), "kv_lens": ",".join(map(str, kv_lens))}
        problem |= {"batch": len(q_lens), "q_len": max(q_lens), "kv_len": max(kv_lens)}
    return problem


def made_mask(problem: dict[str, Any]) -> torch.Tensor | None:
    kind = mask_kind(problem)
    if kind is None:
        return None
    q_len, kv_len = problem["q_len"], problem["kv_len"]
    if kind == "additive":
        return normal(1, 1, q_len, kv_len, dtype=DTYPES[problem["dtype"]], seed=4)
    keep = normal(2, 1, q_len, kv_len, seed=4) > -0.5
    if problem["mask"] == "bool:masked_rows" and q_len:
        keep[:, :, q_len // 2] = False
    return keep


def solve(backend: str, operation: str, problem: dict[str, Any]) -> None:
    """Run ``problem`` through the public entry and judge it."""
    rule = {n: problem[n] for n in ("causal", "window", "softcap")}
    heads = (problem["heads_q"], problem["heads_kv"])
    if operation == "attention":
        rule |= {"causal_alignment": problem["causal_alignment"], "mask": made_mask(problem)}
        tensors = qkv(2, *heads, problem["q_len"], problem["kv_len"], problem["head_dim"], DTYPES[problem["dtype"]])
        judge(lambda *t, **o: attention(*t, backend=backend, **o), reference.attention, tensors, rule, problem)
        return
    q_lens, kv_lens = (list(x) for x in zip(*lengths(problem), strict=True))
    if operation == "varlen_attention":
        ragged_tensors = test_varlen.tensors(q_lens, kv_lens, *heads, problem["head_dim"], problem["dtype"])
        judge(
            lambda *t, **o: varlen_attention(*t, backend=backend, **o),
            reference.varlen_attention,
            ragged_tensors,
            ragged(q_lens, kv_lens) | rule,
            problem,
        )
        return
    made = test_paged.case(q_lens, kv_lens, problem["page_size"], heads, problem["head_dim"], problem["dtype"])
    if problem["direction"] == "bwd":
        made[0][0].requires_grad_()
        q, k_cache, v_cache = made[0]
        paged_attention(q, k_cache, v_cache, backend=backend, **made[1], **rule)
        return
    test_paged.check(backend, made, q_lens, kv_lens, **rule)


def judge(run: Any, oracle: Any, tensors: Any, options: dict[str, Any], problem: dict[str, Any]) -> None:
    if problem["direction"] == "bwd":
        check_backward(run, oracle, tensors, options)
    else:
        check_forward(run, oracle, tensors, options)


def _declared_and_true(backend: str, operation: str, count: int, seed: int) -> None:
    random_ = random.Random(f"{backend} {operation} {seed}")
    answers = {True: 0, False: 0}
    for _ in range(count):
        problem = draw(random_, operation)
        reason = BACKENDS[backend].unsupported(operation, problem, "cpu")
        answers[reason is None] += 1
        if reason is None:
            try:
                solve(backend, operation, problem)
            except Exception as error:
                raise AssertionError(f"declared supported: {problem}") from error
            continue
        try:
            solve(backend, operation, problem)
        except Unsupported as error:
            assert reason in str(error) or "rows that see no key" in reason, problem
        else:
            raise AssertionError(f"runs though declared unsupported ({reason}): {problem}")
    assert answers[True], "nothing was run"


CPU_PAIRS = [(b, o) for b in FAST for o in BACKENDS[b].operations if o.endswith("attention")]


@pytest.mark.parametrize("backend, operation", CPU_PAIRS)
def test_declared_and_true(backend: str, operation: str) -> None:
    _declared_and_true(backend, operation, 80, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("backend, operation", CPU_PAIRS)
def test_declared_and_true_at_length(backend: str, operation: str) -> None:
    _declared_and_true(backend, operation, 1500, seed=1)


@pytest.mark.slow
def test_declared_and_true_of_flex() -> None:
    assert BACKENDS["flex"].availability("cpu").usable, "needs a C++ compiler"
    _declared_and_true("flex", "attention", 24, seed=0)


@pytest.mark.parametrize("backend", [n for n in BACKENDS if n not in ON_CPU])
def test_what_a_cpu_cannot_do_is_unsupported(backend: str) -> None:
    for operation in BACKENDS[backend].operations:
        reason = BACKENDS[backend].unsupported(operation, {"dtype": "float16", "head_dim": 64}, "cpu")
        assert reason == "runs on cuda only, not on cpu"
    if "attention" in BACKENDS[backend].operations:
        with pytest.raises(Unsupported, match="runs on cuda only"):
            attention(*qkv(1, 1, 1, 2, 2, 8), backend=backend)


def test_flex_backward_on_a_cpu_is_unsupported() -> None:
    q, k, v = qkv(1, 1, 1, 2, 2, 8)
    with pytest.raises(Unsupported, match="forward only"):
        attention(q.requires_grad_(), k, v, backend="flex")


SHORT: dict[str, Any] = {"causal": True, "q_len": 8, "kv_len": 4}


@pytest.mark.parametrize(
    "backend, problem, expected",
    [
        ("sdpa_flash", {"dtype": "float32"}, "dtype float32"),
        ("sdpa_flash", {"dtype": "float16", "mask": "bool"}, "no bool mask"),
        ("sdpa_flash", {"causal": True, "causal_alignment": "top_left", "q_len": 4, "kv_len": 8}, "top_left"),
        ("sdpa_flash", {"causal": True, "q_len": 4, "kv_len": 8}, None),
        ("sdpa_flash", {"dtype": "float16", "head_dim": 512}, "head_dim 512 is above 256"),
        ("sdpa_efficient", {"heads_q": 8, "heads_kv": 2}, "grouped-query"),
        ("sdpa_efficient", SHORT, "see no key"),
        ("sdpa_efficient", {"mask": "bool:padding", "window": 4}, "see no key"),
        ("sdpa_cudnn", {"dtype": "bfloat16", "head_dim": 80, "mask": "additive"}, None),
        ("sdpa_cudnn", {"dtype": "bfloat16", "head_dim": 20}, "multiple of 8"),
        ("flash_attn", {"causal": True, "causal_alignment": "top_left", "q_len": 4, "kv_len": 8}, "top_left"),
        ("flash_attn", {"softcap": 30.0, "window": 128, "causal": True}, None),
        ("flash_attn", {"direction": "sideways"}, "sideways"),
        ("flash_attn", {"mask": "holes"}, "'holes' is not one of bool, additive"),
        ("xformers", {"direction": "bwd", "heads_q": 8, "heads_kv": 2}, "forward pass only"),
        ("xformers", {"window": 4}, "only with causal"),
        ("flashinfer", {"head_dim": 80}, "not one of 64, 128, 256"),
    ],
)
def test_declarations_for_cuda(backend: str, problem: dict[str, Any], expected: str | None) -> None:
    problem = {"heads_q": 1, "heads_kv": 1} | problem
    problem.setdefault("dtype", "float16")
    found = BACKENDS[backend].unsupported("attention", problem, "cuda:0")
    assert found is None if expected is None else expected in str(found)


def test_limits_of_one_operation() -> None:
    paged: dict[str, Any] = {"dtype": "float16", "heads_q": 1, "heads_kv": 1, "head_dim": 64}
    for backend, wrong, right in (("flash_attn", 16, 256), ("varlen", 128, 512), ("flash_attn_4", 16, 128)):
        found = BACKENDS[backend].unsupported("paged_attention", paged | {"page_size": wrong}, "cuda")
        assert f"page_size {wrong}" in str(found)
        assert BACKENDS[backend].unsupported("paged_attention", paged | {"page_size": right}, "cuda") is None
    assert "no paged_attention" in str(BACKENDS["segmented"].unsupported("paged_attention", paged, "cpu"))


def test_capabilities_are_pure_and_name_unknown_devices() -> None:
    one = Capabilities({"cpu": Support(max_page_size=16)})
    assert one.unsupported({"page_size": 32}, "cpu") == "page_size 32 is above 16"
    assert one.unsupported({}, "mps") == "runs on cpu only, not on mps"
    assert Capabilities({"cuda": Support()}).unsupported({}, "cuda:3") is None


def test_problem_texts() -> None:
    assert lengths({"q_lens": "1,2", "kv_lens": "3,4"}) == [(1, 3), (2, 4)]
    with pytest.raises(ValueError, match="whole numbers"):
        lengths({"q_lens": "1,x", "kv_lens": "3,4"})
    with pytest.raises(ValueError, match="2 sequences and kv_lens 1"):
        lengths({"q_lens": "1,2", "kv_lens": "3"})
    assert has_masked_rows({"q_len": 9, "kv_len": 4, "window": 5, "causal_alignment": "top_left"})
    assert not has_masked_rows({"q_len": 9, "kv_len": 5, "window": 5, "causal_alignment": "top_left"})
    assert not has_masked_rows({"q_len": 9, "kv_len": 4, "causal": True, "causal_alignment": "top_left"})
    assert has_masked_rows({"q_lens": "1,1", "kv_lens": "5,0"})
