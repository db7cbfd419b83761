"""Runs a callable in a process of its own, so that whatever it does stays there. Imports no torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.model import InfrastructureError, InputError

_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_target(text: str) -> bool:
    """Whether ``text`` reads ``package.module:callable``."""
    return _TARGET.fullmatch(text) is not None


def ask(what: str, target: str, python: str | None = None, **options: Any) -> dict[str, Any]:
    """The answer of ``python`` (this interpreter where None) for ``target``. InputError where the callable cannot be
    found or raises; InfrastructureError where the process ends without an answer."""
    if not is_target(target):
        raise InputError(f"{target!r} is not package.module:callable")
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        job = {"what": what, "target": target, "answer": str(answer), "folder": str(Path.cwd()), **options}
        command = [python or sys.executable, "-m", "harness.tracing", json.dumps(job)]
        # The callable's own output belongs to people, not to --json.
        done = subprocess.run(command, check=False, stdout=2)
        if not answer.exists():
            raise InfrastructureError(f"{target}: the process ended with {done.returncode} and no answer")
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in found:
        raise InputError(f"{target}: {found['error']}")
    return found
