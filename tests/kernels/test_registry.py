"""Names become backends; nothing that others bring can break the rest."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from kernels import registry
from kernels.attention import attention
from kernels.backend import describe
from kernels.registry import BACKENDS, Backend, Capabilities, Support, Unavailable, UnknownBackend, get

from .helpers import qkv

CONTRACT = {
    "sdpa_math", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "flex", "varlen", "xformers", "flash_attn",
    "flash_attn_3", "flash_attn_4", "flashinfer", "segmented", "paged", "paged_gather", "sdpa_padded",
    "segmented_triton", "paged_triton", "kv_trimmed", "kv_fixed", "layer_norm_fp32", "layer_norm_native",
    "softmax_true_max", "softmax_running_max", "gemm_native", "gemm_padded", "gemm_split",
    "gradients_gloo", "gradients_whole", "mask_pooled", "mask_static", "mask_dynamic", "entropy_pruning",
    "entropy_masking",
    "step_segmented", "step_scores", "rope_per_length", "rope_cached", "rope_padded",
    "stream_copy", "stream_into", "stream_rows", "shared_stride", "strided_index", "strided_views",
    "server_trimmed", "server_fixed", "compiled_auto", "compiled_dynamic", "compiled_static", "compiled_powers",
    "compiled_eights", "pool_paged", "pool_first_fit", "pool_best_fit",
}  # fmt: skip


def test_names_of_the_contract() -> None:
    assert set(BACKENDS) == CONTRACT
    assert all(b.broken is None and b.operations and b.summary for b in BACKENDS.values())
    assert all(set(b.operations) <= set(registry.OPERATIONS) for b in BACKENDS.values())


def test_every_operation_has_two_backends_on_a_cpu() -> None:
    for operation in registry.OPERATIONS:
        usable = [b for b in BACKENDS.values() if operation in b.operations and b.availability("cpu").usable]
        assert len(usable) >= 2


def test_importing_the_registry_imports_no_torch() -> None:
    code = (
        "import sys, kernels, kernels.registry as r\n"
        "r.BACKENDS['segmented'].unsupported('attention', {'dtype': 'float32'}, 'cpu'); r.all_backends()\n"
        "heavy = {'torch', 'triton', 'numpy', 'xformers', 'flash_attn', 'flashinfer'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_whatever_cannot_be_used_says_why_and_how_to_get_it() -> None:
    for backend in BACKENDS.values():
        found = backend.availability("cpu")
        assert found.usable or (found.reason and found.remedy), backend.name
        assert not found.usable or found.version, backend.name


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_cuda_device_is_the_reason() -> None:
    for backend in BACKENDS.values():
        found = backend.availability("cuda:0")
        assert not found.usable
        if "cuda" in backend.capabilities.devices:
            assert "sees no CUDA device" in str(found.reason)


def test_unknown_names_get_close_matches() -> None:
    with pytest.raises(UnknownBackend, match="sdpa_flash") as caught:
        get("spda_flash")
    assert not str(caught.value).startswith("'")
    with pytest.raises(UnknownBackend, match=r"known: .*segmented"):
        get("zzz")


def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str) -> None:
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(body), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)


MINE = """
    import torch

    def mine(q, k, v, *, causal=False, causal_alignment="bottom_right", window=None, softcap=None,
             scale=None, mask=None):
        "A private kernel."
        return torch.full_like(q, 7.0)
"""


def test_a_private_backend_given_as_module_and_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _module(tmp_path, monkeypatch, "private_kernels_a", MINE)
    backend = get("private_kernels_a:mine")
    assert backend.availability("cpu").usable
    assert (list(backend.operations), backend.summary) == (["attention"], "A private kernel.")
    out = attention(*qkv(1, 2, 2, 3, 3, 4), backend="private_kernels_a:mine")
    assert torch.equal(out, torch.full((1, 2, 3, 4), 7.0))


def test_the_operation_is_read_from_the_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
        def ragged(q, k, v, *, cu_seqlens_q): ...
        def paged(q, k_cache, v_cache, *, block_table, cu_seqlens_q): ...
        def named(*args, **kwargs): ...
        named.operation = "varlen_attention"
        number = 3
    """
    _module(tmp_path, monkeypatch, "private_kernels_b", body)
    assert list(get("private_kernels_b:ragged").operations) == ["varlen_attention"]
    assert list(get("private_kernels_b:paged").operations) == ["paged_attention"]
    assert list(get("private_kernels_b:named").operations) == ["varlen_attention"]
    assert "neither a Backend nor a function" in str(get("private_kernels_b:number").availability().reason)
    assert "AttributeError" in str(get("private_kernels_b:nothing").availability().reason)


def test_entry_points_bring_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _module(tmp_path, monkeypatch, "private_kernels_c", MINE)
    info = tmp_path / "private_kernels-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: private-kernels\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[attnwatch.backends]\nmine = private_kernels_c:mine\nlost = private_kernels_missing:f\n"
        "segmented = private_kernels_c:mine\n"
    )
    assert get("mine").availability("cpu").usable
    assert "ModuleNotFoundError" in str(get("lost").availability("cpu").reason)
    found = registry.all_backends()
    assert {"mine", "lost"} <= set(found)
    assert found["segmented"] is BACKENDS["segmented"]
    with pytest.raises(UnknownBackend, match="mine"):
        get("mien")
    with pytest.raises(Unavailable, match="private_kernels_missing"):
        attention(*qkv(1, 1, 1, 1, 1, 1), backend="lost")


RAISES = {
    "exits": "raise SystemExit(3)",
    "own_base": "class Odd(BaseException): pass\nraise Odd('odd')",
    "generator_exit": "raise GeneratorExit",
    "no_text": "class Mute(Exception):\n    def __str__(self): raise RuntimeError\nraise Mute",
    "syntax": "def f(:",
    "missing": "import a_library_that_is_not_there",
    "assertion": "assert False, 'no GPU'",
}


@pytest.mark.parametrize("name", list(RAISES))
def test_an_import_that_raises_anything_becomes_a_reason(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _module(tmp_path, monkeypatch, f"raising_{name}", RAISES[name])
    given = get(f"raising_{name}:kernel").availability("cpu")
    cpu = Capabilities({"cpu": Support()})
    probed = Backend("b", {}, cpu, install="pip install b", probe=f"raising_{name}:probe").availability("cpu")
    loaded = Backend("b", {"attention": f"raising_{name}:f"}, cpu).availability("cpu")
    for found in (given, probed, loaded):
        assert not found.usable
        assert found.reason
    assert probed.remedy == "pip install b"


def test_only_an_interrupt_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _module(tmp_path, monkeypatch, "raising_interrupt", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        get("raising_interrupt:kernel")


def test_one_of_ours_that_is_broken_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _module(tmp_path, monkeypatch, "raising_ours", "raise SystemExit('half written')")
    (found,) = registry._declared("raising_ours")
    assert found.name == "raising_ours"
    assert "half written" in str(found.availability("cpu").reason)
    assert "half written" in str(found.unsupported("attention", {}, "cpu"))


def test_one_file_and_one_line_add_a_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the docstring of the registry promises, for a file as a contributor would write it."""
    body = """
        from kernels.backend import Backend, Capabilities, Support

        def attention(q, k, v, **options):
            from kernels.registry import get
            return get("sdpa_math").load("attention")(q, k, v, **options)

        BACKENDS = (
            Backend("mine", {"attention": f"{__name__}:attention"}, Capabilities({"cpu": Support()}), "mine"),
        )
    """
    _module(tmp_path, monkeypatch, "contributed", body)
    line = {b.name: b for b in registry._declared("contributed")}
    monkeypatch.setitem(BACKENDS, "mine", line["mine"])
    q, k, v = qkv(1, 2, 1, 4, 4, 8)
    assert torch.equal(attention(q, k, v, backend="mine"), attention(q, k, v, backend="sdpa_math"))


def test_describe_is_one_line() -> None:
    assert describe(ValueError("a\n  b")) == "ValueError: a b"
    assert describe(Unavailable("plain words")) == "plain words"
