"""A million values of asv: every row accounted for, little memory, and nothing to do the second time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import bench_import

pytestmark = [pytest.mark.scale, pytest.mark.timeout(900)]


def test_a_million_values(tmp_path: Path) -> None:
    root = bench_import.write_directory(tmp_path / "results", files=1000, benchmarks=100)
    first = bench_import.import_in_child(root, tmp_path / "s.db")
    again = bench_import.import_in_child(root, tmp_path / "s.db")
    print(f"{first['seconds']:.1f} s, {first['peak'] / 1e6:.0f} MB; again {again['seconds']:.1f} s")
    assert first["taken"] + first["dropped"] == 1_000_000 and first["dropped"] > 0
    assert (again["taken"], again["duplicates"], again["dropped"]) == (0, first["taken"], first["dropped"])
    assert max(first["peak"], again["peak"]) <= bench_import.MOST_BYTES
    assert again["processor"] < first["processor"] / 5, "what is known is not read again"
