"""Taking files and folders in: all or nothing, one reader per format, words for what is no format of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.engine import open_store
from db.queries import row_counts
from harness import imports
from harness.bundle import BundleLine, read_bundle
from harness.imports import Reader, check_paths, expand, import_paths
from harness.model import InputError
from tests.db.factory import dump, make_case, make_measurement, make_run, write_run


def bundle(path: Path, number: int = 0, cases: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_run(path, make_run(number), [make_measurement(make_case(i)) for i in range(cases)])


def names(paths: list[Path]) -> list[str]:
    return [path.name for path, _ in expand(paths)[0]]


def test_several_paths_are_taken_whole(tmp_path: Path) -> None:
    paths = [bundle(tmp_path / "a.jsonl", 0), bundle(tmp_path / "sub" / "b.jsonl", 1, cases=3)]
    with open_store(str(tmp_path / "s.db")) as store:
        report = import_paths(store, [paths[0], tmp_path / "sub"])
        assert (report["taken"], report["duplicates"], report["dropped"]) == (5, 0, 0)
        assert report["runs"] == ["run-000", "run-001"] and report["files"] == [str(p) for p in paths]
        again = import_paths(store, paths)
        assert (again["taken"], again["duplicates"]) == (0, 5)
        assert row_counts(store)["measurements"] == 5


@pytest.mark.parametrize("where", ["first", "last"])
def test_one_bad_file_among_several_changes_nothing(tmp_path: Path, where: str) -> None:
    good, bad = bundle(tmp_path / "good.jsonl", cases=300), bundle(tmp_path / "bad.jsonl", 1)
    lines = bad.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"status":"ok"', b'"status":"fine"')
    bad.write_bytes(b"".join(lines))
    with open_store(str(tmp_path / "s.db")) as store:
        import_paths(store, [bundle(tmp_path / "old.jsonl", 7)])
        before = dump(tmp_path / "s.db")
        with pytest.raises(InputError, match=r"bad.jsonl:4: .*status"):
            import_paths(store, [bad, good] if where == "first" else [good, bad])
    assert dump(tmp_path / "s.db") == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0"),
        ("table.csv", b"case,side,value\na,base,1\n"),
        ("calls.jsonl", b'{"batch": 1, "q_len": 4, "kv_len": 4}\n'),
        ("list.jsonl", b'[{"kind": "run"}]\n'),
        ("deep.jsonl", b"[" * 100_000 + b"\n"),
        ("text.jsonl", b"kind of text\n"),
        ("zeros.bin", b"\0" * 10_000),
    ],
)
def test_what_is_no_bundle_is_named_with_the_formats_that_are_known(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"{name}: not of a format.*attnwatch bundle \(\*\.jsonl\)"):
        expand([path])


def test_missing_paths_and_folders_without_results_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone: no such file or folder"):
        expand([tmp_path / "gone"])
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "calls.jsonl").write_text('{"q_len": 1}\n')
    with pytest.raises(InputError, match=r"f: holds nothing that can be taken in; known are attnwatch bundle"):
        expand([tmp_path / "f"])


def test_folders_are_searched_by_what_readers_claim_and_nothing_is_read_twice(tmp_path: Path) -> None:
    a, b = bundle(tmp_path / "x" / "a.jsonl"), bundle(tmp_path / "x" / ".hidden" / "b.jsonl", 1)
    (tmp_path / "x" / "a.jsonl.cut").write_text('{"kind":"measurement","sch\n')
    (tmp_path / "x" / "calls.jsonl").write_text('{"q_len": 1}\n')
    assert sorted(names([tmp_path / "x"])) == ["a.jsonl", "b.jsonl"]
    assert sorted(names([a, tmp_path / "x", tmp_path / "x" / ".." / "x" / "a.jsonl", b])) == ["a.jsonl", "b.jsonl"]


def test_cut_empty_and_oddly_named_bundles_are_recognised(tmp_path: Path) -> None:
    whole = bundle(tmp_path / "whole.txt")
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(whole.read_bytes()[:200])
    (tmp_path / "empty.jsonl").touch()
    marked = tmp_path / "bom.jsonl"
    marked.write_bytes(b"\xef\xbb\xbf" + whole.read_bytes())
    report = check_paths([whole, cut, tmp_path / "empty.jsonl", marked])
    assert report["taken"] == 2 and report["duplicates"] == 2
    assert any("empty.jsonl: holds no records" in w for w in report["warnings"])
    assert any("cut.jsonl:1" in w and "truncated" in w for w in report["warnings"])


class Notes:
    """What a reader of another format gives: the same lines, from a folder of its own kind."""

    def __init__(self, path: Path) -> None:
        self.path, self.warnings = path, ["read as notes"]

    def __iter__(self) -> Iterator[BundleLine]:
        yield from read_bundle(self.path / "inner.data")


def test_a_new_format_is_one_reader_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle(tmp_path / "all" / "notes" / "inner.data", 1)
    bundle(tmp_path / "all" / "a.jsonl", 0)
    reader = Reader("notes", "notes", lambda p: p.is_dir() and (p / "inner.data").exists(), Notes)
    monkeypatch.setattr(imports, "READERS", (*imports.READERS, reader))
    with open_store(str(tmp_path / "s.db")) as store:
        report = import_paths(store, [tmp_path / "all"])
    assert sorted(report["runs"]) == ["run-000", "run-001"] and report["warnings"] == ["read as notes"]
    with pytest.raises(InputError, match=r"known are attnwatch bundle \(\*\.jsonl\), .*notes \(notes\)"):
        expand([Path(__file__)])


def test_checking_writes_nothing_but_reports_the_same(tmp_path: Path) -> None:
    path = bundle(tmp_path / "a.jsonl")
    before = sorted(tmp_path.rglob("*"))
    assert check_paths([path])["taken"] == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_a_format_can_be_named_and_links_that_lead_out_are_passed_over(tmp_path: Path) -> None:
    table = tmp_path / "in" / "numbers.txt"
    table.parent.mkdir()
    table.write_text("series,value\na,1.5\na,2.5\n")
    with pytest.raises(InputError, match=r"numbers.txt: not of a format"):
        check_paths([table])
    assert check_paths([table], "csv")["taken"] == 2
    with pytest.raises(InputError, match=r"--format: 'cvs' is none of attnwatch bundle, asv"):
        check_paths([table], "cvs")
    (tmp_path / "in" / "b.csv").write_text("series,value\nb,1\n")
    (tmp_path / "out.csv").write_text("series,value\nsecret,1\n")
    (tmp_path / "in" / "link.csv").symlink_to(tmp_path / "out.csv")
    report = check_paths([tmp_path / "in"])
    assert report["taken"] == 1 and any("link.csv: a link out of" in w for w in report["warnings"])
