"""Which cases a change between two revisions can touch, from what really imports what. What is unclear touches all.

Both sides of a comparison are measured by the same ruler and differ in ``kernels/`` alone, so a backend is touched
where anything that it imports changed, on either side. Suites that changed are asked again. A changed ruler is asked
everything, and so is a changed file of which nobody can tell what it does (pins, builds, workflows).
"""

from __future__ import annotations

import fnmatch
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .builds import FOLDER, build, build_worktree, commit_of, git
from .import_graph import ImportGraph, module_of
from .model import AttnwatchError, Case, InputError
from .model.suite import Question
from .suites import OURS
from .variables import FAULTS

#: Pages, pictures and what Python leaves behind: nobody measures them, wherever they lie.
PAGES = ("*.md", "*.rst", "docs/*", "LICENSE*", "NOTICE*", "*.png", "*.svg", ".gitignore", ".gitattributes", "*.pyc")
#: What measures: the interleaved comparison, and packages whose modules the worker loads by name.
_RULER = ("harness.ab", "harness.worker", "harness.measuring")
#: Folders whose Python files the ruler might import; none of it is measured otherwise.
_SOURCES = ("harness", "db", "dashboard", "tests", "scripts")
_SHOWN = 100
#: Says of the registry in ``argv[1]``, as JSON: its file, ORACLES, and (name, operation -> target, probe, declared in).
_ASK = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
from kernels import registry as r
held = [(b, m) for m in r.DECLARED for b in importlib.import_module(m).BACKENDS]
told = [(b.name, dict(b.operations), b.probe, m) for b, m in held]
json.dump({"file": r.__file__, "oracles": r.ORACLES, "backends": told}, sys.stdout)
"""


@dataclass(frozen=True)
class Affected:
    """What a change can touch. ``why`` is for people; ``known`` are the (backend, operation) whose imports are known.

    ``everything`` where some of it cannot be told; otherwise the pairs of ``touched``, the questions of ``benchmarks``,
    and, where ``kernels`` changed at all, every backend that is not among ``known``, since others may import ours.
    """

    why: str
    changed: tuple[str, ...]
    everything: bool = False
    kernels: bool = False
    touched: frozenset[tuple[str, str]] = frozenset()
    known: frozenset[tuple[str, str]] = field(default=frozenset(), repr=False)
    benchmarks: frozenset[str] = frozenset()

    @property
    def nothing(self) -> bool:
        """Nothing that is measured changed."""
        return not (self.everything or self.kernels or self.benchmarks)

    def touches(self, case: Case) -> bool:
        """Whether the change may show in this case."""
        pair = (case.backend, case.workload.operation)
        ours = pair in self.touched or (self.kernels and pair not in self.known)
        return self.everything or ours or case.benchmark in self.benchmarks

    def told(self) -> dict[str, Any]:
        """As plain values, for a report; paths beyond the first hundred are only counted."""
        return {
            "why": self.why, "everything": self.everything, "files": len(self.changed),
            "changed": list(self.changed[:_SHOWN]), "backends": sorted({b for b, _ in self.touched}),
            "benchmarks": sorted(self.benchmarks),
        }  # fmt: skip


def affected(repo: Path, base: str, head: str | None) -> Affected:
    """What the change from ``base`` to ``head`` (the working tree where it is None) can touch."""
    paths = changed_paths(repo, base, head)
    if not paths:
        return Affected("nothing changed", ())
    rest = [p for p in paths if not any(fnmatch.fnmatchcase(p, page) for page in PAGES)]
    if not rest:
        return Affected("pages alone changed", paths)
    if os.environ.get(FAULTS):
        return Affected(f"{FAULTS} puts other kernels in; nobody can tell what they import", paths, everything=True)
    try:
        return _sorted_out(repo, base, head, paths, rest)
    except AttnwatchError as error:
        return Affected(f"what it touches cannot be told: {error}", paths, everything=True)


def changed_paths(repo: Path, base: str, head: str | None) -> tuple[str, ...]:
    """Files that differ, both names of a renamed one; those that git does not know yet too where ``head`` is None."""
    ends = [commit_of(repo, ref) for ref in (base, head) if ref is not None]
    out = git(repo, "diff", "--name-only", "--no-renames", "-z", *ends, "--")
    if head is None:
        out += git(repo, "ls-files", "--others", "--exclude-standard", "--full-name", "-z")
    return tuple(sorted({p for p in out.decode(errors="surrogateescape").split("\0") if p}))


def _sorted_out(repo: Path, base: str, head: str | None, paths: tuple[str, ...], rest: Sequence[str]) -> Affected:
    ours = {p for p in rest if p.startswith(f"{FOLDER}/")}
    suites = {p for p in rest if p.startswith(f"{OURS}/")}
    if why := _reaches_all(repo, [p for p in rest if p not in ours | suites]):
        return Affected(why, paths, everything=True)
    questions = _questions(repo, suites)
    if not ours:
        why = f"suites changed: {', '.join(sorted(questions))}" if questions else "nothing that is measured changed"
        return Affected(why, paths, benchmarks=questions)
    roots = [build(repo, base).root, (build_worktree(repo) if head is None else build(repo, head)).root]
    sides = [_imports(root) for root in roots]
    reached = set[str]().union(*(modules for side in sides for modules in side.values()))
    changed = {module_of(Path(p)) for p in ours if p.endswith(".py")}
    odd = sorted(p for p in ours if not p.endswith(".py") or module_of(Path(p)) not in reached)
    if odd:
        return Affected(f"{odd[0]}: nobody can tell what it touches", paths, everything=True)
    known = frozenset[tuple[str, str]]().union(*sides)
    touched = frozenset(pair for side in sides for pair, modules in side.items() if modules & changed)
    if touched == known:
        return Affected("every backend imports what changed", paths, everything=True)
    names = ", ".join(sorted({b for b, _ in touched}))
    return Affected(f"what changed is imported by {names}", paths, False, True, touched, known, questions)


def _reaches_all(repo: Path, paths: Sequence[str]) -> str:
    """Why files outside of kernels and suites may touch everything; empty where they touch nothing."""
    if odd := [p for p in paths if not p.endswith(".py") or p.partition("/")[0] not in _SOURCES]:
        return f"{odd[0]}: nobody can tell what it touches"
    graph = ImportGraph(repo, _SOURCES)
    loaded = graph.closure(m for package in _RULER for m in graph.below(package)) if paths else set()
    for path in paths:
        module = module_of(Path(path))
        # One that is gone is in no graph any more.
        if module in loaded or any(module == r or module.startswith(f"{r}.") for r in _RULER):
            return f"{path}: the ruler itself changed"
    return ""


def _questions(repo: Path, paths: Collection[str]) -> frozenset[str]:
    """Names of the questions whose modules import what changed."""
    if not paths:
        return frozenset()
    if odd := sorted(p for p in paths if not p.endswith(".py")):
        raise InputError(f"{odd[0]}: nobody can tell what it touches")
    changed = {module_of(Path(p)) for p in paths}
    graph = ImportGraph(repo, (OURS,))
    found = set()
    for info in pkgutil.iter_modules(importlib.import_module(OURS).__path__, f"{OURS}."):
        question = getattr(importlib.import_module(info.name), "QUESTION", None)
        if isinstance(question, Question) and graph.closure([info.name]) & changed:
            found.add(question.name)
    return frozenset(found)


def _imports(root: Path) -> dict[tuple[str, str], set[str]]:
    """(backend, operation) -> modules of kernels that it, its probe and its oracle import. InputError where unclear."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _ASK, str(root)], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise InputError(f"{root}: its registry cannot be read: {done.stderr.strip()[-200:]}")
    told = json.loads(done.stdout)
    if not Path(told["file"]).is_relative_to(root):
        raise InputError(f"{root}: {told['file']} was read in its place")
    graph = ImportGraph(root, (FOLDER,))
    held = {}
    for name, operations, probe, declared in told["backends"]:
        for operation, target in operations.items():
            places = (target, probe or "", told["oracles"].get(operation, ""))
            starts = [declared, f"{FOLDER}.registry", *(place.partition(":")[0] for place in places)]
            held[name, operation] = graph.closure(starts)
    return held
