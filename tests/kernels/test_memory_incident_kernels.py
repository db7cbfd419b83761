"""The layer in its phases, rotary embedding and the copy: against their oracles, in every form, faults included."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from harness.measuring.operations import OPERATIONS
from harness.model import Params
from kernels.faults import memory_incident
from kernels.model_step import layer
from kernels.model_step.reference import model_step
from kernels.registry import ORACLES, get, resolve
from kernels.rope import variants
from kernels.rope.reference import rope
from kernels.shared_stride import plain
from kernels.shared_stride.reference import shared_stride

SHAPE: Params = {"batch": 2, "kv_len": 200, "heads_q": 4, "heads_kv": 2, "head_dim": 8, "dtype": "float32"}


def step_inputs(phase: str, **more: Any) -> Any:
    q_len = 1 if phase == "decode" else 200
    return OPERATIONS["model_step"].inputs({**SHAPE, "phase": phase, "q_len": q_len, "chunk": 64, **more}, 0, "cpu")


@pytest.mark.parametrize("phase", layer.PHASES)
@pytest.mark.parametrize("form", [layer.segmented, layer.scores, memory_incident.quadratic_prefill])
def test_every_form_of_the_layer_gives_what_the_oracle_says(phase: str, form: Any) -> None:
    made = step_inputs(phase)
    want = made.call(model_step)
    got = made.call(form)
    assert got.dtype == torch.float32 and got.shape == want.shape
    torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5)


def test_a_training_step_moves_the_weights_against_their_gradient() -> None:
    made = step_inputs("train")
    x, w_qkv, w_out, cache = made.tensors.values()
    moved = made.call(layer.segmented)
    before = torch.cat([w_qkv.flatten(), w_out.flatten()])
    assert not torch.equal(moved, before)
    a, b = moved.split([w_qkv.numel(), w_out.numel()])

    def loss(one: torch.Tensor, two: torch.Tensor) -> float:
        out = layer.segmented(x, one.view_as(w_qkv), two.view_as(w_out), cache, phase="prefill", heads_q=4, chunk=0)
        return float(out.square().mean())

    assert loss(a, b) < loss(w_qkv, w_out)


def test_a_phase_that_there_is_not_is_refused() -> None:
    made = step_inputs("prefill")
    with pytest.raises(ValueError, match="phase is one of prefill"):
        layer.segmented(*made.tensors.values(), phase="generate", heads_q=4, chunk=1)


@pytest.mark.parametrize("lens", [[5], [3, 3], [1, 7, 4]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_form_of_rope_turns_each_position_by_its_own_angle(lens: list[int], dtype: torch.dtype) -> None:
    made = OPERATIONS["rope"].inputs(
        {"batch": len(lens), "q_lens": ",".join(map(str, lens)), "heads_q": 2, "heads_kv": 2, "head_dim": 6,
         "dtype": str(dtype).removeprefix("torch.")}, 0, "cpu",
    )  # fmt: skip
    want = made.call(rope)
    room = 1e-5 if dtype == torch.float32 else 0.05
    for form in (variants.per_length, variants.cached, variants.padded, memory_incident.rope_to_longest):
        torch.testing.assert_close(made.call(form).double(), want, rtol=room, atol=room)
    # By hand: position 1, first pair, angle 1.
    if lens[0] > 1:
        x = made.tensors["x"].double()
        turned = x[1, 0, 0] * math.cos(1.0) - x[1, 0, 3] * math.sin(1.0)
        assert float(want[1, 0, 0]) == pytest.approx(float(turned))


def test_the_strided_read_is_what_the_source_says() -> None:
    x = torch.randn(2, 8192)
    got = shared_stride(x, stride=5, turns=3)
    by_hand = [[sum(float(x[b, (lane * 5 + t) & 8191]) for t in range(3)) for lane in range(32)] for b in range(2)]
    torch.testing.assert_close(got, torch.tensor(by_hand, dtype=torch.float64))
    for stride, turns in ((5, 3), (0, 2), (33, 9000), (1, 8192)):
        want = shared_stride(x, stride=stride, turns=turns)
        for form in (plain.by_index, plain.by_views):
            torch.testing.assert_close(form(x, stride=stride, turns=turns).double(), want, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("operation", ["model_step", "rope", "stream", "shared_stride"])
def test_operations_are_declared_with_an_oracle_and_a_device(operation: str) -> None:
    from kernels.registry import BACKENDS

    assert callable(resolve(ORACLES[operation]))
    mine = [b for b in BACKENDS.values() if operation in b.operations]
    assert mine
    for backend in mine:
        if "cpu" in backend.capabilities.support:
            assert get(backend.name).availability("cpu").usable
        else:
            assert "cuda only" in (backend.unsupported(operation, {"dtype": "float32"}, "cpu") or "")


def test_switched_attention_copies_only_under_its_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.measuring.memory import footprint

    q, k, v = (torch.randn(1, 2, 64, 16) for _ in range(3))
    given = [q, k, v]

    def call() -> torch.Tensor:
        return memory_incident.switched_attention(q, k, v, causal=True)

    plain = footprint(call, given, torch.device("cpu"))
    monkeypatch.setenv(memory_incident.SWITCH, "1")
    copied = footprint(call, given, torch.device("cpu"))
    assert copied.peak == plain.peak + k.nbytes + v.nbytes
