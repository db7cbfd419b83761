"""Records of every kind for tests of the bundle, as strategies and one by one."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from harness.bundle import (
    BundleWriter,
    Controls,
    Record,
    encode_line,
)
from harness.model import (
    Case,
    Environment,
    Machine,
    Measurement,
    Reason,
    Revision,
    Run,
    RunEnd,
    Status,
    Value,
    Workload,
)
from harness.model.bounds import COUNTED_SUFFIXES, MAX_TIME
from harness.model.params import NAME_CHARS, PARAMETERS, RESERVED, TEXT_CHARS

SCHEMA = Path(__file__).parents[2] / "docs" / "bundle.schema.json"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,12}", fullmatch=True)
floats = st.floats(allow_nan=False, allow_infinity=False)
at = st.floats(0, MAX_TIME)
counts = st.integers(0, 2**31 - 1)
scalars = st.none() | st.booleans() | st.integers() | floats | texts
positive = st.floats(0, exclude_min=True, allow_infinity=False)


def interval(x: float, n: int, low: bool, high: bool) -> Value:
    return Value(x, x if low else None, x if high else None, n)


values = st.builds(interval, positive, counts, st.booleans(), st.booleans())
timings = st.dictionaries(names, st.lists(positive, max_size=5).filter(lambda x: math.isfinite(sum(x))), max_size=3)
metric_names = names.map(lambda x: x + "_m")
free = names.filter(lambda name: name not in PARAMETERS and name not in RESERVED)
shared = st.sampled_from(
    [{}, {"batch": 2, "q_len": 0, "causal": True, "dtype": "float16", "scale": 0.5, "layout": None, "q_lens": "0,0"}]
)
params = st.builds(lambda a, b: {**a, **b}, shared, st.dictionaries(free, scalars, max_size=4))
cases = st.builds(Case, texts, st.builds(Workload, texts, params, st.floats(0, 1e18)), texts, texts)
telemetry = st.dictionaries(texts.filter(lambda x: not x.endswith(COUNTED_SUFFIXES)), scalars, max_size=3)
common: dict[str, Any] = {
    "case": cases,
    "started_at": at,
    "duration_s": st.floats(0, 1e9),
    "attempt": st.integers(1, 2**31 - 1),
    "discarded": st.dictionaries(texts, counts, max_size=3),
    "stop_reason": texts,
    "operators": st.lists(texts, max_size=3),
    "telemetry": telemetry,
}
measurements = st.builds(
    Measurement, status=st.just(Status.OK), detail=texts, metrics=st.dictionaries(metric_names, values, max_size=4),
    samples=timings, warmup=timings, **common,
) | st.builds(
    Measurement, status=st.sampled_from([s for s in Status if s is not Status.OK]), detail=texts.filter(bool), **common
)  # fmt: skip
strings = st.dictionaries(texts, texts, max_size=3)
machines = st.builds(Machine, texts, texts, texts, texts, texts, st.dictionaries(texts, scalars, max_size=3))
environments = st.builds(Environment, machines, texts, strings, texts, strings, counts, texts, texts, texts)
revisions = st.builds(Revision, texts, st.none() | texts, st.booleans(), st.none() | at, texts, texts)
ids = texts.filter(bool)
runs = st.builds(
    Run, ids, texts, revisions, environments, at, st.sampled_from(Reason), counts, texts,
    st.dictionaries(texts, scalars, max_size=3),
)  # fmt: skip
records = st.one_of(
    runs.map(lambda r: ("run", r.id, r)),
    st.tuples(st.just("measurement"), ids, measurements),
    st.builds(lambda i, v: ("controls", i, Controls(i, v)), ids, st.dictionaries(names, values, max_size=3)),
    st.builds(RunEnd, ids, at, st.booleans(), counts).map(lambda e: ("end", e.run_id, e)),
)


def write(path: Path, items: list[tuple[str, str, Record]]) -> None:
    path.unlink(missing_ok=True)
    with BundleWriter(path) as out:
        for _, run_id, record in items:
            if isinstance(record, Run):
                out.run(record)
            elif isinstance(record, Measurement):
                out.measurement(run_id, record)
            elif isinstance(record, Controls):
                out.controls(run_id, record.values)
            else:
                out.end(record)


def exactly(value: object) -> str:
    """Text that tells 1 from True and 1.0."""
    return repr(dataclasses.asdict(value))  # type: ignore[call-overload]


def simple_measurement(**changes: Any) -> Measurement:
    case = Case("prefill", Workload("attention", {"batch": 1}), "sdpa_math")
    return Measurement(**{"case": case, "status": Status.OK, "started_at": 1.0, **changes})


GOOD = json.loads(encode_line("measurement", simple_measurement(), run_id="r"))
LONG_NAME, LONG_TEXT = "n" * (NAME_CHARS + 1), "t" * (TEXT_CHARS + 1)


def case_with(params: dict[str, Any]) -> dict[str, Any]:
    return {**GOOD["case"], "workload": {"operation": "a", "params": params}}
