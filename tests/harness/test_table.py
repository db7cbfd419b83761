"""CSV tables: types per column, and errors that name file, line and column."""

import csv
import io
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import InputError
from harness.table import read_table
from harness.workload_import import import_calls


def write(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_types_per_column(tmp_path: Path) -> None:
    t = read_table(write(tmp_path, "a,b,c,d,e\n1,1,yes,x,\n-2,2.5,No,1,\n,nan,TRUE,,\n"))
    assert t.columns["a"] == [1, -2, None]
    assert t.columns["b"][:2] == [1.0, 2.5]
    assert math.isnan(t.columns["b"][2])  # type: ignore[arg-type]
    assert t.columns["c"] == [True, False, True]
    assert t.columns["d"] == ["x", "1", None]
    assert t.columns["e"] == [None, None, None]


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    t = read_table(write(tmp_path, 'a,b\n"x\ny",1\n\nz,2\n'))
    assert t.lines == [2, 5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"t\.csv:1: empty"),
        ("a,a\n1,2\n", r"t\.csv:1: column 'a' stands twice"),
        ("a,\n1,2\n", r"t\.csv:1: column 2 has no name"),
        ("a,b\n1,2\n3\n", r"t\.csv:3: 1 cells where the header has 2"),
        ('a,b\n1,2\n"3,4\n', r"t\.csv:3: "),
        (b"a,b\n1,2\n\xff,4\n", r"t\.csv:3: not UTF-8"),
        (b"a,b\n1,\x00\n", r"t\.csv:2: holds a null byte"),
    ],
)
def test_bad_files(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_table(write(tmp_path, text))


def test_numbers_name_the_cell(tmp_path: Path) -> None:
    t = read_table(write(tmp_path, "v\n1\nx\n"))
    with pytest.raises(InputError, match=r"t\.csv:3: column 'v': 'x' is no number"):
        t.numbers("v")


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_table(str(tmp_path / "none.csv"))
    with pytest.raises(InputError, match="cannot be read"):
        read_table(str(tmp_path))


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=2, max_size=2), max_size=5
    )
)
def test_any_quoted_cells_are_kept(rows: list[list[str]]) -> None:
    import tempfile

    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([["a", "b"], *rows])
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        Path(file.name).write_bytes(out.getvalue().encode())
        t = read_table(file.name, text=("a", "b"))
    assert t.columns["a"] == [r[0].strip() or None for r in rows]


def test_import_counts_equal_calls(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text(
        '{"q_len":1,"kv_len":512,"causal":true}\n{"seq_len":64,"count":3}\n{"causal":true,"q_len":1,"kv_len":512}\n'
    )
    found = import_calls(str(path))
    assert [(w.weight, w.params["q_len"]) for w in found] == [(3.0, 64), (2.0, 1)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"q_len":1}', "needs kv_len"),
        ('{"seq_len":1,"heads":2}', "unknown field 'heads'"),
        ('{"seq_len":"64"}', "field 'seq_len': must be a whole number"),
        ('{"seq_len":1,"count":0}', "field 'count'"),
        ("[1]", "not a JSON object"),
        ("{", "not a JSON object"),
    ],
)
def test_bad_calls(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text("\n" + line + "\n")
    with pytest.raises(InputError, match=rf"calls\.jsonl:2: .*{message}"):
        import_calls(str(path))
