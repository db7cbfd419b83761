"""The child that runs somebody's callable: ``python -m harness.tracing JOB``, a JSON object; the answer goes to a file.

Standard output and error are the callable's own.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any


def main() -> int:
    """Exit code 0 with an answer, an error the callable raised among them."""
    job = json.loads(sys.argv[1])
    sys.path.insert(0, job["folder"])
    try:
        answer = _run(job)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    Path(job["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    return 0


def _run(job: dict[str, Any]) -> dict[str, Any]:
    function = _callable(job["target"])
    if job["what"] == "snapshots":
        from .snapshots import write

        return {"nodes": write(function, Path(job["out"]), job["target"])}
    if job["compiled"]:
        from .snapshots import first_bad

        return asdict(first_bad(function))
    from .nan import trace

    return trace(function, backward=job["backward"], inject=job["inject"]).as_json()


def _callable(target: str) -> Callable[[], Any]:
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{target} is {type(found).__name__}, nothing to call")
    return found  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
