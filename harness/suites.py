"""Suites by name, by file, or from other packages through the entry point group ``attnwatch.suites``.

An entry point names a package whose modules each hold a ``QUESTION``; ours is ``benchmarks``. A workload file
(what ``attnwatch workload import`` writes) is a suite too: give its path.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from .model import Case, InputError
from .model.suite import SUITES, Question, with_backends
from .model.workloads import FILE_SUFFIX, is_suite_file, read_suite

_OURS = "benchmarks"


def packages() -> list[str]:
    """Names of the packages that hold suites: ours first, then those of others."""
    others = {e.value for e in entry_points(group="attnwatch.suites")}
    return [_OURS, *sorted(others - {_OURS})]


def backends_of(operation: str) -> tuple[str, ...]:
    """Names of the registered backends of an operation; empty for an operation nobody has."""
    names: tuple[str, ...] = importlib.import_module(_OURS).backends_of(operation)
    return names


def questions() -> list[Question]:
    """Every question of every suite package, in order of module names."""
    found: list[Question] = []
    for name in packages():
        package = importlib.import_module(name)
        for info in pkgutil.iter_modules(package.__path__):
            question = getattr(importlib.import_module(f"{name}.{info.name}"), "QUESTION", None)
            if isinstance(question, Question):
                found.append(question)
    return found


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
        raise InputError(f"--suite: no suite {name!r}; there are {known}, or a {FILE_SUFFIX} file")
    return cases


def with_backend(cases: Sequence[Case], backends: Sequence[str]) -> list[Case]:
    """Each workload of ``cases`` once, asked of ``backends`` (``package.module:function``) instead."""
    return with_backends(cases, backends)


def _file_cases(path: Path) -> list[Case]:
    name, workloads = read_suite(path)
    for i, w in enumerate(workloads):
        if not backends_of(w.operation):
            raise InputError(f"{path}: workloads[{i}].operation: no backend implements {w.operation!r}")
    return [Case(name, w, b) for w in workloads for b in backends_of(w.operation)]
