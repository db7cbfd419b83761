"""The memory tracer: nothing when off, real events when on, bounded, and a text that reads back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.measuring import Bench
from harness.measuring.tracer import MemoryTracer, copy_kind, enabled, traced
from harness.measuring.traffic import Traffic
from harness.model import InputError
from harness.model.suite import grid
from harness.model.trace import KINDS, TELEMETRY, Event, decode, encode

from .conftest import QUICK


def work(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.T, -1) @ v.clone()


GIVEN = tuple(torch.ones(4, 4) for _ in range(3))


def test_off_it_gives_back_the_function_itself() -> None:
    assert not enabled({}) and not enabled({"ATTNWATCH_TRACE_MEM": "0"}) and enabled({"ATTNWATCH_TRACE_MEM": "1"})
    assert traced(work, None) is work


def test_on_it_records_allocations_releases_copies_and_entries() -> None:
    with MemoryTracer() as tracer:
        result = traced(work, tracer, "attention")(*GIVEN)
    events = tracer.events
    assert tracer.dropped == 0 and events == sorted(events, key=lambda e: e.at_ns)
    entered = {e.name: e for e in events if e.kind == "ENTRY"}
    assert set(entered) == {"attention.q", "attention.k", "attention.v", "attention.o"}
    assert entered["attention.q"].ptr == GIVEN[0].data_ptr() and entered["attention.q"].size == 64
    blocks: dict[int, int] = {}
    for e in events:
        if e.kind == "ALLOC":
            blocks[e.ptr] = e.size
        elif e.kind == "FREE":
            assert blocks.pop(e.ptr) == e.size
    assert blocks == {result.data_ptr(): 64}  # what is left is the result
    (copied,) = [e for e in events if e.kind == "COPY"]
    assert (copied.src, copied.size) == (GIVEN[2].data_ptr(), 64) and copied.ptr != copied.src


def test_the_ring_is_bounded_and_counts_what_it_dropped() -> None:
    with MemoryTracer(capacity=10) as tracer:
        call = traced(work, tracer)
        for _ in range(550):  # more than two sittings of the profiler
            call(*GIVEN)
    with MemoryTracer() as whole:
        call = traced(work, whole)
        for _ in range(550):
            call(*GIVEN)
    assert len(tracer.events) == 10 and whole.dropped == 0
    assert tracer.dropped == len(whole.events) - 10
    with pytest.raises(ValueError, match="at least 1"):
        MemoryTracer(capacity=0)


@pytest.mark.parametrize(
    ("source", "to", "kind"),
    [("cpu", "cuda", "COPY_H2D"), ("cuda", "cpu", "COPY_D2H"), ("cpu", "cpu", "COPY"), ("cuda", "cuda", "COPY")],
)
def test_the_direction_of_a_copy_follows_from_where_its_ends_lie(source: str, to: str, kind: str) -> None:
    assert copy_kind(source, to) == kind


def test_torch_is_as_it_was_after_the_block_even_where_it_raised() -> None:
    before = {n: vars(torch.Tensor).get(n) for n in ("to", "cpu", "cuda", "clone", "contiguous", "copy_")}
    whole = torch.clone
    with pytest.raises(ZeroDivisionError), MemoryTracer():
        assert torch.clone is not whole
        raise ZeroDivisionError
    assert {n: vars(torch.Tensor).get(n) for n in before} == before and torch.clone is whole


def test_what_copies_nothing_is_no_copy() -> None:
    a = torch.ones(4, 4)
    with MemoryTracer() as tracer:
        assert a.to(torch.float32) is a
        a.contiguous()
        b = a.to(torch.float64)
        b.copy_(a)
        torch.clone(b)
    copies = [e for e in tracer.events if e.kind == "COPY"]
    assert [(e.src == a.data_ptr(), e.size) for e in copies] == [(True, 128), (True, 128), (False, 128)]


EVENTS = st.builds(
    Event, st.integers(0, 2**62), st.sampled_from(KINDS), st.integers(0, 2**62), st.integers(0, 2**40),
    st.integers(0, 2**40), st.integers(0, 2**62), st.text(max_size=8),
)  # fmt: skip


@given(st.lists(EVENTS, max_size=20), st.integers(0, 9))
def test_texts_read_back(events: list[Event], dropped: int) -> None:
    assert decode(encode(events, dropped)) == (events, dropped)


@given(st.lists(EVENTS, max_size=30), st.integers(100, 1500))
def test_a_text_keeps_to_its_limit_and_counts_what_it_left_out(events: list[Event], limit: int) -> None:
    text = encode(events, 0, limit)
    kept, dropped = decode(text)
    assert len(text) <= limit + 40 and kept == events[len(events) - len(kept) :] and dropped == len(events) - len(kept)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version":2}', '{"version":1,"dropped":0,"start_ns":0,"events":[[1]]}']
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        decode(text)


def test_a_measurement_keeps_the_trace_of_one_call_where_it_is_switched_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.model import Case

    one = Case("x", grid("attention", seq_len=40, heads_q=2, head_dim=16, causal=True)[0], "segmented")
    plain = bench.measure(one, QUICK)
    assert TELEMETRY not in plain.telemetry
    monkeypatch.setenv("ATTNWATCH_TRACE_MEM", "1")
    got = bench.measure(one, QUICK)
    assert got.detail == ""
    events, dropped = decode(str(got.telemetry[TELEMETRY]))
    assert dropped == 0 and {"ALLOC", "FREE", "ENTRY"} <= {e.kind for e in events}
    exact = ("peak_memory_bytes", "operator_calls", "workspace_bytes")
    assert [got.metrics[n] for n in exact] == [plain.metrics[n] for n in exact]


def test_traffic_counts_operands_once_and_views_not_at_all() -> None:
    a, b = torch.ones(10, 4), torch.ones(4)
    with Traffic() as counted:
        view = a[1:3]
        a + b.expand(10, 4)
        view.add_(1.0)
    assert counted.bytes == (160 + 16 + 160) + 32
