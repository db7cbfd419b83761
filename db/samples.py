"""Lossless, compact text of a measurement's samples.

Layout of the bytes::

    1 byte   form: 0 plain, 1 the rest is compressed with zlib, 2 pruned: the rest is the digest of what was there
    4 bytes  length of the header, little endian
    header   UTF-8 JSON {"s": {metric: count, ...}, "w": {metric: count, ...}}: samples kept, warm-up
    body     the samples in that order, float64 little endian, seconds (or the unit of the metric)

A pruned one holds no numbers any more, yet tells whether samples handed over again are those that it held.
Nothing at all is None. Floats come back bit for bit, NaN payloads and negative zero included.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
import zlib
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache

#: Below this size compressing costs more time than the bytes it saves are worth (timings are mostly noise).
_COMPRESS_FROM = 1024

_PRUNED = b"\2"

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
    """(samples, warm-up) of :func:`encode`; nothing where they were pruned.

    Raises ``ValueError`` where the bytes are not of this form.
    """
    if data is None or is_pruned(data):
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


def is_pruned(data: bytes | None) -> bool:
    """Whether there were samples that :func:`pruned` took away."""
    return data is not None and data[:1] == _PRUNED


def pruned(samples: Mapping[str, Sequence[float]], warmup: Mapping[str, Sequence[float]]) -> bytes | None:
    """What stays of samples that are given up: 17 bytes that only these samples give; None where both are empty."""
    if not samples and not warmup:
        return None
    digest = hashlib.blake2b(digest_size=16)
    for group in (samples, warmup):
        digest.update(struct.pack("<I", len(group)))
        for name in sorted(group):
            key = name.encode("utf-8", "backslashreplace")
            digest.update(struct.pack("<II", len(key), len(group[name])) + key)
            digest.update(struct.pack(f"<{len(group[name])}d", *group[name]))
    return _PRUNED + digest.digest()
