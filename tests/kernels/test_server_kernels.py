"""Kernels of servers: decode steps over a request mix, batches through a compiler, pools of cache blocks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.block_pool import pools
from kernels.block_pool.reference import block_pool
from kernels.compiled_batches import calls
from kernels.compiled_batches.reference import compiled_batches
from kernels.faults import servers
from kernels.serving import decode
from kernels.serving.reference import serving

POOLS = [pools.paged, pools.first_fit, pools.best_fit, servers.long_side_by_side]


class Heard:
    """Counts what an implementation says."""

    def __init__(self, listening: bool = False) -> None:
        self.said: Counter[str] = Counter()
        self.listening = listening

    def __call__(self, what: str, value: float = 1.0) -> None:
        self.said[what] += 1


@pytest.mark.parametrize("function", [decode.trimmed, decode.fixed, servers.serve])
def test_every_server_gives_each_token_what_the_oracle_gives(
    function: Callable[..., torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    if function is servers.serve:
        monkeypatch.setenv("ATTNWATCH_FAULTS", "server_capacity,server_boundary")
    generator = torch.Generator().manual_seed(0)
    schedule = torch.tensor([[3, 0], [4, 8], [0, 7]], dtype=torch.int32)
    x, weight, bias = (torch.randn(s, generator=generator) for s in ((4, 16), (16,), (16,)))
    cache = torch.randn((2, 2, 2, 8, 4), generator=generator)
    heard = Heard()
    got = function(x, cache, weight, bias, schedule=schedule, note=heard)
    want = serving(x, cache, weight, bias, schedule=schedule)
    assert got.shape == (4, 4, 4)
    torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-5)
    assert heard.said == {"start": 1, "step": 3}


def test_narrow_sums_of_a_server_are_wrong_past_the_range_of_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNWATCH_FAULTS", "server_narrow")
    x = torch.randn((2, 64), generator=torch.Generator().manual_seed(0))
    cache = torch.randn((1, 2, 1, 4, 16), generator=torch.Generator().manual_seed(1)).half()
    ones, zeros = torch.ones(64).half(), torch.zeros(64).half()
    for variance, right in ((1.0, True), (2000.0, False)):
        given_x = (x * variance**0.5).half()
        got, want = (
            f(given_x, cache, ones, zeros, schedule=torch.tensor([[4], [4]]), note=Heard())
            for f in (servers.serve, decode.trimmed)
        )
        assert torch.allclose(got, want, atol=1e-2) is right


@pytest.mark.parametrize("function", [calls.auto, calls.dynamic, calls.static, calls.powers, calls.eights])
def test_compiled_calls_are_right_and_begin_from_cold_each_time(function: Callable[..., torch.Tensor]) -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn((12, 8), generator=generator), torch.randn((8, 8), generator=generator)
    batches = torch.tensor([5, 12, 9, 5, 12], dtype=torch.int32)
    graphs = {calls.auto: 2, calls.dynamic: 1, calls.static: 3, calls.powers: 2, calls.eights: 2}[function]  # type: ignore[index]
    for _ in range(2):
        heard = Heard()
        got = function(x, w, batches=batches, note=heard)
        torch.testing.assert_close(got.double(), compiled_batches(x, w, batches=batches), atol=1e-6, rtol=1e-5)
        assert heard.said == {"call": 5, "done": 5, "ran": 5, "compiled": graphs}


@pytest.mark.slow
def test_past_the_limit_nothing_is_compiled_and_padding_stays_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, many = torch.randn((20, 4)), torch.eye(4), torch.arange(1, 13).repeat(2)
    limit = calls.LIMIT
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 4096)  # as the flex backend leaves it
    for function, graphs, ran in ((calls.static, limit, 2 * limit), (calls.powers, 5, 24), (calls.dynamic, 2, 24)):
        heard = Heard()
        function(x, w, batches=many, note=heard)
        assert (heard.said["compiled"], heard.said["ran"], heard.said["call"]) == (graphs, ran, 24), function.__name__


def events_of(seed: int, requests: int, most: int) -> torch.Tensor:
    rng = random.Random(seed)
    times = []
    for r in range(requests):
        at = rng.random()
        times += [(at, r, rng.randint(1, most)), (at + rng.random() / 2, r, 0)]
    return torch.tensor([(r, n) for _, r, n in sorted(times)], dtype=torch.int32)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.sampled_from([8, 24, 40]))
def test_no_pool_loses_or_mixes_up_what_requests_wrote(seed: int, requests: int, capacity: int) -> None:
    events = events_of(seed, requests, 20)
    values = torch.arange(1.0, requests + 1)[:, None].repeat(1, 3)
    want = block_pool(values, events=events, capacity=capacity)
    for function in POOLS:
        heard = Heard(listening=True)
        got = function(values, events=events, capacity=capacity, note=heard)
        torch.testing.assert_close(got.double(), want)
        assert heard.said["scatter"] == heard.said["largest"] == requests
        if function is pools.paged:
            assert not heard.said["no_place"]


@given(st.binary(min_size=1, max_size=40), st.integers(1, 6))
def test_places_are_free_and_as_their_names_say(mask: bytes, blocks: int) -> None:
    taken = bytearray(b & 1 for b in mask)
    runs = [e - s for s, e in pools.free_runs(taken)]
    assert sum(runs) == taken.count(0)
    first, best = pools.first_run(taken, blocks), pools.shortest_run(taken, blocks)
    assert (first is None) == (best is None) == (max(runs, default=0) < blocks)
    if taken.count(0) >= blocks:
        assert pools.any_free(taken, blocks) == [i for i, held in enumerate(taken) if not held][:blocks]
    if first is not None and best is not None:
        assert not any(taken[i] for i in (*first, *best)) and first[0] <= best[0]
        shortest = min(n for n in runs if n >= blocks)
        assert [e - s for s, e in pools.free_runs(taken) if s <= best[0] < e] == [shortest]


def test_a_contiguous_pool_moves_for_a_request_that_a_paged_one_takes() -> None:
    # Two of three neighbours leave, and the fourth wants four blocks where there are two runs of two.
    events = torch.tensor([(0, 2), (1, 2), (2, 2), (0, 0), (2, 0), (3, 4), (1, 0), (3, 0)], dtype=torch.int32)
    moves = {}
    for function in POOLS[:3]:
        heard = Heard()
        function(torch.ones((4, 1)), events=events, capacity=6, note=heard)
        moves[function.__name__] = heard.said["no_place"]
    assert moves == {"paged": 0, "first_fit": 1, "best_fit": 1}
