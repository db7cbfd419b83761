"""Which modules import which, read from their source; nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .model import InputError


@dataclass(frozen=True)
class ImportGraph:
    """The packages ``names`` below ``root``. An import counts wherever it stands, inside functions too."""

    root: Path
    names: tuple[str, ...]

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Files by the module's name."""
        files = (path for name in self.names for path in (self.root / name).rglob("*.py"))
        return {module_of(path.relative_to(self.root)): path for path in sorted(files)}

    def below(self, package: str) -> list[str]:
        """A package and all its modules."""
        return [m for m in self.modules if m == package or m.startswith(f"{package}.")]

    def closure(self, starts: Iterable[str]) -> set[str]:
        """``starts`` and all that they import, directly or not, with the packages that hold it.

        A name that is no module here (an installed package, a function) is passed over. InputError for source that
        cannot be read.
        """
        found: set[str] = set()
        open_ = [name for start in starts for name in self._with_parents(start)]
        while open_:
            name = open_.pop()
            if name not in found:
                found.add(name)
                open_ += self._imports(name)
        return found

    def _with_parents(self, name: str) -> list[str]:
        parts = name.split(".")
        return [m for i in range(len(parts)) if (m := ".".join(parts[: i + 1])) in self.modules]

    def _imports(self, name: str) -> list[str]:
        if name not in self._known:
            path = self.modules[name]
            try:
                tree = ast.parse(path.read_bytes())
            except (OSError, SyntaxError, ValueError) as error:
                line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
                raise InputError(f"{path}{line}: {error}; its imports cannot be told") from None
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            self._known[name] = [m for asked in _asked(tree, package) for m in self._with_parents(asked)]
        return self._known[name]

    @cached_property
    def _known(self) -> dict[str, list[str]]:
        return {}


def module_of(path: Path) -> str:
    """``a/b.py`` as ``a.b``, ``a/__init__.py`` as ``a``."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _asked(tree: ast.AST, package: str) -> Iterator[str]:
    """Full names that a module asks for; ``from a import b`` may mean the module ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)
