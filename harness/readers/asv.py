"""asv results directories of any age (formats 1 and 2, mixed), machine directories, and single result files.

Each commit on each machine is one run, whatever the number of environments: what asv calls the parameters of the
environment (Python, requirements) are parameters of our cases, so that they can be part of a trigger. Runs stand at
the time of their commit, as asv's own graphs do; the time of measuring stays with the measurement.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from harness.model import InputError, Scalar

from .asv_cases import Benchmarks, rows_of
from .asv_file import Result, load
from .base import Foreign, Group, Piece
from .files import Fields, digest_of, holds, inside, parse_json, peek, read_file

_NO_RESULTS = ("machine.json", "benchmarks.json")
#: What asv keeps of the machine among the parameters of an environment.
_OF_MACHINE = frozenset({"arch", "cpu", "machine", "num_cpu", "os", "ram"})
_MARKS = (b'"commit_hash"', b'"results"')


def is_asv(path: Path) -> bool:
    """Whether a path is a results directory, the directory of one machine in it, or one result file."""
    try:
        if path.is_file():
            return path.name not in _NO_RESULTS and holds(path, *_MARKS)
        return path.is_dir() and (_is_machine(path) or any(_is_machine(p) for p in _folders(path)))
    except OSError:
        return False


def _is_machine(folder: Path) -> bool:
    found = _json_files(folder)
    return any(all(mark in peek(p) for mark in _MARKS) for p in found[:20])


def _folders(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return sorted(Path(e.path) for e in entries if e.is_dir(follow_symlinks=False))


def _json_files(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        names = [e.name for e in entries if e.name.endswith(".json") and e.name not in _NO_RESULTS]
    return [folder / name for name in sorted(names)]


@dataclass(frozen=True)
class _Machine:
    name: str
    details: dict[str, Scalar]


class AsvResults(Foreign):
    """Runs of an asv results directory; see the module."""

    format: ClassVar[str] = "asv"
    checked: ClassVar[bool] = True

    def pieces(self) -> Iterator[Piece]:
        root, folders = self._layout()
        about = self._benchmarks(root)
        for folder, files in folders:
            machine = self._machine(folder)
            for paths in _by_commit(files):
                contents = [read_file(inside(p, self.path if self.path.is_dir() else p.parent)) for p in paths]
                digest = digest_of(b"asv", machine.name.encode("utf-8", "surrogateescape"), *contents)
                yield Piece(digest, lambda p=paths, c=contents, m=machine: self._read(p, c, m, about))  # type: ignore[misc]

    def _layout(self) -> tuple[Path, list[tuple[Path, list[Path]]]]:
        """Where ``benchmarks.json`` lies, and the result files of each machine."""
        if not self.path.is_dir():
            return self.path.parent.parent, [(self.path.parent, [self.path])]
        try:
            if _is_machine(self.path):
                return self.path.parent, [(self.path, _json_files(self.path))]
            with os.scandir(self.path) as entries:
                links = [Path(e.path) for e in entries if e.is_symlink()]
            for link in sorted(links):
                inside(link, self.path)
            return self.path, [(p, files) for p in _folders(self.path) if (files := _json_files(p))]
        except OSError as error:
            raise InputError(f"{self.path}: cannot be listed ({error.strerror}); make it readable") from None

    def _benchmarks(self, root: Path) -> Benchmarks:
        path = root / "benchmarks.json"
        if not path.is_file():
            return Benchmarks({})
        inside(path, root)
        return Benchmarks(Fields(parse_json(read_file(path), str(path)), str(path)).value)

    def _machine(self, folder: Path) -> _Machine:
        path = folder / "machine.json"
        held: dict[str, Any] = {}
        if path.is_file():
            inside(path, self.path if self.path.is_dir() else folder)
            held = Fields(parse_json(read_file(path), str(path)), str(path)).value
        name = held.get("machine")
        details: dict[str, Scalar] = {
            k: v for k, v in held.items() if k in _OF_MACHINE and isinstance(v, str | int | float)
        }
        return _Machine(name if isinstance(name, str) and name else folder.name, details)

    def _read(
        self, paths: Sequence[Path], contents: Sequence[bytes], machine: _Machine, about: Benchmarks
    ) -> list[Group]:
        """The files of one commit as runs: one, unless the same environment was built by several tools."""
        groups: dict[tuple[object, ...], Group] = {}
        for path, content in zip(paths, contents, strict=True):
            result = load(content, str(path))
            if result is None:
                self.warnings.append(f"{path}: no result file of asv; it was left out")
                continue
            name = result.machine or machine.name
            tool = result.env_name.partition("-py")[0]
            key = (name, result.commit, tool)
            group = groups.get(key)
            if group is None:
                run = self.run(
                    *key, suite="asv", machine=name, started_at=result.committed_at,
                    revision=result.revision,
                    details=machine.details | result.machine_details,
                    options={"tool": tool},
                )  # fmt: skip
                group = groups[key] = Group(run, [], Counter())
            environment = group.run.environment
            pythons = sorted({*filter(None, environment.python.split(" ")), result.python} - {""})
            packages = environment.packages | result.requirements
            # Which parameters of the cases are those of the environment, for whoever writes asv's files again.
            axes = {**json.loads(str(group.run.options.get("axes", "{}"))), **about.axes(result)}
            group.run = replace(
                group.run, environment=replace(environment, python=" ".join(pythons), packages=packages),
                options={**group.run.options, "axes": json.dumps(axes, sort_keys=True)},
            )  # fmt: skip
            if result.profiles:
                self.warnings.append(f"{path}: {result.profiles} profiles are not taken")
            group.measurements += rows_of(result, about, group.dropped)
        return list(groups.values())


def _by_commit(files: Sequence[Path]) -> list[list[Path]]:
    """Files whose names begin with the same commit, in order of that; asv names them ``COMMIT-ENVIRONMENT.json``."""
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(path.name.partition("-")[0], []).append(path)
    return list(groups.values())


__all__ = ["AsvResults", "Result", "is_asv"]
