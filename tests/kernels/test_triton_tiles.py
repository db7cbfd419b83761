"""What of our Triton kernels needs no kernel to run: tiles, segments, choices, launches as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.registry import BACKENDS, Unavailable, Unsupported, get
from kernels.triton_support import choices, forward, shipped, targets, tiles
from kernels.triton_support.forward import Layout, Rule
from kernels.triton_support.tiles import Config


@pytest.mark.parametrize(
    "head_dim, expected",
    [(16, (16, 0)), (64, (64, 0)), (80, (64, 16)), (96, (64, 32)), (128, (128, 0)), (160, (128, 32)),
     (192, (128, 64)), (256, (256, 0)), (112, (128, 0)), (8, (16, 0)), (72, (64, 16))],
)  # fmt: skip
def test_head_sizes_are_cut_into_powers_of_two(head_dim: int, expected: tuple[int, int]) -> None:
    assert tiles.halves(head_dim) == expected


@given(st.integers(1, 256))
def test_halves_cover_the_head_and_waste_no_more_than_one_power_of_two(head_dim: int) -> None:
    first, second = tiles.halves(head_dim)
    assert head_dim <= first + second <= max(16, tiles.power_of_two(head_dim))
    assert first >= 16 and first & (first - 1) == 0
    assert second == 0 or (second >= 16 and second & (second - 1) == 0)


@given(st.integers(0, 4096), st.integers(0, 4096), st.integers(1, 256))
def test_segments_are_possible_and_never_overfill(programs: int, key_tiles: int, sms: int) -> None:
    count = tiles.segments(programs, key_tiles, sms)
    assert 1 <= count <= 128
    assert count == 1 or count * 2 <= key_tiles
    if programs >= 2 * sms:
        assert count == 1


@pytest.mark.parametrize("programs, expected", [(8, (30, 33)), (1, (110, 128)), (64, (4, 4)), (264, (1, 1))])
def test_segments_fill_an_h200(programs: int, expected: tuple[int, int]) -> None:
    """132 multiprocessors, two programs each: 264 slots."""
    low, high = expected
    assert low <= tiles.segments(programs, 512, 132) <= high


def test_a_band_of_heads_fits_half_of_the_l2() -> None:
    assert tiles.band(4096, 512, 64, 50 << 20) == 12
    assert tiles.band(1 << 20, 512, 64, 50 << 20) == 1
    assert tiles.band(16, 512, 64, 50 << 20) == 64


@pytest.mark.parametrize("arch", [80, 86, 89, 90, 100, 103, 120])
@pytest.mark.parametrize("head_dim", [16, 64, 80, 128, 192, 256])
def test_every_architecture_has_tiles(arch: int, head_dim: int) -> None:
    for rows in (1, 16, 40, 64, 65, 4096):
        for plain in (False, True):
            config = tiles.forward_config(arch, head_dim, rows, plain)
            assert config.block_m >= 16 and config.block_n >= 16
            assert not config.descriptor or arch >= 90
    for kernel in ("backward_kv", "backward_q"):
        assert tiles.backward_config(arch, head_dim, kernel).num_warps in (4, 8)


def test_backends_are_for_cuda_alone() -> None:
    for name in ("segmented_triton", "paged_triton"):
        assert BACKENDS[name].capabilities.devices == ("cuda",)
        found = BACKENDS[name].availability("cpu")
        assert not found.usable and found.reason == "runs on cuda only, not on cpu" and found.remedy
    problem: dict[str, Any] = {"heads_q": 8, "heads_kv": 2, "head_dim": 80, "dtype": "bfloat16", "page_size": 16}
    assert get("segmented_triton").unsupported("attention", problem | {"direction": "bwd"}, "cuda") is None
    assert get("paged_triton").unsupported("paged_attention", problem, "cuda") is None
    odd = {"head_dim": 192, "head_dim_v": 128, "kv_dtype": "float8_e4m3fn"}
    assert get("segmented_triton").unsupported("attention", problem | odd, "cuda") is None
    assert get("paged_triton").unsupported("paged_attention", problem | odd, "cuda") is None
    for wrong, why in (
        ({"dtype": "float32"}, "float32"),
        ({"kv_dtype": "float8_e5m2", "direction": "bwd"}, "forward only"),
        ({"kv_dtype": "float32"}, "kv_dtype float32"),
        ({"head_dim_v": 512}, "head_dim_v 512"),
        ({"head_dim_v": 68}, "no multiple of 8"),
        ({"head_dim": 512}, "above 256"),
        ({"mask": "bool"}, "no bool mask"),
        ({"page_size": 512}, "above 256"),
        ({"direction": "bwd"}, "forward only"),
    ):
        operation = "paged_attention" if "page_size" in wrong or "direction" in wrong else "attention"
        name = "paged_triton" if operation == "paged_attention" else "segmented_triton"
        assert why in str(get(name).unsupported(operation, problem | wrong, "cuda"))


def test_without_the_interpreter_a_cpu_tensor_is_refused() -> None:
    from kernels.segmented import triton_attention

    q = torch.zeros(1, 1, 4, 64, dtype=torch.float16)
    with pytest.raises(NotImplementedError, match="run on cuda"):
        triton_attention.attention(q, q, q)
    with pytest.raises(NotImplementedError, match="takes no mask"):
        triton_attention.attention(q, q, q, mask=torch.ones(4, 4, dtype=torch.bool))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_probe_says_what_is_missing() -> None:
    with pytest.raises(Unavailable, match="sees no CUDA device"):
        targets.probe("cuda:0")


def test_tuned_tiles_are_used_recorded_and_kept_apart_by_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tuned.json"
    monkeypatch.setenv(choices.VARIABLE, str(path))
    choices.forget()
    shipped_config, better = Config(128, 64, 4, 2), Config(64, 64, 4, 3)
    assert choices.choose("H200", "attend x", shipped_config) == shipped_config
    choices.save(path, "H200", {"attend x": better})
    choices.save(path, "A100", {"attend y": better})
    assert choices.choose("H200", "attend x", shipped_config) == better
    assert choices.choose("A100", "attend x", shipped_config) == shipped_config
    assert [(m["device"], m["source"], m["block_m"]) for m in choices.made()] == [
        ("A100", "shipped", 128), ("H200", "tuned", 64),
    ]  # fmt: skip
    choices.forget()


@pytest.mark.parametrize(
    "text", ["{", "[]", json.dumps({"schema": 9, "devices": {}}), '{"schema": 1, "devices": {"H": {"k": {"x": 1}}}}']
)
def test_a_broken_file_of_tuned_tiles_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = tmp_path / "tuned.json"
    path.write_text(text)
    monkeypatch.setenv(choices.VARIABLE, str(path))
    choices.forget()
    with pytest.raises(ValueError, match=r"tuned\.json"):
        choices.choose("H200", "k", Config(64, 64, 4, 2))
    choices.forget()


def test_types_of_arguments_are_those_of_tritons_own_launcher() -> None:
    """Compared with what Triton itself makes of the same values, tensors with storage in place of ``meta`` ones."""
    from triton._C.libtriton import native_specialize_impl  # type: ignore[import-untyped]
    from triton.backends.compiler import BaseBackend

    q, k = (torch.zeros(2, 4, n, 80, dtype=torch.float16) for n in (33, 128))
    plan = forward.plan(q, k, k, Rule(True, True, None, None, 0.1), Layout(2, 33, 128), targets.PARTS[90], splits=3)
    for launch in plan.launches:
        types, constants, attributes = launch.signature()
        for n, parameter in enumerate(launch.kernel.params):
            if parameter.is_constexpr:
                assert types[parameter.name] == "constexpr"
                continue
            plain = not parameter.do_not_specialize
            kind, key = native_specialize_impl(BaseBackend, launch.arguments[parameter.name], False, plain, plain)
            assert types[parameter.name] == kind, parameter.name
            assert ((n,) in attributes) == (key == "D"), parameter.name
            if kind == "constexpr":
                assert constants[parameter.name] == key, parameter.name


def test_eight_bit_keys_need_a_device_that_converts_them() -> None:
    q = torch.empty(1, 2, 64, 64, dtype=torch.float16, device="meta")
    k = torch.empty(1, 2, 64, 64, dtype=torch.float8_e4m3fn, device="meta")
    with pytest.raises(Unsupported, match=r"needs compute capability 8\.9; this device has 8\.0"):
        forward.plan(q, k, k, Rule(True, True, None, None, 0.1), Layout(1, 64, 64), targets.PARTS[80])
    assert forward.plan(q, k, k, Rule(True, True, None, None, 0.1), Layout(1, 64, 64), targets.PARTS[90]).launches


def test_descriptors_only_where_the_hardware_can() -> None:
    def used(arch: int, head_dim: int, **layout: Any) -> bool:
        x = torch.empty(2, 4, 256, head_dim, dtype=torch.float16, device="meta")
        if layout.get("transposed"):
            x = x.transpose(2, 3).contiguous().transpose(2, 3)
        plan = forward.plan(x, x, x, Rule(True, True, None, None, 0.1), Layout(2, 256, 256), targets.PARTS[arch])
        return bool(plan.config.descriptor)

    assert used(90, 128) and used(100, 64)
    assert not used(80, 128)
    assert not used(90, 80), "two parts would need two descriptors"
    assert not used(90, 128, transposed=True)


@pytest.mark.parametrize("arch", sorted(targets.PARTS))
def test_labels_of_shipped_variants_are_unique_and_name_the_kernel(arch: int) -> None:
    for grid in shipped.GRIDS:
        found = list(shipped.launches(arch, grid))
        labels = [label for label, _ in found]
        assert len(set(labels)) == len(labels) > 20
        assert all(label.startswith(launch.name) for label, launch in found)
        problems = [tuple(sorted({**launch.problem, "kernel": launch.name}.items())) for _, launch in found]
        assert len(set(problems)) == len(labels), "a problem for each label"
        sizes = {(p.get("head_dim"), p.get("head_dim_v")) for p in map(dict, problems)}
        assert (192, 128) in sizes
        assert any("kv_dtype" in p for p in map(dict, problems)) == (arch >= targets.EIGHT_SINCE)
    with pytest.raises(ValueError, match="no variants for arch 75"):
        next(shipped.launches(75))
