"""A simulated month through the real store and the real judge, night by night, read as its users would read it.

Simulated are the numbers only: what each case takes with which kernels, with noise of 1 %. Storing, screening,
interleaving base and head, the sequential test, triggers, incidents, reports and the policy file are the real ones.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import harness.judge.confirm as confirm_module
import harness.judge.ends as ends_module
from db.engine import Store, open_store
from harness.builds import Build
from harness.bundle import BundleWriter
from harness.ingest import ingest_bundle
from harness.judge import JudgePlan, judge_night
from harness.judge.listing import any_new, open_incidents, overdue_suites
from harness.model import (
    Case,
    Environment,
    Machine,
    Measurement,
    MeasureOptions,
    Reason,
    Revision,
    Run,
    RunEnd,
    Status,
    Value,
    Workload,
)
from harness.model.findings import NightReport
from harness.policy import read_policy
from harness.report import summary, write_reports
from harness.worker import CaseError, WorkerSpec

POLICY = """
owner = "kernels"

[shadow]
nights = 7

[[rule]]
name = "a busy path: even 1 % is dear"
backend = "paged"
minimum_effect = 0.01
severity = "high"
owner = "serving"
"""
BACKENDS = ("sdpa_math", "segmented", "paged", "flash")
CASES = [
    Case("decode", Workload("attention", {"q_len": 1, "kv_len": 128 + 64 * n}), backend)
    for backend in BACKENDS
    for n in range(40)
]
DAY = 86400.0
NOISE = 0.01


def hit(case: Case, backend: str, kv_len: int) -> bool:
    return case.backend == backend and case.workload.params["kv_len"] == kv_len


@dataclass
class Month:
    """What the kernels of each night do. The kernels of night n are revision n, so that faults come by commits."""

    store: Store
    folder: Path
    night: int = 0
    start: float = 1.7e9
    again: int = 0
    cases: list[Case] = field(default_factory=lambda: list(CASES))
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(20))

    def cost(self, case: Case, kernels: int, *, tonight: bool) -> float | Status:
        """Seconds with the kernels of night ``kernels``; ``tonight`` in the sweep itself, not measured again."""
        kv_len = case.workload.params["kv_len"]
        assert isinstance(kv_len, int)
        time = 1e-3 * (1 + kv_len / 1000)
        if hit(case, "segmented", 256) and 4 <= kernels < 6:  # while nobody is to be alerted
            time *= 1.30
        if hit(case, "flash", 512) and 14 <= kernels < 20:  # a lone regression, repaired later
            time *= 1.05
        if case.backend == "paged" and kernels >= 22:  # a family, none of which shows it alone
            time *= 1.02
        if hit(case, "segmented", 1024) and kernels >= 17:
            return Status.CRASHED
        if tonight and self.night == 11 and case.backend == "sdpa_math" and kv_len < 300:  # another job on the machine
            time *= 1.40
        return time

    def wild(self, case: Case) -> float:
        """How many times the usual noise tonight's value has."""
        return 1.0

    def calls(self, case: Case) -> int:
        return 10

    def measured(self, case: Case, at: float, attempt: int = 1) -> Measurement:
        if case.backend == "flash" and 25 <= self.night < 27:
            return Measurement(case, Status.UNSUPPORTED, at, detail="no module named flash_attn")
        cost = self.cost(case, self.night, tonight=True)
        if isinstance(cost, Status):
            return Measurement(case, cost, at, detail="simulated", attempt=attempt)
        value = cost * float(np.exp(self.rng.normal(0, NOISE * self.wild(case))))
        samples = (value * np.exp(self.rng.normal(0, NOISE, 12))).tolist()
        calls = Value(float(self.calls(case)))
        metrics = {"latency_s": Value(value, value * 0.994, value * 1.006, 12), "operator_calls": calls}
        return Measurement(case, Status.OK, at, metrics=metrics, samples={"latency_s": samples})

    def store_night(self) -> str:
        self.night += 1
        self.start += DAY * (3 if self.night == 29 else 1)  # the machine was off for two nights
        run_id, digest = f"night{self.night}", f"{self.night:040x}"
        environment = Environment(Machine("cpu", "simulated CPU"), packages={"torch": "2.13.0"}, kernels_hash=digest)
        path = self.folder / f"{run_id}.jsonl"
        with BundleWriter(path) as out:
            revision = Revision(digest, digest, kernels_hash=digest)
            out.run(Run(run_id, "nightly", revision, environment, self.start, Reason.NIGHTLY, len(self.cases)))
            for i, case in enumerate(self.cases):
                m = self.measured(case, self.start + i)
                out.measurement(run_id, m)
                if m.status.failed:
                    out.measurement(run_id, self.measured(case, self.start + i + 0.5, attempt=2))
            out.end(RunEnd(run_id, self.start + 600, measured=len(self.cases)))
        ingest_bundle(self.store, path)
        return run_id

    def judged(self) -> NightReport:
        run_id = self.store_night()
        policy = read_policy(str(self.folder / "attnwatch.toml"))
        plan = JudgePlan("cpu", self.folder, f"/tree/{self.night}", "nightly", policy=policy)
        report = judge_night(self.store, run_id, plan, lambda *a: None, lambda text: None)
        write_reports(report, self.folder / "reports")
        return report


class Worker:
    """Stands for a worker process with the kernels of one night; its samples are simulated."""

    def __init__(self, month: Month, spec: WorkerSpec) -> None:
        self.month, self.kernels = month, int(str(spec.kernels).rsplit("/", 1)[-1])
        self.held: dict[int, float] = {}
        self.handles = itertools.count()
        self.rng = np.random.default_rng([self.kernels, month.night, zlib.crc32(str(spec).encode())])

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def prepare(self, case: Case, options: MeasureOptions) -> int:
        cost = self.month.cost(case, self.kernels, tonight=False)
        if isinstance(cost, Status):
            raise CaseError(cost, "simulated")
        handle = next(self.handles)
        self.held[handle] = cost
        self.month.again += 1
        return handle

    def first_call_s(self, handle: int) -> float | None:
        return None

    def sample(self, handle: int, n: int) -> list[float]:
        return (self.held[handle] * np.exp(self.rng.normal(0, NOISE, n))).tolist()

    def release(self, handle: int) -> None:
        del self.held[handle]

    def measure(self, case: Case, options: MeasureOptions) -> Measurement:
        cost = self.month.cost(case, self.kernels, tonight=False)
        if isinstance(cost, Status):
            return Measurement(case, cost, 0.0, detail="simulated")
        # Kernels differ every night, so that times are interleaved; alone stand exact metrics and failures.
        return Measurement(case, Status.OK, 0.0, metrics={"operator_calls": Value(float(self.month.calls(case)))})


@pytest.fixture
def month(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Month]:
    (tmp_path / "attnwatch.toml").write_text(POLICY)
    with open_store(tmp_path / "month.db") as store:
        made = Month(store, tmp_path)
        monkeypatch.setattr(confirm_module.WorkerClient, "connect", lambda spec, **_: Worker(made, spec))
        monkeypatch.setattr(ends_module, "build", lambda repo, ref: Build(Path(f"/tree/{int(ref, 16)}"), ref))
        yield made


@dataclass
class Read:
    """What a user has in the morning: the printed text, the report file, and the exit code's worth."""

    text: str
    report: dict[str, Any]
    red: bool

    def named(self) -> set[tuple[str, int]]:
        """Cases of the incidents that this night is the first to tell of, wherever they are marked."""
        return {
            (f["case"]["backend"], f["case"]["workload"]["params"]["kv_len"])
            for i in self.report["incidents"]
            if i["is_new"] and i["state"] == "new"
            for f in i["findings"]
        }


@pytest.mark.slow
def test_a_month_is_told_as_it_was(month: Month) -> None:
    nights: dict[int, Read] = {}
    for night in range(1, 31):
        report = month.judged()
        plain = json.loads((month.folder / "reports" / "latest.json").read_text())
        nights[night] = Read(summary(report), plain, bool(report.new_confirmed))
    # Overdue is told by `attnwatch detect`, whoever asks, once no night came.
    assert overdue_suites(month.store, month.start + DAY) == []
    assert overdue_suites(month.store, month.start + 3 * DAY) == [
        "no nightly run on simulated CPU for 3.0 days"
    ]  # fmt: skip

    alerts = {n: r.named() for n, r in nights.items() if r.red}
    lone = [n for n, named in alerts.items() if named == {("flash", 512)}]
    crash = [n for n, named in alerts.items() if named == {("segmented", 1024)}]
    family = [n for n, named in alerts.items() if named and {backend for backend, _ in named} == {"paged"}]
    assert sorted({*lone, *crash, *family}) == sorted(alerts), f"nothing else is told: {alerts}"
    assert len(lone) == 1 and lone[0] in (14, 15), "the lone 5 % by its second night, once"
    assert crash == [17]
    assert family and family[0] <= 27, "2 % in a quarter of the suite by the sixth night"
    assert "flash slower in 1 of 160 cases  +" in nights[lone[0]].text
    assert "attnwatch compare --base" in nights[lone[0]].text
    assert "ok -> crashed" in nights[17].text and "1 new confirmed regression" in nights[17].text
    assert any("trigger: backend == 'paged'" in nights[n].text for n in family)
    worst = next(i for i in nights[family[0]].report["incidents"] if i["is_new"])
    assert (worst["owner"], worst["severity"]) == ("serving", "high")

    # In shadow: told, marked, and nobody is alerted; it recovers by itself like any other.
    shadowed = [n for n in range(1, 8) if nights[n].named()]
    assert shadowed == [4]
    assert "in shadow, nobody is alerted: 1 new confirmed regression" in nights[4].text
    assert "SHADOW" in nights[4].text and "shadow mode, night 4 of 7" in nights[4].text
    assert nights[4].report["new_confirmed"] == 0
    (first,) = nights[4].report["incidents"]
    assert first["shadow"] and nights[6].report["recovered"] == [first["id"]]
    assert all(("shadow mode" in nights[n].text) == (n <= 7) for n in nights)

    # A night disturbed by another job: measured again, dismissed, said so.
    assert not nights[11].red and not nights[11].named()
    looked = [f for f in nights[11].report["findings"] if f["state"] == "dismissed"]
    assert {f["case"]["backend"] for f in looked} >= {"sdpa_math"}
    assert "looked worse and did not when measured again" in nights[11].text

    # The lone one is repaired: its incident closes by itself, a known one is not told twice.
    told = nights[lone[0]].report["incidents"][0]["id"]
    assert any(nights[n].report["recovered"] == [told] for n in (20, 21, 22))
    assert f"still there, told before: {told}" in nights[16].text

    # A backend vanishes for two nights and comes back.
    assert "COVERAGE: flash vanished: none of its 40 combinations ran (unsupported)" in nights[25].text
    assert "COVERAGE" not in nights[26].text and "told before: flash vanished" in nights[26].text
    assert "coverage restored: flash is back: 40 of its 40" in nights[27].text
    assert "COVERAGE: 2 nights without a run: 3.0 days" in nights[29].text
    quiet = [n for n in nights if n not in (25, 29)]
    assert not [n for n in quiet if [a for a in nights[n].report["coverage"] if a["state"] == "new"]]

    rows = open_incidents(month.store)
    assert any_new(rows)
    assert not [r for r in rows if r["shadow"]]


class Plain(Month):
    """No faults but those that a test gives: ``slow(case, kernels)`` is a factor."""

    slow: Callable[[Case, int], float] = staticmethod(lambda case, kernels: 1.0)

    def cost(self, case: Case, kernels: int, *, tonight: bool) -> float | Status:
        return 1e-3 * self.slow(case, kernels)


@pytest.fixture
def plain(month: Month) -> Plain:
    month.__class__ = Plain
    assert isinstance(month, Plain)
    month.cases = [c for c in CASES if c.workload.params["kv_len"] < 1024]  # type: ignore[operator]
    return month


def test_changes_under_the_minimum_effect_are_not_told(plain: Plain) -> None:
    (plain.folder / "attnwatch.toml").write_text(
        """
        [[rule]]
        backend = "flash"
        minimum_effect = 0.5
        [[rule]]
        backend = "flash"
        metric = "operator_calls"
        minimum_effect = 0.2
        """
    )
    plain.slow = lambda case, kernels: 1.3 if kernels == 4 and case.workload.params["kv_len"] == 256 else 1.0
    plain.calls = lambda case: 11 if plain.night == 4 and case.workload.params["kv_len"] == 320 else 10
    for _ in range(3):
        assert plain.judged().new_confirmed == []
    report = plain.judged()
    found = [f for i in report.new_confirmed for f in i.findings]
    assert {f.metric for f in found} == {"latency_s", "operator_calls"}
    assert {f.case.backend for f in found} == {"sdpa_math", "segmented", "paged"}


def test_shadow_is_left_by_itself_and_what_it_found_is_not_forgotten(plain: Plain) -> None:
    (plain.folder / "attnwatch.toml").write_text("[shadow]\nnights = 4")
    plain.slow = lambda case, kernels: (
        1.3 if (hit(case, "paged", 256) and kernels >= 4) or (hit(case, "flash", 256) and kernels >= 5) else 1.0
    )
    nights = [plain.judged() for _ in range(5)]
    assert [bool(r.shadow) for r in nights] == [True] * 4 + [False]
    (hidden,) = nights[3].fresh
    assert hidden.shadow and nights[3].new_confirmed == []
    (told,) = nights[4].new_confirmed
    assert {f.case.backend for f in told.findings} == {"flash"}
    assert nights[4].from_shadow == [hidden.id]
    assert f"found in shadow, never alerted, nobody has looked yet: {hidden.id}" in summary(nights[4])
    rows = {r["id"]: r for r in open_incidents(plain.store)}
    assert {i: r["shadow"] for i, r in rows.items()} == {hidden.id: True, told.id: False}
    assert any_new(list(rows.values())) and not any_new([rows[hidden.id]])


@pytest.mark.slow
def test_a_series_that_became_noisier_is_told_once_and_as_no_regression(plain: Plain) -> None:
    (plain.folder / "attnwatch.toml").write_text("")
    restless = plain.cases[3]
    plain.wild = lambda case: 5.0 if case.key == restless.key and plain.night > 35 else 1.0
    nights = [plain.judged() for _ in range(55)]
    told = [(i + 1, f) for i, r in enumerate(nights) for f in r.noisier]
    assert [f.case.key for _, f in told] == [restless.key]
    ((night, finding),) = told
    assert 38 < night <= 55 and finding.kind == "noisier" and finding.ratio is not None and finding.ratio > 2
    assert not any(r.new_confirmed for r in nights)
    assert "became noisier, not slower" in summary(nights[night - 1])
