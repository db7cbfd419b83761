"""The pages: the sample backend keeps its word, and what was never filled in is found."""

from __future__ import annotations

import re
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels import registry
from kernels.backend import Unsupported
from scripts.check_docs import placeholders
from tests.kernels.helpers import qkv

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The sample of CONTRIBUTING.md as the module that it says it is, with a library that gives sevens."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    library: Any = types.ModuleType("mylib")
    library.attention = lambda q, k, v, *, causal, scale: torch.full_like(q, 7.0)
    monkeypatch.setitem(sys.modules, "mylib", library)
    module = types.ModuleType("kernels.attention.mine")
    module.__package__ = "kernels.attention"
    exec(compile(textwrap.dedent(code), "CONTRIBUTING.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


REFUSED: list[dict[str, Any]] = [
    {"window": 3},
    {"softcap": 2.0},
    {"mask": torch.ones(4, 6, dtype=torch.bool)},
    {"causal": True, "causal_alignment": "top_left"},
]


@pytest.mark.parametrize("options", REFUSED, ids=lambda o: "-".join(o))
def test_the_sample_backend_drops_no_argument(sample: Any, options: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        sample.attention(*qkv(1, 2, 2, 4, 6, 8), **options)


def test_the_sample_backend_computes_and_declares_what_it_says(sample: Any) -> None:
    (line,) = registry._declared("kernels.attention.mine")
    assert torch.equal(line.load("attention")(*qkv(1, 2, 2, 4, 6, 8)), torch.full((1, 2, 4, 8), 7.0))
    shape = {"q_len": 4, "kv_len": 6, "heads_q": 2, "heads_kv": 2, "head_dim": 8, "dtype": "float32"}
    assert line.unsupported("attention", {**shape, "causal": True}, "cuda") is None
    for more in ({"window": 3}, {"softcap": 2.0}, {"mask": "bool"}, {"heads_q": 4},
                 {"causal": True, "causal_alignment": "top_left"}):  # fmt: skip
        assert line.unsupported("attention", {**shape, **more}, "cuda"), more


@pytest.mark.parametrize("word", ["@@REPORT@@", "@@a_b-1@@"])
def test_placeholders_are_found_with_their_line(word: str) -> None:
    assert placeholders(f"# Title\n\nsee {word} here\n") == [(3, word)]


def test_what_is_no_placeholder_passes() -> None:
    assert placeholders("a@b.org @@ -1,3 +1,4 @@ hunk\n`@@`\nuser@@host\n") == []
