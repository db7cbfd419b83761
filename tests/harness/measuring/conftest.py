from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.measuring import Bench
from harness.measuring.timing.cpu import CpuClock
from harness.model import Case, MeasureOptions, Workload

SMALL = {
    "batch": 1,
    "heads_q": 2,
    "heads_kv": 2,
    "q_len": 16,
    "kv_len": 16,
    "head_dim": 8,
    "dtype": "float32",
    "causal": True,
    "direction": "fwd",
}

#: Few samples, so that tests say nothing about time.
QUICK = MeasureOptions(min_samples=6, max_samples=6, rel_width=0.5)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of fake backends, importable by its bare name."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import attention_fakes  # type: ignore[import-not-found]

    attention_fakes.left_behind.clear()
    yield attention_fakes


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    """A CPU bench with a small flush and one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Bench("cpu", clock=CpuClock(llc_bytes=1 << 20))
    torch.set_num_threads(threads)


@pytest.fixture
def case(fakes: Any) -> Callable[..., Case]:
    """``case("wrong_value", q_len=4)``: a small attention case of a fake (or, with ``backend=``, real) backend."""

    def make(function: str = "good", *, backend: str | None = None, operation: str = "attention", **more: Any) -> Case:
        return Case("test", Workload(operation, {**SMALL, **more}), backend or f"attention_fakes:{function}")

    return make
