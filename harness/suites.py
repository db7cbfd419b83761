"""Suites by name, by file, or from other packages through the entry point group ``attnwatch.suites``.

An entry point names a package whose modules each hold a ``QUESTION``; ours is ``benchmarks``. A workload file
(what ``attnwatch workload import`` writes) is a suite too: give its path.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from .model import Case, InputError
from .model.suite import SUITES, Question
from .model.workloads import FILE_SUFFIX, is_suite_file, read_suite

#: The package whose suites asv runs.
OURS = "benchmarks"
_SUITE_GROUP, _BACKEND_GROUP = "attnwatch.suites", "attnwatch.backends"


@dataclass
class Found:
    """Questions by the package that brought them, and what is wrong with packages that could not be read."""

    questions: dict[str, list[Question]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


@cache
def find() -> Found:
    """Every question of every suite package: ours first, then others by name, modules in order of names.

    A package of others that cannot be read is told in ``broken`` and takes nothing else with it.
    """
    found = Found({OURS: _questions(OURS)})
    for name, package in sorted({(e.name, e.value) for e in entry_points(group=_SUITE_GROUP)}):
        if package in found.questions:
            continue
        try:
            found.questions[package] = _questions(package)
        except KeyboardInterrupt:
            raise
        except BaseException as err:
            found.broken.append(f"suites {name!r} ({package}) cannot be read: {type(err).__name__}: {err}")
    return found


def questions(packages: Iterable[str] | None = None) -> list[Question]:
    """Questions of ``packages``, of all packages where it is None."""
    by_package = find().questions
    return [q for p in (by_package if packages is None else packages) for q in by_package.get(p, ())]


def backends_of(operation: str) -> tuple[str, ...]:
    """Names of the backends of an operation; empty for an operation nobody has."""
    names: tuple[str, ...] = importlib.import_module(OURS).backends_of(operation)
    return names


def outside_modules(backends: Iterable[str]) -> tuple[str, ...]:
    """Top-level modules that bring those of ``backends`` that are not ours, for :class:`WorkerSpec`.

    A backend is not ours when it is given as ``package.module:function`` or comes from an entry point.
    """
    ours = importlib.import_module("kernels.registry").BACKENDS
    others = set(backends) - set(ours)
    targets = {b.partition(":")[0] for b in others if ":" in b}
    if any(":" not in b for b in others):
        targets |= {module for name, module in _entry_modules().items() if name in others}
    return tuple(sorted({name.partition(".")[0] for name in targets} - {""}))


def suite_names() -> list[str]:
    """Names that ``--suite`` takes: those that have cases, in the standard order, then any that others bring."""
    have = {s for q in questions() for s in q.suites} | {"full"}
    return [s for s in SUITES if s in have] + sorted(have - set(SUITES))


def load_suite(name: str) -> list[Case]:
    """Cases of a suite by name or workload file. InputError where there is none of that name."""
    if is_suite_file(name):
        return _file_cases(Path(name))
    cases = [c for q in questions() for c in q.cases(name)]
    if not cases:
        known = ", ".join(suite_names())
        trouble = "".join(f"; {text}" for text in find().broken)
        raise InputError(f"--suite: no suite {name!r}; there are {known}, or a {FILE_SUFFIX} file{trouble}")
    return cases


def asv_keys(name: str) -> set[str]:
    """Keys of those cases of a suite that asv can run: asv reads our own suite package and workload files only."""
    if is_suite_file(name):
        return {c.key for c in load_suite(name)}
    return {c.key for q in questions([OURS]) for c in q.cases(name)}


def _questions(package: str) -> list[Question]:
    module = importlib.import_module(package)
    found = []
    for info in sorted(pkgutil.iter_modules(module.__path__), key=lambda i: i.name):
        question = getattr(importlib.import_module(f"{package}.{info.name}"), "QUESTION", None)
        if isinstance(question, Question):
            found.append(question)
    return found


@cache
def _entry_modules() -> dict[str, str]:
    return {e.name: e.module for e in entry_points(group=_BACKEND_GROUP)}


def _file_cases(path: Path) -> list[Case]:
    name, workloads = read_suite(path)
    for i, w in enumerate(workloads):
        if not backends_of(w.operation):
            raise InputError(f"{path}: workloads[{i}].operation: no backend implements {w.operation!r}")
    return [Case(name, w, b) for w in workloads for b in backends_of(w.operation)]
