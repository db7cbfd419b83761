"""Which cases a command works on: a suite, narrowed by ``--backend`` and ``--where``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from .model import Case, InputError
from .model.expr import compile_expr
from .model.suite import with_backends
from .suites import load_suite

#: ``package.module:function``; whether it can be imported is for the worker to say.
_CUSTOM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def select(suite: str, backends: Sequence[str] = (), where: str | None = None) -> list[Case]:
    """Cases of ``suite`` whose backend matches a glob of ``backends`` and for which ``where`` holds.

    ``package.module:function`` in ``backends`` is put to every workload as a backend of its own. InputError where
    nothing is left, naming what was there.
    """
    cases = load_suite(suite)
    custom = [b for b in backends if ":" in b]
    for name in custom:
        if not _CUSTOM.fullmatch(name):
            raise InputError(f"--backend: {name!r} is not package.module:function")
    globs = [b for b in backends if ":" not in b]
    known = list(dict.fromkeys(c.backend for c in cases))
    kept = [c for c in cases if any(fnmatchcase(c.backend, g) for g in globs)] if globs or custom else list(cases)
    for glob in globs:
        if not any(fnmatchcase(b, glob) for b in known):
            near = difflib.get_close_matches(glob, known, n=3) or known
            raise InputError(f"--backend: nothing in suite {suite!r} matches {glob!r}; there are {', '.join(near)}")
    if custom:
        kept += with_backends(cases, custom)
    if where is not None:
        expression = compile_expr(where)
        expression.check_names({name for c in kept for name in c.columns})
        kept = [c for c in kept if expression(c.columns)]
        if not kept:
            raise InputError(f"--where: no case of suite {suite!r} satisfies {where!r}")
    return kept
