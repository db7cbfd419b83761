"""What fuzzing starts from, and whatever it ever found, is read as it should be; no fuzzer is needed for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.bundle import read_bundle
from harness.readers.asv import AsvResults

from .targets import TARGETS

SEEDS = Path(__file__).resolve().parent / "seeds"


@pytest.mark.parametrize("path", sorted(p for p in SEEDS.rglob("*") if p.is_file()), ids=lambda p: p.name)
def test_a_seed(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


def test_seeds_reach_behind_the_first_check() -> None:
    """Seeds that a reader refuses at once would leave all behind it untouched."""
    assert {p.name for p in SEEDS.iterdir()} == set(TARGETS)
    assert len(list(read_bundle(SEEDS / "bundle" / "run.jsonl"))) == 5
    for path in (SEEDS / "asv").iterdir():
        assert any(line.kind == "measurement" for line in AsvResults(path)), path.name
