"""``attnwatch bisect``: which commit, or which version of a package, brought an incident or made a comparison slower.

Each candidate is compared with the good end on a handful of the incident's own cases, base and head interleaved, and
:class:`harness.detection.bisection.Bisection` decides where to look next. What was measured is kept in a file, so that
a search that was broken off goes on.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from db.engine import Store
from db.incidents import IncidentDetail
from db.queries import incident

from .ab import run_ab
from .asv_env import ruler_path_lines
from .builds import build, commit_of, git
from .comment.cases import label_of
from .comment.reading import read_report
from .detection.ab import ABOptions, compare
from .detection.bisection import Bisection
from .judge.suspects import to_case
from .model import AttnwatchError, Case, InfrastructureError, InputError, MeasureOptions, Status, content_key
from .model.findings import STATUS
from .static.bundle import refuse_compiled
from .worker import WorkerSpec

#: Cases measured at each candidate: enough to average noise, few enough to be quick.
CASES = 3
_SAMPLING_S = 0.3
#: Intervals are widened by this: samples of one minute are alike in what the machine did in that minute.
_TRUST = 2.0
#: Times that the bad end is measured before its effect is taken for noise.
_BAD_END_TRIES = 4


@dataclass(frozen=True)
class Candidate:
    """One commit or version; ``spec`` makes its worker and may raise where it cannot be had."""

    name: str
    text: str
    spec: Callable[[], WorkerSpec]


@dataclass
class Answer:
    """``found`` are the candidates that may have brought it, one where all is clear."""

    found: list[str]
    texts: list[str]
    measured: int
    skipped: dict[str, str] = field(default_factory=dict)
    decided: bool = True
    log: list[dict[str, Any]] = field(default_factory=list)


def chosen_cases(detail: IncidentDetail) -> tuple[list[Case], bool]:
    """The incident's clearest cases, and whether it is about a status rather than a time."""
    rows = detail.regressions
    if not rows:
        raise InputError(f"incident {detail.incident.id} holds no cases")
    status = rows[0].metric == STATUS
    rows = sorted(rows, key=lambda r: -abs(math.log(r.ratio)) if r.ratio else 0.0)
    return [to_case(r.case) for r in rows[:CASES]], status


def commits_between(repo: Path, good: str, bad: str) -> list[tuple[str, str]]:
    """(hash, subject) of the commits of kernels/ after ``good`` up to ``bad``, oldest first."""
    lines = git(
        repo, "log", "--reverse", "--first-parent", "--format=%H %s", f"{good}..{bad}", "--", "kernels"
    ).decode()
    found = [(h, s) for h, _, s in (line.partition(" ") for line in lines.splitlines())]
    if not found:
        raise InputError(f"no commit touches kernels/ between {good[:12]} and {bad[:12]}; look at packages instead")
    return found


def by_commit(store: Store, incident_id: str, repo: Path, device: str) -> tuple[list[Candidate], list[Case], bool]:
    """Candidates from the last good to the first bad revision of an incident; the good end comes first."""
    detail = _detail(store, incident_id)
    refuse_compiled((r.case.benchmark for r in detail.regressions), incident_id)
    good, bad = detail.incident.last_good_revision, detail.incident.first_bad_revision
    if not good or not bad:
        raise InputError(f"incident {incident_id} has no last good revision to start from")
    cases, status = chosen_cases(detail)
    chain = [(good, "last good"), *commits_between(repo, good, bad)]
    return [_of_commit(repo, device, h, s) for h, s in chain], cases, status


def _of_commit(repo: Path, device: str, commit: str, subject: str) -> Candidate:
    spec = lambda: WorkerSpec(device, kernels=str(build(repo, commit).root))  # noqa: E731
    return Candidate(commit, f"{commit[:12]} {subject}", spec)


def by_version(
    store: Store, incident_id: str, package: str, versions: Sequence[str], kernels_root: str, device: str, folder: Path
) -> tuple[list[Candidate], list[Case], bool]:
    """Candidates from versions of a package, each in an environment of its own; the first one is the good end."""
    if len(versions) < 2:
        raise InputError("--versions: give at least two, the good one first")
    cases, status = chosen_cases(_detail(store, incident_id))

    def candidate(version: str) -> Candidate:
        def spec() -> WorkerSpec:
            return WorkerSpec(device, python=str(environment(folder, package, version)), kernels=kernels_root)

        return Candidate(version, f"{package} {version}", spec)

    return [candidate(v) for v in versions], cases, status


def by_side(repo: Path, good: str, bad: str, command: str, device: str) -> list[Candidate]:
    """Candidates from the commits after ``good`` up to ``bad``, whatever they touch; the good end comes first.

    ``command`` is given a commit and prints an interpreter that has it, as ``scripts/ci/action_side.sh`` does; a commit
    for which it fails is skipped.
    """
    ends = [commit_of(repo, ref) for ref in (good, bad)]
    lines = git(repo, "log", "--reverse", "--first-parent", "--format=%H %s", f"{ends[0]}..{ends[1]}").decode()
    chain = [(h, s) for h, _, s in (line.partition(" ") for line in [f"{ends[0]} good end", *lines.splitlines()])]
    if len(chain) < 2:
        raise InputError(f"--bad: no commit lies between {good} and {bad}; the older one is --good")

    def candidate(commit: str, subject: str) -> Candidate:
        return Candidate(
            commit, f"{commit[:12]} {subject}", lambda: WorkerSpec(device, python=_printed(command, commit))
        )

    return [candidate(*pair) for pair in chain]


def _printed(command: str, commit: str) -> str:
    """The interpreter that ``command`` prints for a commit."""
    try:
        done = subprocess.run([command, commit], stdout=subprocess.PIPE, stderr=None, text=True, check=False)
    except OSError as error:
        raise InputError(f"--side: {command}: {error.strerror}; give a program that prints an interpreter") from None
    printed = done.stdout.strip().splitlines()
    if done.returncode or not printed:
        raise InfrastructureError(f"{commit[:12]} cannot be built: {command} ended with {done.returncode}")
    return printed[-1]


def adverse_cases(cases: Sequence[Case], report: str) -> tuple[list[Case], bool]:
    """Those of ``cases`` that a report of ``compare --json`` finds slower, the clearest first, or else broken.

    As :func:`chosen_cases`: the second value says whether it is about a status. InputError where it finds none.
    """
    facts = read_report(report)
    changes = [c for g in facts.groups for c in g.changes]
    status = bool(changes) and all(c.ratio is None for c in changes)
    ranked = sorted((c for c in changes if status or c.ratio), key=lambda c: -(c.ratio or 0.0))
    by_label = {label_of(c.columns): c for c in cases}
    found = [by_label[c.label] for c in ranked if c.label in by_label]
    if not found:
        raise InputError(f"{report}: no case of the suite is slower in it; give the suite and report of one comparison")
    return found[:CASES], status


def environment(folder: Path, package: str, version: str) -> Path:
    """Interpreter of a virtual environment that has ``package==version`` in front of what this one has."""
    home = folder / f"{package}-{version}-{content_key(package, version, sys.executable)[:8]}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        venv.create(home, with_pip=True, clear=True)
        site = subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "-q", "--no-deps", f"{package}=={version}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise InfrastructureError(f"{package}=={version} cannot be installed: {done.stderr.strip()[-300:]}")
        # After pip, which would otherwise find the package among those of the outer environment.
        (Path(site) / "attnwatch_ruler.pth").write_text("\n".join(ruler_path_lines()) + "\n", encoding="utf-8")
        (home / "ready").touch()
    return python


def search(
    candidates: Sequence[Candidate], cases: Sequence[Case], status: bool, memory: Path, say: Callable[[str], None]
) -> Answer:
    """Find the first candidate after the good end that shows the incident. ``memory`` keeps what was measured."""
    known = _remembered(memory, candidates, cases)
    measure = _Measure(candidates, cases, status, known, memory, say)
    last = len(candidates) - 1
    effect, error = measure(last)
    if effect is None:
        raise InfrastructureError(
            f"the bad end cannot be measured: {candidates[last].text}: {measure.skipped.get(last)}"
        )
    for again in range(1, _BAD_END_TRIES):  # all that follows is judged by this effect, so it must be known
        if effect >= max(0.01, 3 * error):
            break
        more, its_error = measure(last, again=again)
        if more is not None:
            effect, error = _pooled([(effect, error), (more, its_error)])
    if effect < max(0.01, 3 * error):
        raise InputError(
            f"{candidates[last].text} is not slower than {candidates[0].text} now ({math.expm1(effect):+.1%} "
            f"+- {1.96 * error:.1%}): nothing to search for"
        )
    hunt = Bisection(last, effect)
    while (position := hunt.next_position()) is not None:
        ratio, error = measure(position, again=sum(p == position for p, _, _ in hunt.observed))
        if ratio is None:
            hunt.skip(position)
        else:
            hunt.observe(position, ratio, error)
    found = hunt.candidates()
    return Answer(
        [candidates[i].name for i in found], [candidates[i].text for i in found], len(hunt.observed) + 1,
        {candidates[i].text: why for i, why in measure.skipped.items()}, len(found) == 1, measure.log,
    )  # fmt: skip


class _Measure:
    """Log ratio of a candidate to the good end over the chosen cases, remembered on disk."""

    def __init__(
        self, candidates: Sequence[Candidate], cases: Sequence[Case], status: bool, known: dict[str, Any], memory: Path,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.candidates, self.cases, self.status, self.say = candidates, cases, status, say
        self.known, self.memory = known, memory
        self.skipped: dict[int, str] = {}
        self.log: list[dict[str, Any]] = []

    def __call__(self, position: int, again: int = 0) -> tuple[float | None, float]:
        key = f"{self.candidates[position].name}#{again}"
        if key not in self.known:
            self.known[key] = self._measured(position)
            self.memory.parent.mkdir(parents=True, exist_ok=True)
            self.memory.write_text(json.dumps(self.known), encoding="utf-8")
        entry = self.known[key]
        self.log.append({"candidate": self.candidates[position].text, **entry})
        if entry["ratio"] is None:
            self.skipped[position] = entry["why"]
            self.say(f"skipped {self.candidates[position].text}: {entry['why']}")
            return None, 0.0
        self.say(f"{math.expm1(entry['ratio']):+7.1%}  {self.candidates[position].text}")
        return entry["ratio"], entry["error"]

    def _measured(self, position: int) -> dict[str, Any]:
        try:
            base, head = self.candidates[0].spec(), self.candidates[position].spec()
            done, _ = run_ab(self.cases, base, head, MeasureOptions(max_seconds=_SAMPLING_S), ABOptions(relevant=0.01))
        except AttnwatchError as err:
            return {"ratio": None, "why": str(err)[:300]}
        if self.status:
            broke = [d.broke for d in done]
            return {"ratio": 1.0 if any(broke) else 0.0, "error": 0.01}
        # The interval of all pairs: that of the sequential test is wider, since it may be looked at any time.
        found = [compare(d.base, d.head, paired=True) for d in done if d.result]
        logs = [(math.log(r.ratio), _error(r.low, r.high)) for r in found if r.ratio > 0]
        if not logs:
            states = {d.head_status.value for d in done if d.head_status is not Status.OK}
            return {"ratio": None, "why": f"its cases are {', '.join(sorted(states)) or 'unmeasured'}"}
        mean, error = _pooled(logs)
        return {"ratio": mean, "error": error}


def _pooled(logs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Mean of (log ratio, standard error), weighted by how well each is known, with its own error."""
    weights = [1 / e**2 for _, e in logs]
    mean = sum(w * x for w, (x, _) in zip(weights, logs, strict=True)) / sum(weights)
    return mean, math.sqrt(1 / sum(weights))


def _error(low: float, high: float) -> float:
    if not (0 < low < math.inf and 0 < high < math.inf):
        return 0.2
    return max(_TRUST * (math.log(high) - math.log(low)) / 3.92, 0.003)


def _remembered(memory: Path, candidates: Sequence[Candidate], cases: Sequence[Case]) -> dict[str, Any]:
    """What an earlier search of the same question measured."""
    question = content_key([c.name for c in candidates], [c.key for c in cases])
    try:
        known: dict[str, Any] = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    return known if known.get("question") == question else {"question": question}


def _detail(store: Store, incident_id: str) -> IncidentDetail:
    detail = incident(store, incident_id)
    if detail is None:
        raise InputError(f"no incident {incident_id!r} in {store.name}; `attnwatch detect` lists them")
    return detail
