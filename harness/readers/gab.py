"""github-action-benchmark: the history in ``data.js``, or the same object as JSON.

Each entry is a run at the date of its measuring. The ``tool`` says which way is better, as the action itself has it,
except that a unit of a rate (``ops/s``) is always better higher.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from harness.model import InputError, Revision, Scalar, Value
from harness.model.metrics import Direction

from .base import Collector, Foreign, Group, Piece
from .files import Fields, digest_of, finite, parse_json, peek, read_file
from .fitting import case_of
from .literals import plain
from .units import measure_of

_ASSIGNED = re.compile(rb"\s*(?:(?:var|let|const)\s+)?(?:window\.)?BENCHMARK_DATA\s*=\s*")
_BIGGER = frozenset({"customBiggerIsBetter", "benchmarkjs", "pytest"})
_NO_NUMBER = "the value is not a finite number"


def is_data_js(path: Path) -> bool:
    """Whether a file is a ``data.js`` or the JSON in one."""
    if not path.is_file() or path.suffix.lower() not in (".js", ".json"):
        return False
    data = peek(path).removeprefix(b"\xef\xbb\xbf")
    if _ASSIGNED.match(data):
        return True
    return data.lstrip()[:1] == b"{" and all(m in data for m in (b'"entries"', b'"benches"', b'"commit"'))


class ActionHistory(Foreign):
    """Runs of a ``data.js``."""

    format: ClassVar[str] = "github-action-benchmark"

    def pieces(self) -> Iterator[Piece]:
        place = str(self.path)
        data = read_file(self.path).removeprefix(b"\xef\xbb\xbf")
        if (head := _ASSIGNED.match(data)) is not None:
            data = data[head.end() :].rstrip().removesuffix(b";")
        top = Fields(parse_json(data, place), place)
        repo = top.text("repoUrl", "")
        entries = top.object("entries")
        seen: Counter[tuple[str, str]] = Counter()
        pieces = []
        for suite in entries.value:
            for entry in entries.objects(suite):
                commit = entry.object("commit")
                name = commit.text("id")
                seen[suite, name] += 1
                number = seen[suite, name]
                # The same commit measured again is a run of its own; other suites of it belong to the same run.
                pieces.append((self._date(entry), suite, number, commit, entry))
        merged: dict[tuple[str, int], list[tuple[float, str, Fields, Fields]]] = {}
        for date, suite, number, commit, entry in pieces:
            merged.setdefault((commit.text("id"), number), []).append((date, suite, commit, entry))
        for (name, number), parts in sorted(merged.items(), key=lambda item: item[1][0][0]):
            digest = digest_of(b"gab", repo.encode("utf-8", "surrogatepass"), str(number).encode(), *map(_bytes, parts))
            yield Piece(digest, lambda n=name, k=number, p=parts: [self._read(repo, n, k, p)])  # type: ignore[misc]

    def _date(self, entry: Fields) -> float:
        date = entry.number("date")
        if date is None or not 0 <= date <= 1e13:
            raise entry.fail("date", "must be milliseconds since 1970")
        return date / 1000

    def _read(self, repo: str, name: str, number: int, parts: list[tuple[float, str, Fields, Fields]]) -> Group:
        date, _, commit, _ = parts[0]
        subject = commit.text("message", "").partition("\n")[0][:200]
        run = self.run(
            repo, name, number, suite="github-action-benchmark", machine=f"CI of {repo}" if repo else "",
            revision=Revision(name, name, False, _time(commit), subject), started_at=date,
        )  # fmt: skip
        out = Collector()
        for at, suite, _, entry in parts:
            tool = entry.text("tool", "")
            for bench in entry.objects("benches"):
                value = finite(_number(bench.value.get("value")))
                if value is None:
                    out.dropped[_NO_NUMBER] += 1
                    continue
                measure = measure_of(bench.text("unit", ""), _better(tool, bench.text("unit", "")))
                case = case_of(bench.text("name"), suite or "default", {}, tool or "unknown")
                told: dict[str, Scalar] = {"range": bench.value["range"]} if "range" in bench.value else {}
                if told:
                    told["range"] = plain(told["range"])
                out.add(case, measure.metric, Value(value * measure.factor), started_at=at, telemetry=told)
        return out.group(run)


def _better(tool: str, unit: str) -> Direction:
    if measure_of(unit).metric.endswith("_per_s"):
        return "higher"
    return "higher" if tool in _BIGGER else "lower"


def _number(value: object) -> object:
    """The action of some tools wrote numbers as text."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,3})?", value):
        return float(value)
    return value


def _time(commit: Fields) -> float | None:
    return iso_time(commit.value.get("timestamp"))


def iso_time(text: object) -> float | None:
    """Seconds since 1970 of an ISO 8601 time, UTC where it has no zone; None for anything else."""
    if not isinstance(text, str) or len(text) > 64:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _bytes(part: tuple[float, str, Fields, Fields]) -> bytes:
    import msgspec

    _, suite, _, entry = part
    try:
        return msgspec.json.encode([suite, entry.value])
    except (ValueError, UnicodeEncodeError, OverflowError) as error:
        raise InputError(f"{entry.place}: field {entry.field}: cannot be read ({error})") from None
