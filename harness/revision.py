"""Which revision of ``kernels`` a folder holds, read with git where git can be used."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from harness.hashing import PACKAGE, content_hash
from harness.model import Revision

# Only files that the content hash covers decide about "dirty": a byte-compiled file or an egg-info does not.
_PATHSPEC = f":(glob){PACKAGE}/**/*.py"


def revision_of(path: Path | str) -> Revision:
    """Revision of the checkout at ``path``, the folder that contains ``kernels/``.

    ``dirty`` looks at the Python files of ``kernels/`` only. No git, no repository, no commit yet, or a
    ``kernels`` that the repository ignores (an installed copy inside a checkout) gives ``unversioned.HASH``.
    Detached heads and shallow clones are ordinary commits. Raises nothing for any of these.
    """
    root = Path(path)
    kernels_hash = content_hash(root / PACKAGE)
    commit = _git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if not commit or _git(root, "check-ignore", "--quiet", PACKAGE) is not None:
        return Revision(id=f"unversioned.{kernels_hash}", kernels_hash=kernels_hash)
    status = _git(root, "status", "--porcelain", "--untracked-files=all", "--", _PATHSPEC)
    shown = _git(root, "show", "--no-patch", "--format=%ct%n%s", commit) or ""
    when, _, subject = shown.partition("\n")
    dirty = status is None or bool(status)  # a status that cannot be read must not pass as clean
    return Revision(
        id=f"{commit}+dirty.{kernels_hash}" if dirty else commit,
        commit=commit,
        dirty=dirty,
        committed_at=float(when) if when.isdigit() else None,
        subject=subject.strip(),
        kernels_hash=kernels_hash,
    )


def commit_revision(root: Path | str, commit: str, kernels_hash: str) -> Revision:
    """Revision of a commit that is checked out elsewhere (by asv), described from the repository at ``root``.

    An empty or unknown ``commit`` still gives a revision that the kernels' hash identifies.
    """
    if not commit:
        return Revision(id=f"unversioned.{kernels_hash}", kernels_hash=kernels_hash)
    shown = _git(Path(root), "show", "--no-patch", "--format=%ct%n%s", commit) or ""
    when, _, subject = shown.partition("\n")
    at = float(when) if when.isdigit() else None
    return Revision(commit, commit, committed_at=at, subject=subject.strip(), kernels_hash=kernels_hash)


def _git(root: Path, *arguments: str) -> str | None:
    """Output of a read-only git command, or None where it fails.

    ``safe.directory`` because containers often mount checkouts of another owner; with it, nothing that the
    repository configures may run, hence no fsmonitor.
    """
    command = ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", *arguments]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    variables |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(command, cwd=root, env=variables, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None
