"""Whatever a file holds: it is taken, or refused with InputError. No other error, nothing executed, no hang."""

from __future__ import annotations

import json
import string
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.bundle import BundleLine
from harness.imports import READERS
from harness.model import InputError
from harness.readers.base import Foreign
from harness.readers.literals import identifier, plain, scalar_of
from harness.readers.units import measure_of

from .samples import FILES

FORMATS = [r for r in READERS if isinstance(r.read, type) and issubclass(r.read, Foreign)]
SPECIAL: list[Any] = [
    None, True, -1, 0, 10**400, 1e308, float("nan"), float("inf"), "", "\ud800", "\0", "=1+1", "a" * 2000,
    "__import__('os').system('true')", "(" * 500, "-" * 5000, [], {}, [[]], [{}], {"": {}}, [1, 2], ["x"],
]  # fmt: skip
SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def read_all(path: Path) -> list[BundleLine]:
    """What every reader that claims the file gives; InputError counts as nothing."""
    out: list[BundleLine] = []
    for reader in FORMATS:
        if not reader.sniff(path):
            continue
        source = reader.read(path)
        try:
            lines = list(source)
        except InputError as error:
            assert str(path) in str(error)
            continue
        for line in lines:
            assert line.kind != "measurement" or line.record.case.key  # type: ignore[union-attr]
        out += lines
    return out


def mutate(data: st.DataObject, value: Any, depth: int = 0) -> Any:
    """The value with something in it replaced, removed or doubled."""
    choice = data.draw(st.integers(0, 9)) if depth else data.draw(st.integers(3, 9))
    if choice == 0:
        return data.draw(st.sampled_from(SPECIAL))
    if isinstance(value, dict) and value:
        key = data.draw(st.sampled_from(sorted(value)))
        out = dict(value)
        if choice == 1:
            del out[key]
        elif choice == 2:
            out[data.draw(st.sampled_from(["", "x", "\ud800", "version", key * 2]))] = out[key]
        else:
            out[key] = mutate(data, out[key], depth + 1)
        return out
    if isinstance(value, list) and value:
        i = data.draw(st.integers(0, len(value) - 1))
        if choice == 1:
            return value[:i] + value[i + 1 :]
        if choice == 2:
            return [*value, value[i]]
        return [*value[:i], mutate(data, value[i], depth + 1), *value[i + 1 :]]
    return data.draw(st.sampled_from(SPECIAL))


@pytest.mark.parametrize("name", [n for n in FILES if not n.endswith(".csv")])
@SETTINGS
@given(data=st.data())
def test_changed_structures(name: str, data: st.DataObject) -> None:
    text = FILES[name]()
    head, brace, rest = text.partition("{")
    value = json.loads(brace + rest.rstrip().rstrip(";"))
    for _ in range(data.draw(st.integers(1, 3))):
        value = mutate(data, value)
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(head + json.dumps(value), encoding="utf-8")
        read_all(path)


@pytest.mark.parametrize("name", list(FILES))
@SETTINGS
@given(
    cuts=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), st.binary(max_size=6)), min_size=1, max_size=4),
    end=st.floats(0, 1),
)
def test_changed_bytes(name: str, cuts: list[tuple[float, int, bytes]], end: float) -> None:
    raw = FILES[name]().encode()
    for place, length, new in cuts:
        at = int(place * len(raw))
        raw = raw[:at] + new + raw[at + length :]
    if end < 0.3:
        raw = raw[: int(end / 0.3 * len(raw))]
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(raw)
        read_all(path)


@SETTINGS
@given(text=st.text(max_size=200) | st.text(alphabet="([{'\"\\u0x1-~+,.: }])", max_size=3000))
def test_printed_values(text: str) -> None:
    value = scalar_of(text)
    assert value is None or isinstance(value, bool | int | float | str)
    json.dumps(value, allow_nan=False)
    assert not isinstance(value, str) or len(value) <= 400


@SETTINGS
@given(text=st.text(max_size=300))
def test_names_and_units(text: str) -> None:
    name = identifier(text)
    assert name.isidentifier() and identifier(name) == name
    measure = measure_of(text)
    assert measure.factor > 0 and set(measure.metric) <= set(string.ascii_lowercase + string.digits + "_")


@SETTINGS
@given(value=st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(), st.lists))
def test_plain_is_a_scalar(value: object) -> None:
    json.dumps(plain(value), allow_nan=False)


@pytest.mark.slow
@settings(SETTINGS, max_examples=30)
@given(data=st.data())
def test_changed_files_are_stored_or_refused(data: st.DataObject) -> None:
    from db.engine import open_store
    from harness.imports import import_paths
    from harness.judge.imported import judge_imported

    with TemporaryDirectory() as folder, open_store(Path(folder) / "s.db") as store:
        for name in data.draw(st.lists(st.sampled_from(list(FILES)), min_size=1, max_size=3)):
            text = FILES[name]()
            if not name.endswith(".csv"):
                head, brace, rest = text.partition("{")
                text = head + json.dumps(mutate(data, json.loads(brace + rest.rstrip().rstrip(";"))))
            (Path(folder) / name).write_text(text, encoding="utf-8")
            try:
                first = import_paths(store, [Path(folder) / name])
                again = import_paths(store, [Path(folder) / name])
            except InputError:
                continue
            assert again["taken"] == 0
            assert again["duplicates"] == first["taken"] + first["duplicates"]
        judge_imported(store)
