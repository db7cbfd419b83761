"""Samples of old runs go, everything else stays, and what was pruned is still known when it is handed over again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from db import queries
from db.engine import Store, open_store
from db.pruning import prune_samples
from harness.ingest import ingest_bundle
from harness.model import InputError, Status

from .conftest import Fresh
from .factory import DAY, START, dump, make_case, make_measurement, make_run, write_run

NIGHTS, CASES = 4, 6


def made(number: int) -> list[object]:
    return [
        make_measurement(make_case(i), at=START + DAY * number, samples={"latency_s": [1e-3 + 1e-6 * i, 2e-3] * 40})
        for i in range(CASES - 1)
    ] + [make_measurement(make_case(CASES), status=Status.CRASHED, at=START)]


@pytest.fixture
def store(fresh: Fresh, tmp_path: Path) -> Iterator[Store]:
    opened = fresh()
    for number in range(NIGHTS):
        ingest_bundle(opened, write_run(tmp_path / f"{number}.jsonl", make_run(number), made(number)))  # type: ignore[arg-type]
    yield opened
    opened.close()


def without_samples(store: Store) -> dict[str, object]:
    """The dump less the samples, which are the only bytes in a row."""
    return {
        table: [tuple(v for v in row if not isinstance(v, bytes)) for row in rows]
        for table, rows in dump(store).items()
    }


def test_only_samples_of_old_runs_go(store: Store) -> None:
    before, cut = without_samples(store), START + DAY * 2
    told = prune_samples(store, cut, dry_run=True)
    assert (told.measurements, told.runs) == (2 * (CASES - 1), 2)
    assert told.sample_bytes > 0 and told.store_bytes_before == told.store_bytes_after
    assert all(queries.samples(store, m.id)["samples"] for m in queries.measurements_of_run(store, "run-000")[:5])

    done = prune_samples(store, cut)
    assert (done.measurements, done.runs, done.sample_bytes) == (told.measurements, told.runs, told.sample_bytes)
    assert without_samples(store) == before
    for number in range(NIGHTS):
        for m in queries.measurements_of_run(store, f"run-{number:03d}"):
            kept = number >= 2 and m.status == "ok"
            assert bool(queries.samples(store, m.id)["samples"]) == kept
            assert (m.status != "ok") or m.metrics["latency_s"].n == 3
    assert prune_samples(store, cut).measurements == 0


def test_a_pruned_run_handed_over_again_changes_nothing(store: Store, tmp_path: Path) -> None:
    prune_samples(store, START + DAY * 9)
    before = dump(store)
    for number in range(NIGHTS):
        report = ingest_bundle(store, tmp_path / f"{number}.jsonl")
        assert (report.taken, report.duplicates, report.dropped) == (0, CASES, 0)
    assert dump(store) == before


@pytest.mark.parametrize("group", ["samples", "warmup"])
def test_other_samples_are_still_told_from_those_that_were_there(store: Store, tmp_path: Path, group: str) -> None:
    prune_samples(store, START + DAY * 9)
    first = made(1)[0]
    other = replace(first, **{group: {"latency_s": [1e-3]}})  # type: ignore[type-var]
    path = write_run(tmp_path / "other.jsonl", make_run(1), [other])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"already stored with other content \(samples"):
        ingest_bundle(store, path)


def test_space_is_given_back_to_the_disk(tmp_path: Path) -> None:
    with open_store(tmp_path / "x.db") as store:
        many = [
            make_measurement(make_case(i), samples={"latency_s": [1e-3 + 1e-9 * k * i for k in range(2000)]})
            for i in range(200)
        ]
        ingest_bundle(store, write_run(tmp_path / "b.jsonl", make_run(), many))
        done = prune_samples(store, START + DAY)
        assert done.store_bytes_after < done.store_bytes_before - 0.8 * done.sample_bytes
        assert done.store_bytes_after == (tmp_path / "x.db").stat().st_size
