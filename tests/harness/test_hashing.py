from __future__ import annotations

from pathlib import Path

import pytest

from harness.hashing import content_hash, kernels_location
from harness.model import InfrastructureError

ROOT = Path(__file__).resolve().parents[2]


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / "kernels" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "kernels"


def test_same_files_same_hash_wherever_they_are(tmp_path: Path) -> None:
    files = {"__init__.py": "", "a/b.py": "x = 1\n"}
    first, second = tree(tmp_path / "one", files), tree(tmp_path / "two", files)
    (second / "notes.txt").write_text("not code")
    (second / "__pycache__").mkdir()
    (second / "__pycache__" / "b.pyc").write_bytes(b"\0")
    assert content_hash(first) == content_hash(second)
    assert len(content_hash(first)) == 16


@pytest.mark.parametrize(
    "files",
    [
        {"__init__.py": "", "a/b.py": "x = 2\n"},
        {"__init__.py": "", "a/c.py": "x = 1\n"},
        {"__init__.py": "x = 1\n", "a/b.py": ""},
        {"__init__.py": "", "a/b.py": "x = 1\n", "c.py": ""},
    ],
)
def test_any_change_changes_the_hash(tmp_path: Path, files: dict[str, str]) -> None:
    base = tree(tmp_path / "base", {"__init__.py": "", "a/b.py": "x = 1\n"})
    assert content_hash(tree(tmp_path / "other", files)) != content_hash(base)


def test_found_in_a_given_folder_without_running_it(tmp_path: Path) -> None:
    folder = tree(tmp_path, {"__init__.py": "raise SystemExit('must not run')\n"})
    assert kernels_location([str(tmp_path)]) == (folder.resolve(), content_hash(folder))


def test_in_development_it_is_this_repository() -> None:
    assert kernels_location()[0] == ROOT / "kernels"


def test_none_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="pip install") as error:
        kernels_location([str(tmp_path)])
    assert str(tmp_path) in str(error.value)
