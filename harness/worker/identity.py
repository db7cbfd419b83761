"""Which worker a client needs: everything that could change a number is part of its key.

The key holds device, interpreter, kernels (path and content), backends of others (content), the ruler's own
source, installed distributions, the variables that libraries read, and the processors that may be used. Any of
them changed means another worker, since the old one would measure yesterday's state in silence.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.hashing import content_hash as folder_hash
from harness.hashing import kernels_location
from harness.model import InfrastructureError, InputError, canonical_json, content_key
from harness.variables import KEYED

#: Folder of the package ``harness`` that this process runs.
RULER = Path(__file__).resolve().parent.parent
BOOT = Path(__file__).resolve().parent / "boot.py"
#: Test hook: ``FILE:NAME`` of a class to stand in for :class:`harness.measuring.Bench`.
BENCH_VARIABLE = "ATTNWATCH_BENCH"

# What the worker runs; the CLI, detection and reports are no part of the ruler.
_RULER_PARTS = ("model", "worker", "measuring", "hashing.py", "locks.py", "runtime.py", "variables.py")


@dataclass(frozen=True)
class WorkerSpec:
    """What is to be measured with.

    ``kernels`` is a folder that contains the package folder ``kernels``; None takes the one installed for
    ``python``. ``variables`` are set in the worker's environment before anything is imported, those named in ``unset``
    are taken out of it. ``modules`` names
    packages or modules that bring backends of others (``--backend module:function``): they are found from this
    process, pinned in the worker, and their content is part of its key. ``isolate`` gives each case a fresh process.
    """

    device: str
    python: str = sys.executable
    kernels: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    isolate: bool = False
    modules: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()


@dataclass(frozen=True)
class Identity:
    """A spec resolved to paths and content hashes. ``pinned`` maps top-level names to files or folders."""

    spec: WorkerSpec
    key: str
    kernels_path: str
    kernels_hash: str
    pinned: dict[str, str]
    environment: dict[str, str]


def identify(spec: WorkerSpec) -> Identity:
    """Resolve ``spec`` now. Raises :class:`InputError` where there are no kernels or no such interpreter."""
    environment = _environment(spec)
    _refuse_ignored(spec)
    path, digest = _kernels(spec, environment)
    pinned = {"harness": str(RULER), "kernels": str(path)}
    others: dict[str, str] = {}
    for name in spec.modules:
        top = name.partition(".")[0]
        if top not in pinned and (location := _find(top, [*sys.path, str(Path.cwd())])) is not None:
            pinned[top] = str(location)
            try:
                others[top] = content_hash([location])
            except OSError as error:
                raise InputError(f"cannot read {location}: {error.strerror}") from None
    key = content_key(
        spec.device,
        _interpreter(spec.python),
        [str(path), digest],
        others,
        sorted(pair for pair in spec.variables if not pair[0].startswith(KEYED)),
        ruler_hash(),
        _distributions(spec.python),
        {k: v for k, v in environment.items() if k.startswith(KEYED)},
        sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
    )[:16]
    return Identity(spec, key, str(path), digest, pinned, environment)


def content_hash(paths: Sequence[Path]) -> str:
    """16 hex digits over modules and package folders: names and bytes of their ``*.py`` files. ``OSError`` passes."""
    parts = [
        [path.name, folder_hash(path) if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()]
        for path in paths
    ]
    return content_key(parts)[:16]


@cache
def ruler_hash() -> str:
    """Content of the code that measures, as this process found it."""
    return content_hash(ruler_parts())


def ruler_parts() -> list[Path]:
    """Files and folders of the ruler that a worker runs."""
    return [RULER / part for part in _RULER_PARTS if (RULER / part).exists()]


def _environment(spec: WorkerSpec) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONSTARTUP", "PYTHONSAFEPATH")}
    if search := environment.get("PYTHONPATH"):
        # Relative entries would mean another folder from where the worker runs.
        parts = [str(Path(p).absolute()) for p in search.split(os.pathsep) if p]
        environment["PYTHONPATH"] = os.pathsep.join(parts)
    environment.update(dict(spec.variables))
    return {k: v for k, v in environment.items() if k not in spec.unset}


def _refuse_ignored(spec: WorkerSpec) -> None:
    """The loader passes over a library that is not there: the variable would be measured as if it did nothing."""
    for name, value in spec.variables:
        if name in ("LD_PRELOAD", "LD_AUDIT"):
            missing = [p for p in value.replace(":", " ").split() if "/" in p and not Path(p).exists()]
            if missing:
                raise InputError(
                    f"variable {name} names {missing[0]}, which does not exist; the loader would ignore it"
                )


def _no_package(found: Path) -> InputError:
    return InputError(
        f"{found} stands in the way of the package kernels; rename it, or take {found.parent} off PYTHONPATH"
    )


def _kernels(spec: WorkerSpec, environment: dict[str, str]) -> tuple[Path, str]:
    if spec.kernels is not None:
        folder = Path(spec.kernels).absolute()
        if not (folder / "kernels" / "__init__.py").is_file():
            raise InputError(f"{folder} holds no package folder kernels (with an __init__.py)")
        path, digest = kernels_location([str(folder)])
    elif _same_interpreter(spec.python):
        found = _find("kernels", _safe_path())
        if found is None:
            raise InputError(
                f"kernels is not installed for {spec.python}; run `pip install ./kernels` or name a folder"
            )
        if not found.is_dir():
            raise _no_package(found)
        path, digest = kernels_location([str(found.parent)])
    else:
        answer = _probe(spec.python, environment.get("PYTHONPATH", ""))
        if answer["kernels"] is None and answer["module"]:
            raise _no_package(Path(answer["module"]))
        if answer["kernels"] is None:
            raise InputError(
                f"kernels is not installed for {spec.python}; install it there or name a folder with kernels"
            )
        path, digest = kernels_location([str(Path(answer["kernels"]).parent)])
    return Path(path).resolve(), digest


def _find(name: str, search: Sequence[str]) -> Path | None:
    """Folder (package) or file (module) of a top-level name, found on ``search`` without importing it."""
    saved = sys.path
    try:
        sys.path = list(search)
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, None, None) if find is not None else None
            if spec is None:
                continue
            if spec.submodule_search_locations and spec.origin:
                return Path(spec.origin).resolve().parent
            if spec.origin and spec.origin.endswith(".py"):
                return Path(spec.origin).resolve()
            return None  # built in, compiled or a namespace: nothing that could be pinned
    finally:
        sys.path = saved
    return None


def _safe_path() -> list[str]:
    """``sys.path`` less what Python put first for this program: the same that ``-P`` leaves."""
    if sys.flags.safe_path:
        return sys.path
    unsafe = {"", str(Path.cwd())}
    if sys.argv and sys.argv[0]:
        unsafe.add(str(Path(sys.argv[0]).resolve().parent))
    kept = {str(Path(p).absolute()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p}
    return [p for p in sys.path if p in kept or p not in unsafe]


def _same_interpreter(python: str) -> bool:
    return _interpreter(python) == _interpreter(sys.executable)


def _interpreter(python: str) -> str:
    # Not resolved: the python of a virtual environment is a link, and the link is what finds the environment.
    return os.path.abspath(python)  # noqa: PTH100  (Path.absolute keeps '..')


def _distributions(python: str) -> list[str]:
    """Installed distributions with versions, from the names of their metadata folders."""
    if _same_interpreter(python):
        folders = [p for p in _safe_path() if p.endswith("-packages")]
    else:
        folders = _probe(python, os.environ.get("PYTHONPATH", ""))["packages"]
    names: set[str] = set()
    for folder in folders:
        if os.path.isdir(folder):  # noqa: PTH112  (once per call and hot)
            names.update(n for n in os.listdir(folder) if n.endswith((".dist-info", ".egg-info", ".egg-link")))  # noqa: PTH208
    return sorted(names)


@cache
def _probe(python: str, search: str) -> dict[str, Any]:
    """Ask another interpreter where its ``kernels`` and packages are."""
    code = (
        "import importlib.util, json, sys\n"
        "s = importlib.util.find_spec('kernels')\n"
        "print(json.dumps({'kernels': s.submodule_search_locations[0] if s and s.submodule_search_locations else None,"
        " 'module': s.origin if s else None,"
        " 'packages': [p for p in sys.path if p.endswith('-packages')], 'version': sys.version_info[:2]}))"
    )
    env = {**os.environ, "PYTHONPATH": search}
    try:
        done = subprocess.run(
            [python, "-P", "-c", code], capture_output=True, text=True, timeout=60, env=env, cwd="/", check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"cannot run interpreter {python}: {error}") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise InfrastructureError(
            f"{python} does not answer (Python 3.11 or newer is needed): {done.stderr[-500:]}"
        ) from None
    return answer


def describe(identity: Identity) -> str:
    """One line for logs."""
    s = identity.spec
    return canonical_json(
        {"device": s.device, "python": s.python, "kernels": [identity.kernels_path, identity.kernels_hash]}
    )
