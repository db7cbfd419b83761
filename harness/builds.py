"""``kernels`` as it stood at a commit, laid out on disk and ready to import. Builds are cached by content.

``kernels`` is plain Python (Triton compiles at run time), so taking the folder out of git is the whole build.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .hashing import content_hash
from .model import InfrastructureError, InputError
from .runtime import runtime_dir

FOLDER = "kernels"
_KEEP = 64


@dataclass(frozen=True)
class Build:
    """``root`` is the folder to put on the path: it holds the package folder ``kernels``."""

    root: Path
    commit: str


def git(repo: Path, *args: str) -> bytes:
    """Output of a git command in ``repo``; InputError with git's own words where it fails."""
    command = ["git", "-C", str(repo), "-c", "core.quotepath=off", *args]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    except FileNotFoundError:
        raise InfrastructureError("git is not installed; revisions cannot be told apart without it") from None
    except subprocess.TimeoutExpired:
        raise InfrastructureError(f"git {args[0]} did not end within 120 s in {repo}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise InputError(f"git {' '.join(args)}: {said or f'exit code {done.returncode}'}")
    return done.stdout


def commit_of(repo: Path, ref: str) -> str:
    """Full hash of a commit; InputError for a name that git does not know."""
    if ref.startswith("-"):
        raise InputError(f"{ref!r} is no revision")
    return git(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").decode().strip()


def build(repo: Path, ref: str) -> Build:
    """Lay out ``kernels`` of a commit. Safe when several processes ask for the same one at once."""
    try:
        commit = commit_of(repo, ref)
    except InputError:
        raise InputError(f"{ref!r} is no commit of {repo}; in a shallow clone run `git fetch --unshallow`") from None
    tree = git(repo, "ls-tree", "-d", commit, FOLDER).decode().split()
    if len(tree) < 3:
        raise InputError(f"commit {commit[:12]} has no folder {FOLDER}/")
    target = runtime_dir() / "builds" / tree[2]
    if not (target / FOLDER).is_dir():
        archive = git(repo, "archive", "--format=tar", commit, FOLDER)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=".part-"))
        try:
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(scratch, filter="data")
            os.rename(scratch, target)  # noqa: PTH104
        except OSError as err:
            shutil.rmtree(scratch, ignore_errors=True)
            if not (target / FOLDER).is_dir():
                raise InfrastructureError(f"cannot lay out {FOLDER} of {commit[:12]} in {target}: {err}") from None
        _prune(target.parent)
    os.utime(target)
    return Build(target, commit)


def _prune(folder: Path) -> None:
    old = sorted((p for p in folder.iterdir() if not p.name.startswith(".")), key=lambda p: p.stat().st_mtime)
    for path in old[:-_KEEP]:
        shutil.rmtree(path, ignore_errors=True)


def build_worktree(repo: Path) -> Build:
    """Lay out ``kernels`` as it stands in the working tree, so that later edits do not reach a running sweep."""
    source = repo / FOLDER
    if not (source / "__init__.py").is_file():
        raise InputError(f"{repo} has no folder {FOLDER}/ with an __init__.py; run from a checkout")
    digest = content_hash(source)
    target = runtime_dir() / "builds" / f"tree-{digest}"
    if not (target / FOLDER).is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=".part-"))
        for path in source.rglob("*.py"):
            place = scratch / FOLDER / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
        try:
            os.rename(scratch, target)  # noqa: PTH104
        except OSError:
            shutil.rmtree(scratch, ignore_errors=True)
        _prune(target.parent)
    os.utime(target)
    return Build(target, f"worktree.{digest}")
