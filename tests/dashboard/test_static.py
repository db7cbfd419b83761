"""The page of compiled kernels, on stores that hold what was compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.static_facts import alerts, differences
from db.engine import Store, open_store
from db.queries import measurements_of_run
from harness.static.compiling import compiled, source
from tests.harness.static.samples import grid, night, where

from . import stores
from .test_views import app, shown


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    path = tmp_path / "a.db"
    monkeypatch.setenv("ATTNWATCH_DB", str(path))
    with open_store(path) as opened:
        yield opened


def tables(at: AppTest) -> list[Any]:
    return [frame.value for frame in at.dataframe]


def test_it_says_plainly_that_nothing_is_recorded(store: Store, tmp_path: Path) -> None:
    stores.run(tmp_path / "a.db", "base", stores.grid(4))
    at = app("static")
    assert not at.exception
    assert "Not recorded yet" in shown(at) and "attnwatch static" in shown(at)
    assert not at.dataframe


def test_resources_for_a_target_and_what_two_revisions_differ_in(store: Store, tmp_path: Path) -> None:
    night(store, tmp_path, 1, grid(), grid("sm_80"))
    changed = {"spill_bytes": 900, "options": {"num_warps": 4}, "registers": 255}
    night(store, tmp_path, 2, where(grid(), 128, **changed), grid("sm_80"))
    at = app("static", target="sm_90")
    assert not at.exception and "Not recorded yet" not in shown(at)
    assert "48 variants by ptxas 12&#46;9&#44; triton 3&#46;7&#46;1" in shown(at).replace(",", "&#44;")
    now, differing = tables(at)
    assert len(now) == 48 and set(now["registers"]) == {200, 255} and set(now["matrix instructions"]) == {"warp group"}
    assert set(now["occupancy (%)"]) == {12.5}
    assert len(differing) == 36 and set(differing["what"]) == {"registers", "spills (B)", "tile"}
    told = differing[differing["alerts"] == "yes"]
    assert set(told["what"]) == {"spills (B)"} and set(told["base"]) == {"0"} and set(told["head"]) == {"900"}
    assert all("head_dim=128" in text for text in differing["problem"])
    assert "36 differences, of which 12 alert" in shown(at)
    quiet = app("static", target="sm_80")
    assert len(tables(quiet)) == 1 and "Nothing differs" in shown(quiet)


def test_one_run_has_nothing_to_compare_with(store: Store, tmp_path: Path) -> None:
    broken = replace(grid()[0], error="PTXASError: out of registers")
    night(store, tmp_path, 1, [broken, *grid()[1:]])
    at = app("static")
    assert not at.exception and "no earlier run" in shown(at) and "1 do not compile" in shown(at)
    assert sum("PTXASError" in text for text in tables(at)[0]["does not compile"]) == 1


def test_a_new_compiler_and_other_variants_are_said(store: Store, tmp_path: Path) -> None:
    night(store, tmp_path, 1, grid())
    night(store, tmp_path, 2, grid(triton_version="3.8.0", registers=201)[:40])
    text = shown(app("static"))
    assert "Another compiler: triton 3&#46;7&#46;1 &#45;&gt; 3&#46;8&#46;0" in text or "Another compiler" in text
    assert "8 variants only in the older run" in text and "40 differences, of which 0 alert" in text


def test_compiled_targets_are_no_machine_to_begin_with(store: Store, tmp_path: Path) -> None:
    stores.run(tmp_path / "a.db", "base", stores.grid(4))
    night(store, tmp_path, 400, grid())
    at = app("memory")
    assert not at.exception
    assert at.selectbox(key="machine").options[0] == "Test CPU"


def test_alerts_are_those_of_the_judge() -> None:
    assert alerts("spill_bytes", 0, 4) and alerts("occupancy", 0.25, 0.125) and alerts("wide_load_share", 1.0, 0.9)
    assert not alerts("registers", 100, 200) and not alerts("occupancy", 0.125, 0.25)
    assert not alerts("wide_load_share", 1.0, 0.96)


@pytest.mark.slow
def test_really_compiled_kernels(store: Store, tmp_path: Path) -> None:
    launches = source("kernels.triton_support.shipped:launches")(90, "pull_request")
    label, launch = next(x for x in launches if x[0] == "attend prefill fp16 d128 causal group1 q4096")
    night(store, tmp_path, 1, [compiled(label, launch, 90)])
    planted = replace(launch, options={**launch.options, "num_warps": 4})
    report = night(store, tmp_path, 2, [compiled(label, planted, 90)])
    at = app("static")
    assert not at.exception
    now, differing = tables(at)
    assert list(now["tile"]) == ["128x128 4 warps, 2 stages, descriptors"]
    assert {"occupancy (%)", "spills (B)"} <= set(differing[differing["alerts"] == "yes"]["what"])
    base, head = (measurements_of_run(store, name) for name in (report.base_run or "", report.run_id))
    assert len(differences(base, head)) == len(differing)
