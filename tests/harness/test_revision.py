from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.hashing import content_hash
from harness.revision import revision_of

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Runs git in the temporary checkout, isolated from this user's settings."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    variables |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_COMMITTER_DATE": "1700000000 +0000",
    }

    def run(*arguments: str, cwd: Path = tmp_path) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
        return subprocess.run(
            ["git", *who, *arguments], cwd=cwd, env=variables, check=True, capture_output=True, text=True
        ).stdout.strip()

    return run


@pytest.fixture
def checkout(tmp_path: Path, git: Git) -> Path:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("a = 1\n")
    (tmp_path / "README").write_text("hello\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "Make it fast\n\nBody.")
    return tmp_path


def test_clean_commit(checkout: Path, git: Git) -> None:
    got = revision_of(checkout)
    head = git("rev-parse", "HEAD")
    assert (got.id, got.commit, got.dirty) == (head, head, False)
    assert (got.committed_at, got.subject) == (1700000000.0, "Make it fast")
    assert got.kernels_hash == content_hash(checkout / "kernels")


@pytest.mark.parametrize("name", ["__init__.py", "new/file.py"])
def test_changes_to_kernels_are_dirty(checkout: Path, git: Git, name: str) -> None:
    (checkout / "kernels" / name).parent.mkdir(exist_ok=True)
    (checkout / "kernels" / name).write_text("a = 2\n")
    got = revision_of(checkout)
    assert got.dirty and got.id == f"{git('rev-parse', 'HEAD')}+dirty.{content_hash(checkout / 'kernels')}"


def test_changes_elsewhere_are_not(checkout: Path) -> None:
    (checkout / "README").write_text("changed\n")
    (checkout / "kernels" / "__pycache__").mkdir()
    (checkout / "kernels" / "__pycache__" / "x.pyc").write_bytes(b"1")
    assert not revision_of(checkout).dirty


def test_detached_head(checkout: Path, git: Git) -> None:
    git("checkout", "--quiet", "--detach")
    assert revision_of(checkout).commit == git("rev-parse", "HEAD")


def test_shallow_clone(checkout: Path, git: Git, tmp_path_factory: pytest.TempPathFactory) -> None:
    (checkout / "README").write_text("second\n")
    git("commit", "--quiet", "-a", "-m", "Second")
    clone = tmp_path_factory.mktemp("clone") / "c"
    git("clone", "--quiet", "--depth", "1", checkout.as_uri(), str(clone))
    got = revision_of(clone)
    assert got.commit == git("rev-parse", "HEAD") and got.subject == "Second"


def test_worktree_and_environment_of_a_hook(checkout: Path, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    git("worktree", "add", "--quiet", "--detach", str(checkout / "wt"))
    monkeypatch.setenv("GIT_DIR", str(checkout / "nowhere"))
    assert revision_of(checkout / "wt").commit == git("rev-parse", "HEAD")


def test_no_commit_yet_is_unversioned(tmp_path: Path, git: Git) -> None:
    (tmp_path / "kernels").mkdir()
    git("init", "--quiet")
    got = revision_of(tmp_path)
    assert got.id == f"unversioned.{content_hash(tmp_path / 'kernels')}" and got.commit is None


def test_no_repository_is_unversioned(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    assert revision_of(tmp_path).id.startswith("unversioned.")


def test_no_git_is_unversioned(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout / "nothing"))
    assert revision_of(str(checkout)).id.startswith("unversioned.")


def test_an_installed_copy_inside_a_checkout_is_not_the_checkout(checkout: Path) -> None:
    (checkout / ".gitignore").write_text("site/\n")
    shutil.copytree(checkout / "kernels", checkout / "site" / "kernels")
    assert revision_of(checkout / "site").id.startswith("unversioned.")
