"""hyperfine: the JSON of ``--export-json``. One file is one run; each command is a case."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from harness.model import Scalar, Value

from .base import Collector, Group, JsonFile, unversioned
from .files import Fields, finite, holds
from .fitting import case_of
from .literals import identifiers, scalar_of
from .units import measure_of

_NO_TIME = "no median or mean time"


def is_hyperfine(path: Path) -> bool:
    """Whether a file is JSON of hyperfine."""
    return path.is_file() and holds(path, b'"results"', b'"command"', b'"mean"')


class Hyperfine(JsonFile):
    """The run of one file; hyperfine tells neither date nor machine nor revision."""

    format: ClassVar[str] = "hyperfine"

    def runs(self, top: Fields, digest: str) -> list[Group]:
        at = self.path.stat().st_mtime
        run = self.run(
            digest, suite="hyperfine", machine="", revision=unversioned(digest, at=at), started_at=at
        )  # fmt: skip
        out = Collector()
        results = top.objects("results")
        for result, command in zip(results, _templates(results), strict=True):
            value = result.number("median")
            value = result.number("mean") if value is None else value
            if value is None:
                out.dropped[_NO_TIME] += 1
                continue
            given = result.object("parameters").value
            params = dict(zip(identifiers(given), (_value(v) for v in given.values()), strict=True))
            case = case_of(command, "command", params, "hyperfine")
            times = [x for v in result.sequence("times") if (x := finite(v)) is not None]
            told: dict[str, Scalar] = {
                k: v for k in ("mean", "stddev", "min", "max") if (v := result.number(k)) is not None
            }
            if any(code != 0 for code in result.sequence("exit_codes")):
                told["exit_codes"] = "not all 0"
            out.add(
                case, "latency_s", Value(value, None, None, max(len(times), 1)), started_at=at, samples=times,
                telemetry=told,
            )  # fmt: skip
            for key in ("user", "system"):
                if (spent := result.number(key)) is not None:
                    out.add(case, measure_of("s", "lower", f"{key}_time").metric, Value(spent), started_at=at)
        return [out.group(run)]


def _value(value: object) -> Scalar:
    """hyperfine writes every parameter as text."""
    return scalar_of(value if isinstance(value, str) else repr(value)[:500])


def _templates(results: list[Fields]) -> list[str]:
    """Each command with ``{name}`` where a parameter's value stands, so that the cases of one sweep share a benchmark.

    hyperfine keeps no template. Values that stand alone are replaced; those within words too where that makes the
    commands of a sweep the same.
    """
    out = [""] * len(results)
    sweeps: dict[tuple[str, ...], list[int]] = {}
    for i, result in enumerate(results):
        sweeps.setdefault(tuple(result.object("parameters").value), []).append(i)
    for members in sweeps.values():
        choices = [[_template(results[i], alone) for i in members] for alone in (True, False)]
        for i, text in zip(members, min(choices, key=lambda texts: len(set(texts))), strict=True):
            out[i] = text
    return out


def _template(result: Fields, alone: bool) -> str:
    command = result.text("command")
    given = result.object("parameters").value
    for name, value in sorted(given.items(), key=lambda item: -len(str(item[1]))):
        if isinstance(value, str) and value:
            found = re.escape(value)
            pattern = rf"(?<!\w)(?<!\d\.){found}(?!\w|\.\d)" if alone else found
            command = re.sub(pattern, lambda _, mark=f"{{{name}}}": mark, command)  # type: ignore[misc]
    return command
