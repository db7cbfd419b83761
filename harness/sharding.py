"""One suite in several parts, for CI matrices: each part is measured by itself, and ingest puts them together.

Standard library only, as all that measures on bare images.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.balance import balanced
from harness.bundle_lines import lines, record_at
from harness.model import Case, InputError, Run, content_key
from harness.model.terms import SHARD
from harness.rotation import Costs, grouped

_FORM = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")
#: Where CI systems say which run of theirs this is.
_CI_RUN = ("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT")


@dataclass(frozen=True)
class Shard:
    """Part ``index`` of ``count``, counted from 1."""

    index: int
    count: int

    @property
    def suffix(self) -> str:
        """Of the name of its bundle."""
        return f"-{self.index}of{self.count}"

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse(text: str, cases: Sequence[Case]) -> Shard:
    """``2/4``; InputError where it is none, or where there are fewer cases than shards."""
    match = _FORM.fullmatch(text.strip())
    shard = Shard(int(match[1]), int(match[2])) if match else None
    if shard is None or not 1 <= shard.index <= shard.count:
        raise InputError(f"--shard: {text!r} is none; give I/N with I from 1 to N, such as 2/4")
    if shard.count > len(cases):
        raise InputError(f"--shard: {shard.count} shards for {len(cases)} cases; give N of at most {len(cases)}")
    return shard


def costs(path: str | None) -> Costs:
    """Seconds that cases took in the bundle at ``path``; nothing is known without one, and all cost the same."""
    if path is None:
        return Costs()
    if not Path(path).is_file():
        raise InputError(f"--shard-costs: no file {path!r}; give the bundle of an earlier run")
    spent: dict[str, float] = {}
    for place, record in lines(Path(path)):
        if record["kind"] == "measurement":
            took = record.get("duration_s")
            key = record_at(place, Case, record.get("case")).key
            if isinstance(took, float | int) and 0 <= took < float("inf"):
                spent[key] = max(spent.get(key, 0.0), float(took))
    return Costs(spent)


def part(cases: Sequence[Case], shard: Shard, known: Costs) -> list[Case]:
    """The cases of one shard, in their order; the same for everyone who gives the same cases and costs."""
    mine = {case.key for group in _spread(cases, shard.count, known)[shard.index - 1] for case in group}
    return [case for case in cases if case.key in mine]


def outlook(cases: Sequence[Case], shard: Shard, known: Costs) -> str:
    """What the shards are thought to take, in a few words."""
    seconds = [sum(known.of(case) for group in held for case in group) for held in _spread(cases, shard.count, known)]
    mean = sum(seconds) / len(seconds)
    told = f"shard {shard} is thought to take {seconds[shard.index - 1]:.0f} s"
    more = max(seconds) / mean - 1 if mean else 0.0
    return f"{told}, the longest of {shard.count} {max(seconds):.0f} s, {more:+.1%} against the mean"


def _spread(cases: Sequence[Case], count: int, known: Costs) -> list[list[list[Case]]]:
    """Groups of cases per shard, balanced by what they cost.

    Cases of one workload stay together where there are enough workloads, since they share the oracle's result and are
    compared with each other.
    """
    groups = grouped(cases)
    whole = groups if len(groups) >= count else [[case] for case in cases]
    parts = balanced([sum(map(known.of, group)) for group in whole], count)
    return [[whole[i] for i in held] for held in parts]


def as_shard(run: Run, shard: Shard, planned: int, name: str | None, environ: Mapping[str, str] = os.environ) -> Run:
    """``run`` as one shard of a sweep of ``planned`` cases.

    Shards that were asked for alike, of one revision, in equal environments, and with one ``name`` (the CI run's where
    it is None) share the run id, so that ingest puts them together. Without any name each is a run by itself.
    """
    told = {**run.options, SHARD: str(shard)}
    name = name or "-".join(environ[v] for v in _CI_RUN if environ.get(v))
    if not name:
        return replace(run, options=told)
    around = run.environment.hash
    key = content_key(name, run.suite, run.revision.id, around, planned, shard.count, dict(run.options))
    return replace(run, id=key[:32], planned=planned, options=told)
