"""Where the package ``kernels`` is and what it holds, without importing it."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from harness.model import InfrastructureError

PACKAGE = "kernels"


def content_hash(folder: Path) -> str:
    """16 hex digits over the ``*.py`` files below ``folder``: sorted relative paths and bytes.

    Names and sizes are hashed with the bytes, so that moving code between files changes the result. What only
    builds the package (``setup.py``, ``build/``) is left out: a checkout and a wheel of it are the same kernels.
    """
    digest = hashlib.sha256()
    for name, path in sorted((p.relative_to(folder).as_posix(), p) for p in folder.rglob("*.py")):
        if name == "setup.py" or name.startswith("build/"):
            continue
        data = path.read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:16]


def kernels_location(paths: Sequence[str] | None = None) -> tuple[Path, str]:
    """Folder of the package ``kernels`` and its content hash; nothing of it is executed.

    ``paths`` are folders searched in order (as ``sys.path`` entries); None means as this interpreter would
    import it, editable installs included. Raises ``InfrastructureError`` when there is no such package.
    """
    if paths is None:
        spec = importlib.util.find_spec(PACKAGE)
    else:
        spec = importlib.machinery.PathFinder.find_spec(PACKAGE, list(paths))
    origin = spec.origin if spec is not None else None
    if origin is None:
        where = "this interpreter's path" if paths is None else ", ".join(paths) or "an empty path"
        raise InfrastructureError(
            f"no package {PACKAGE!r} on {where}; install it with `pip install ./kernels`, "
            "or name the folder that contains it"
        )
    folder = Path(origin).resolve().parent
    return folder, content_hash(folder)
