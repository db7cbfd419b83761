"""Bulk inserts speak both dialects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql, sqlite

from db import tables as t
from db.bulk import BulkInsert, clean, to_json


class Recorder:
    """Takes the place of a connection and keeps what the driver would get."""

    def __init__(self, dialect: Any) -> None:
        self.dialect = dialect
        self.calls: list[tuple[str, Any]] = []

    def exec_driver_sql(self, sql: str, rows: Any) -> None:
        self.calls.append((sql, rows))


@pytest.mark.parametrize(
    ("dialect", "places", "rows"),
    [
        (sqlite.dialect(), "VALUES (?, ?, ?, ?)", [(1, 2, 0.5, 3)]),
        (
            postgresql.psycopg.dialect(),  # type: ignore[attr-defined]
            "%(measurement_id)s",
            [{"measurement_id": 1, "metric_id": 2, "value": 0.5, "n": 3}],
        ),
    ],
)
def test_statement_and_rows(dialect: Any, places: str, rows: list[Any]) -> None:
    recorder = Recorder(dialect)
    insert = BulkInsert(recorder, t.MetricValue, ("measurement_id", "metric_id", "value", "n"))  # type: ignore[arg-type]
    insert([])
    insert([(1, 2, 0.5, 3)])
    ((sql, given_rows),) = recorder.calls
    assert sql.startswith("INSERT INTO metric_value (measurement_id, metric_id, value, n)")
    assert places in sql
    assert sql.endswith("ON CONFLICT DO NOTHING")
    assert given_rows == rows


@given(st.text(st.characters(), max_size=50))
def test_clean_text_is_storable_and_stable(text: str) -> None:
    once = clean(text)
    assert "\0" not in once
    once.encode()
    assert clean(once) == once
    if "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text):
        assert once == text


def test_json_beyond_64_bits_and_lone_surrogates() -> None:
    assert to_json({"a": 2**70}) == '{"a":1180591620717411303424}'
    assert to_json(["\ud800"]) == r'["\ud800"]'
