"""The samples come back bit for bit."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.samples import decode, encode

groups = st.dictionaries(st.text(max_size=20), st.lists(st.floats(width=64), max_size=300), max_size=4)


def bits(group: dict[str, list[float]]) -> dict[str, list[bytes]]:
    return {k: [struct.pack("<d", v) for v in values] for k, values in group.items()}


@given(groups, groups)
def test_round_trip(samples: dict[str, list[float]], warmup: dict[str, list[float]]) -> None:
    kept, before = decode(encode(samples, warmup))
    assert bits(kept) == bits(samples)
    assert bits(before) == bits(warmup)
    assert list(kept) == list(samples)


@given(st.binary(max_size=200))
def test_other_bytes_are_an_error_that_says_so(data: bytes) -> None:
    try:
        decode(data)
    except ValueError as error:
        assert "stored samples cannot be read" in str(error)


def test_small_and_large_forms() -> None:
    small = encode({"latency_s": [1.0, 2.0]}, {})
    assert small is not None
    assert small[:1] == b"\0"
    large = encode({"latency_s": [1.0] * 1000}, {})
    assert large is not None
    assert large[:1] == b"\1"
    assert len(large) < 1000


@pytest.mark.parametrize("cut", [1, 4, 8, 20, 30])
def test_cut_text_is_noticed(cut: int) -> None:
    data = encode({"latency_s": [1.0, 2.0, 3.0]}, {"latency_s": [4.0]})
    assert data is not None
    with pytest.raises(ValueError, match="cannot be read"):
        decode(data[:-cut])


def test_nothing_is_none() -> None:
    assert encode({}, {}) is None
    assert decode(None) == ({}, {})
