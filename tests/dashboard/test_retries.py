"""What was tried again on the page of runs: facts by hand, the chart, and the page on stored runs."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import retry_facts
from dashboard.charts import heat
from db.engine import open_store
from db.screens import RetryCell
from harness.ingest import ingest_bundle
from harness.model import Case, Measurement, Status, Workload
from tests.db.factory import DAY, START, make_case, make_measurement, make_run, write_run

from . import stores
from .test_charts import titles
from .test_facts import RUN
from .test_views import app, shown


def cell(run: str, backend: str = "flex", retried: int = 0, recovered: int = 0, at: float = START) -> RetryCell:
    return RetryCell(run, at, "decode", backend, 10, retried, recovered, {"crashed": retried} if retried else {})


def nights(path: Path, *cases: tuple[Case, list[Status]], count: int = 3) -> None:
    """``count`` nights in which each case ended as its statuses say, attempt by attempt."""
    with open_store(path) as store:
        for night in range(count):
            run = make_run(night)
            held: list[Measurement] = [
                make_measurement(case, status=s, at=run.started_at, attempt=i)
                for case, statuses in cases
                for i, s in enumerate(statuses, 1)
            ]
            ingest_bundle(store, write_run(path.with_suffix(f".{night}.jsonl"), run, held))


def charts(at: AppTest) -> list[Any]:
    """The heat maps of retries on the page."""
    return [e for e in at.get("vega_lite_chart") if "tried again / cases" in e.proto.spec]


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNWATCH_DB", str(tmp_path / "a.db"))
    return tmp_path / "a.db"


def test_rows_are_marked_by_whether_trying_again_helped() -> None:
    cells = [cell("a", "flex", 4, 4), cell("a", "paged"), cell("b", "flex", 2, 1), cell("b", "segmented", 1, 0)]
    rows, left_out = retry_facts.rows(cells, 40)
    assert [(r["id"], r["name"], r["share"], r["mark"]) for r in rows] == [
        ("a", "decode / flex", 0.4, "✓"), ("b", "decode / flex", 0.2, "✕"), ("b", "decode / segmented", 0.1, "✕"),
    ]  # fmt: skip
    assert left_out == 0
    assert (rows[0]["why"], rows[0]["recovered"]) == ("4 crashed", 4)
    assert retry_facts.told(cells) == "7 of 40 cases were tried again and 5 recovered. Earlier attempts: 7 crashed."
    kept, left_out = retry_facts.rows(cells, 1)
    assert ({r["name"] for r in kept}, left_out) == ({"decode / flex"}, 1), "the pair with the most retries stays"


def test_runs_of_the_same_minute_are_columns_of_their_own() -> None:
    rows, _ = retry_facts.rows([cell("a", retried=1), cell("b", retried=1, at=START + 5)], 40)
    assert len({r["run"] for r in rows}) == 2


@pytest.mark.parametrize(
    ("measured", "reach"), [([], 0), ([5] * 9, 6), ([70_000] * 9, 2), ([10**6, 5], 1), ([150_000, 1], 1)]
)
def test_very_large_runs_are_looked_at_less_far_back(measured: list[int], reach: int) -> None:
    assert retry_facts.reach([replace(RUN, measured=n) for n in measured], 6) == reach


def test_the_chart_names_its_axes_and_keeps_runs_in_order_of_time() -> None:
    rows, _ = retry_facts.rows([cell(n, retried=i, at=START + DAY * i) for i, n in enumerate("zya", 1)], 40)
    made = heat.retries(rows)
    assert {"start of run (UTC)", "benchmark / backend", "tried again / cases"} <= titles(made)
    layers = made.to_dict()["layer"]
    assert all(layer["encoding"]["x"]["sort"] == [r["run"] for r in rows] for layer in layers)
    assert layers[1]["encoding"]["color"]["scale"]["domain"] == [0, 0.3]


def test_the_page_shows_where_and_how_often(db: Path) -> None:
    a, b, c = make_case(0, "flex"), make_case(1, "flex"), make_case(2, "paged")
    crashed, ok = Status.CRASHED, Status.OK
    nights(db, (a, [crashed, ok]), (b, [ok]), (c, [Status.TIMED_OUT, crashed]))
    at = app("runs")
    assert not at.exception
    text = html.unescape(shown(at))
    assert "In the newest 3 runs: 6 of 9 cases were tried again and 3 recovered." in text
    assert "Earlier attempts: 3 crashed, 3 timed out." in text
    (chart,) = charts(at)
    drawn = pa.ipc.open_stream(chart.proto.datasets[0].data.data).read_all().to_pylist()
    assert [(r["name"], r["retried"], r["cases"], r["mark"]) for r in drawn] == 3 * [
        ("prefill / flex", 1, 2, "✓"), ("prefill / paged", 1, 1, "✕"),
    ]  # fmt: skip
    assert len({r["run"] for r in drawn}) == 3


def test_nothing_tried_again_is_said_calmly(db: Path) -> None:
    nights(db, (make_case(), [Status.OK]), (make_case(1), [Status.CRASHED]))
    at = app("runs")
    assert not at.exception
    assert "Nothing had to be tried again in the newest 3 runs" in shown(at)
    assert not charts(at)


def test_hostile_names_are_text(db: Path) -> None:
    named = Case(stores.HOSTILE, Workload("attention", {"kv_len": 1, "q_len": 1}), stores.HOSTILE)
    nights(db, (named, [Status.WRONG, Status.OK]), count=1)
    at = app("runs")
    assert not at.exception
    assert "1 of 1 case was tried again and 1 recovered" in html.unescape(shown(at))
    for element in (*at.markdown, *at.caption):
        assert "<img" not in element.value and ":red[" not in element.value
