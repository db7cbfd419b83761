"""Lossless, compact text of a measurement's samples.

Layout of the bytes::

    1 byte   form: 0 plain, 1 the rest is compressed with zlib
    4 bytes  length of the header, little endian
    header   UTF-8 JSON {"s": {metric: count, ...}, "w": {metric: count, ...}}: samples kept, warm-up
    body     the samples in that order, float64 little endian, seconds (or the unit of the metric)

Nothing at all is None. Floats come back bit for bit, NaN payloads and negative zero included.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache

#: Below this size compressing costs more time than the bytes it saves are worth (timings are mostly noise).
_COMPRESS_FROM = 1024

Samples = dict[str, list[float]]


def encode(samples: Mapping[str, Sequence[float]], warmup: Mapping[str, Sequence[float]]) -> bytes | None:
    """Samples and warm-up, each metric name -> values, as bytes; None where both are empty."""
    if not samples and not warmup:
        return None
    header = _header(
        tuple((k, len(v)) for k, v in samples.items()),
        tuple((k, len(v)) for k, v in warmup.items()),
    )
    parts = [array("d", values) for values in (*samples.values(), *warmup.values())]
    if sys.byteorder == "big":
        for part in parts:
            part.byteswap()
    rest = header + b"".join(part.tobytes() for part in parts)
    if len(rest) >= _COMPRESS_FROM and len(packed := zlib.compress(rest, 1)) < len(rest):
        return b"\1" + packed
    return b"\0" + rest


@lru_cache(maxsize=1024)
def _header(samples: tuple[tuple[str, int], ...], warmup: tuple[tuple[str, int], ...]) -> bytes:
    # Most measurements of a run have the same few counts.
    text = json.dumps({"s": dict(samples), "w": dict(warmup)}, separators=(",", ":")).encode()
    return struct.pack("<I", len(text)) + text


def decode(data: bytes | None) -> tuple[Samples, Samples]:
    """(samples, warm-up) of :func:`encode`. Raises ``ValueError`` where the bytes are not of this form."""
    if data is None:
        return {}, {}
    try:
        rest = zlib.decompress(data[1:]) if data[:1] == b"\1" else data[1:]
        if data[:1] not in (b"\0", b"\1"):
            raise ValueError("unknown form")
        (length,) = struct.unpack_from("<I", rest)
        counts = json.loads(rest[4 : 4 + length])
        body = array("d")
        body.frombytes(rest[4 + length :])
        if sys.byteorder == "big":
            body.byteswap()
        groups: list[Samples] = []
        at = 0
        for group in ("s", "w"):
            out: Samples = {}
            for name, count in counts[group].items():
                out[name] = body[at : at + count].tolist()
                at += count
            groups.append(out)
        if at != len(body):
            raise ValueError(f"{len(body)} numbers where {at} were announced")
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, zlib.error) as error:
        raise ValueError(f"stored samples cannot be read: {error}") from error
    return groups[0], groups[1]
