from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

from harness.measuring import Bench
from harness.measuring.failures import memory_ceiling
from harness.measuring.memory import footprint
from harness.model import Case, MeasureOptions

from .conftest import QUICK

CPU = torch.device("cpu")
MIB = 1 << 20


def test_peak_output_and_workspace_are_exact() -> None:
    given = torch.ones(MIB // 4)

    def call() -> torch.Tensor:
        first = torch.empty(3 * MIB, dtype=torch.uint8)
        del first
        second = torch.empty(2 * MIB, dtype=torch.uint8)
        out = given + given
        del second
        return out

    got = footprint(call, [given], CPU)
    assert (got.peak, got.output, got.workspace) == (3 * MIB, MIB, 2 * MIB)


def test_a_view_of_an_input_is_no_output() -> None:
    given = torch.ones(64)
    assert footprint(lambda: given[1:], [given], CPU).output == 0


def test_outputs_that_share_storage_count_once() -> None:
    def call() -> tuple[torch.Tensor, torch.Tensor]:
        both = torch.ones(128, dtype=torch.uint8)
        return both[:64], both[64:]

    assert footprint(call, [], CPU).output == 128


def test_operators_are_in_order_once_and_counted_with_repetitions() -> None:
    a = torch.ones(4)
    got = footprint(lambda: (a * a * a).exp(), [a], CPU)
    assert got.operators == ["aten::mul", "aten::exp"]
    assert got.calls == 3


@pytest.mark.parametrize("backend", ["sdpa_math", "sdpa_flash", "segmented"])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_same_case_twice_gives_same_bytes_and_names(
    bench: Bench, case: Callable[..., Case], backend: str, direction: str
) -> None:
    one = case(backend=backend, direction=direction, q_len=65, kv_len=65)
    first, second = (bench.measure(one, QUICK) for _ in range(2))
    exact = ("peak_memory_bytes", "output_bytes", "workspace_bytes", "input_bytes", "operator_calls")
    assert first.detail == second.detail == ""
    assert [first.metrics[n] for n in exact] == [second.metrics[n] for n in exact]
    assert first.operators == second.operators != []


def test_workspace_of_a_case_is_seen(bench: Bench, case: Callable[..., Case]) -> None:
    options = MeasureOptions(max_samples=6, hot=False)
    lean, rich = (bench.measure(case(f), options).metrics for f in ("good", "known_workspace"))
    assert rich["workspace_bytes"].value == lean["workspace_bytes"].value + MIB
    assert rich["output_bytes"] == lean["output_bytes"]


def test_profiling_writes_nothing_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    footprint(lambda: torch.ones(3), [], CPU)
    assert capfd.readouterr().err == ""


def test_standard_error_is_back_after_a_kernel_that_raises(capfd: pytest.CaptureFixture[str]) -> None:
    def call() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        footprint(call, [], CPU)
    os.write(2, b"still here")
    assert "still here" in capfd.readouterr().err
    assert footprint(lambda: torch.ones(2), [], CPU).calls > 0


def test_ceiling_lets_an_allocation_fail_and_is_lifted() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_ceiling(share=1e-6), pytest.raises(RuntimeError, match="allocate memory"):
        torch.empty(512 * MIB, dtype=torch.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert torch.empty(512 * MIB, dtype=torch.uint8).numel() == 512 * MIB
