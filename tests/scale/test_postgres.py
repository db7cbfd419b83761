"""PostgreSQL does all that SQLite does: judging, imports, screens, commands, a nightly; and says clearly what fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.app import VIEWS
from db import queries, screens
from db.copying import copy_store, digests
from db.engine import Store, open_store
from db.imported import unjudged_machines
from db.repository import triage
from harness.demo import DECISIONS, FAULTS, World, fill, suite
from harness.demo.faults import NIGHTS, shifted
from harness.imports import import_paths, judge_new
from harness.ingest import ingest_bundle
from harness.model import Environment, InfrastructureError, InputError, Machine, TriageState, Value
from tests.dashboard.stores import MACHINE, NOW, measured
from tests.db.factory import DAY, START, make_case, make_measurement, make_run, seeded_bundle, write_run
from tests.harness.readers.samples import planted
from tests.harness.test_ingest import HOSTILE
from tests.servers import Server
from tests.system.conftest import make_clone

pytestmark = [pytest.mark.scale, pytest.mark.timeout(900)]

COUNT = 6


def attnwatch(*args: str, env: dict[str, str] | None = None) -> tuple[int, Any, str]:
    """Exit code, JSON and messages of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", *args, "--json"], capture_output=True, text=True, check=False,
        timeout=300, env={**os.environ, **(env or {})},
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def nights(store: Store) -> list[str]:
    """The last nights of the demonstration, stored, judged and triaged; what was told each night."""
    environment = Environment(MACHINE, python="3.11", packages={"torch": "2.13.0"})
    real = {c.key: measured(c) for c in suite()}
    world = World(environment, real, {"control_gemm_s": 0.004}, shifted(FAULTS, COUNT), nights=COUNT, last_start=NOW)
    reports = fill(store, world, [d for d in DECISIONS if d.of >= NIGHTS - COUNT + 1])
    return [f"{r.run_id}: {sorted((i.trigger, i.title) for i in r.new_confirmed)}" for r in reports]


@pytest.fixture(scope="module")
def pair(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Store, list[str], list[str]]:
    """The same nights in both databases, each stored and judged there."""
    light = open_store(tmp_path_factory.mktemp("pair") / "a.db")
    heavy = open_store(server.new_database())
    return light, heavy, nights(light), nights(heavy)


def test_nights_are_judged_alike(pair: tuple[Store, Store, list[str], list[str]]) -> None:
    light, heavy, first, second = pair
    assert first == second
    rows = [
        [
            (i.trigger_text, i.state, i.effect, i.first_bad_revision, i.regressions)
            for i in sorted(found, key=lambda i: i.id)
        ]
        for found in (queries.incidents(light), queries.incidents(heavy))
    ]
    assert rows[0] == rows[1] and rows[0]


def moved(page: screens.AtlasPage) -> list[tuple[str, float, bool]]:
    """Rows of the atlas less what sums in another order."""
    return [(r.case.key, r.newest, r.in_incident) for r in page.rows]


def test_every_screen_answers_alike(pair: tuple[Store, Store, list[str], list[str]], server: Server) -> None:
    light = pair[0]
    with open_store(server.new_database()) as heavy:
        copy_store(light, heavy)
        machine = queries.machines(light)[0].fingerprint
        runs = [r.id for r in queries.runs(light)]
        keys = list(queries.cases(light))
        incident = queries.incidents(light)[0].id
        # These nights may have neither failures nor changes of the environment.
        silent: list[Any] = [lambda s: screens.troubles(s, runs[0]), lambda s: screens.environment_steps(s, machine)]
        questions: list[Any] = [
            queries.machines, queries.freshness, queries.row_counts, queries.incidents, screens.holdings,
            screens.coverage,
            lambda s: queries.runs(s, complete_only=True),
            lambda s: queries.counts_by_status(s, runs), lambda s: queries.controls(s, runs),
            lambda s: queries.measurements_of_run(s, runs[0], superseded=True),
            lambda s: queries.series(s, "latency_s", machine, keys[:3]),
            lambda s: queries.history(s, machine, "latency_s").value.tolist(),
            lambda s: queries.known_series(s, machine, ["new", "confirmed", "acknowledged", "fixed"]),
            lambda s: queries.incident(s, incident), lambda s: queries.last_measured(s, machine),
            lambda s: {k: round(v, 9) for k, v in queries.mean_durations(s).items()},
            lambda s: screens.incident_page(s, words="KV_LEN", limit=3),
            lambda s: screens.incident_page(s, states=["new", "confirmed"], backend="segmented", machine=machine),
            lambda s: screens.case_values(s, runs[0], ["latency_s", "peak_memory_bytes"], limit=7),
            lambda s: screens.benchmarks_of_run(s, runs[0]),
            lambda s: screens.pairs(s, "latency_s", runs[-1], runs[0]),
            lambda s: screens.attempt(s, runs[0], keys[0]), lambda s: screens.incidents_of_cases(s, keys),
            *silent,
            lambda s: moved(screens.atlas(s, machine, "latency_s", words="kv_len")),
            lambda s: screens.atlas(s, machine, "latency_s", changed_by=0.05).total,
        ]  # fmt: skip
        for number, ask in enumerate(questions):
            here, there = ask(light), ask(heavy)
            assert here == there, f"question {number}"
            assert here or ask in silent, f"question {number} was answered with nothing"


@pytest.mark.parametrize("name", [name for name, _, _ in VIEWS])
def test_every_page_opens(
    pair: tuple[Store, Store, list[str], list[str]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNWATCH_DB", pair[1].engine.url.render_as_string(hide_password=False))
    at = AppTest.from_string(f"from dashboard.app import main\nmain({name!r})\n", default_timeout=60).run()
    assert not at.exception
    assert not at.error


def test_imported_history_is_judged_and_explained(database: str, tmp_path: Path) -> None:
    root = planted(tmp_path / "results", runs=60, step=40)
    code, report, err = attnwatch("ingest", str(root), "--db", database)
    assert (code, report["taken"]) == (0, 60 * 48), err
    assert len(report["incidents"]) == 1
    code, told, _ = attnwatch("detect", "--db", database)
    assert code == 1 and told["incidents"][0]["first_bad_revision"] == f"{40:040x}"
    code, explained, _ = attnwatch("explain", told["incidents"][0]["id"], "--db", database)
    assert code == 0 and explained["triggers"][0]["regressed_inside"] == 6
    code, again, _ = attnwatch("ingest", str(root), "--db", database)
    assert (code, again["taken"], again["duplicates"], again["incidents"]) == (0, 0, 60 * 48, [])
    with open_store(database) as store:
        assert unjudged_machines(store) == {}
        triage(store, told["incidents"][0]["id"], TriageState.EXPECTED, "wanted", "team")
        import_paths(store, [planted(tmp_path / "more", runs=70, step=40)])
        judge_new(store)
        assert [i.state for i in queries.incidents(store)] == ["expected"]


def test_a_nightly_measures_into_it(database: str, tmp_path: Path) -> None:
    clone = make_clone(tmp_path, [256])
    clone.env["ATTNWATCH_DB"] = database
    first, second = clone.nightly(), clone.nightly()
    with open_store(database, read_only=True) as store:
        held = queries.runs(store)
        assert [r.id for r in held] == [second["run_id"], first["run_id"]]
        assert all(r.complete for r in held)
        assert sum(queries.counts_by_status(store, [first["run_id"]])[first["run_id"]].values()) == held[0].planned


def test_commands_copy_back_up_restore_and_prune(database: str, server: Server, tmp_path: Path) -> None:
    light, bundle = str(tmp_path / "a.db"), seeded_bundle(tmp_path / "b.jsonl", 3)
    assert attnwatch("ingest", str(bundle), "--db", light)[0] == 0
    code, copied, err = attnwatch("db", "copy", light, database)
    assert (code, copied["verified"]) == (0, True), err
    code, _, err = attnwatch("db", "copy", light, database)
    assert code == 2 and "--force" in err
    assert attnwatch("db", "copy", light, database, "--force")[0] == 0
    code, kept, err = attnwatch("db", "backup", str(tmp_path / "kept.db"), "--db", database)
    assert code == 0 and kept["rows"]["runs"] == 3, err
    other = server.new_database()
    code, put, err = attnwatch("db", "restore", str(tmp_path / "kept.db"), "--db", other)
    assert code == 0 and put["target"] == other, err
    code, would, _ = attnwatch("db", "prune", "--samples-older-than", "90d", "--dry-run", "--db", other)
    assert code == 0 and would["dry_run"] and would["measurements"] > 50
    code, did, _ = attnwatch("db", "prune", "--samples-older-than", "90d", "--db", other)
    assert (code, did["measurements"], did["sample_bytes"]) == (0, would["measurements"], would["sample_bytes"])
    code, again, _ = attnwatch("ingest", str(bundle), "--db", other)
    assert (code, again["taken"], again["dropped"]) == (0, 0, 0)
    with open_store(light) as a, open_store(database) as b:
        assert digests(a) == digests(b)


def test_the_newest_value_of_a_sequence_survives_a_copy(database: str, tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as light, open_store(database) as heavy:
        for store in (light, heavy):
            ingest_bundle(
                store, write_run(tmp_path / f"{store.name[-3:]}.jsonl", make_run(1), [make_measurement(make_case())])
            )
        copy_store(light, heavy, force=True)
        more = write_run(tmp_path / "n.jsonl", make_run(2), [make_measurement(make_case(7), at=START + DAY * 2)])
        assert ingest_bundle(heavy, more).taken == 1


def test_ingesting_again_uses_up_no_keys(database: str, tmp_path: Path) -> None:
    bundle = seeded_bundle(tmp_path / "b.jsonl", 3)
    with open_store(database) as store:
        for _ in range(3):
            ingest_bundle(store, bundle)
        with store.read() as connection:
            last, held = connection.exec_driver_sql(
                'SELECT (SELECT last_value FROM case_id_seq), max(id) FROM "case"'
            ).one()
        assert last == held


def test_a_store_opened_for_reading_cannot_be_written(database: str) -> None:
    open_store(database).close()
    with open_store(database, read_only=True) as store:
        with pytest.raises(InputError, match="for reading only"), store.write():
            pass
        with pytest.raises(InfrastructureError, match="may only read"), store.read() as connection:
            connection.exec_driver_sql("DELETE FROM run")


def test_what_cannot_be_reached_is_said_in_one_line(server: Server, database: str, tmp_path: Path) -> None:
    port = database.rsplit(":", 1)[1].split("/")[0]
    nobody = f"postgresql://someone:s3cret@127.0.0.1:{port}/postgres"
    for url, words in (
        ("postgresql://x:s3cret@127.0.0.1:1/none", "not reached"),
        (f"postgresql://attnwatch@127.0.0.1:{port}/postgres?sslmode=require&password=s3cret", "not reached"),
        (f"postgresql://attnwatch@127.0.0.1:{port}/nonesuch?password=s3cret", "createdb"),
        (nobody, "someone"),
    ):
        code, out, err = attnwatch("db", "upgrade", "--db", url)
        assert (code, out) == (3, None)
        assert words in err and len(err.splitlines()) == 1
        assert "s3cret" not in err
    with server.connect(database.rsplit("/", 1)[1]) as connection:
        connection.execute("CREATE TABLE theirs (x int)")
    code, _, err = attnwatch("db", "upgrade", "--db", database)
    assert code == 2 and "something else" in err
    code, _, err = attnwatch("db", "info", "--db", server.new_database())
    assert code == 2 and "is empty" in err


def test_three_roles_are_enough(server: Server, database: str, tmp_path: Path) -> None:
    """What SECURITY.md says: the owner upgrades, writers ingest and triage, readers read."""
    bundle, name = seeded_bundle(tmp_path / "b.jsonl", 3, runs=6, cases=1000), database.rsplit("/", 1)[1]
    open_store(database).close()
    tables = "ALL TABLES IN SCHEMA public"
    with server.connect(name) as connection:
        for role, grants in {
            f"w_{name}": (f"SELECT, INSERT, UPDATE, DELETE ON {tables}", "USAGE ON ALL SEQUENCES IN SCHEMA public"),
            f"r_{name}": (f"SELECT ON {tables}",),
        }.items():
            connection.execute(f"CREATE ROLE {role} LOGIN".encode())
            for grant in grants:
                connection.execute(f"GRANT {grant} TO {role}".encode())
    writer, reader = (database.replace("attnwatch@", f"{kind}_{name}@") for kind in "wr")
    code, report, err = attnwatch("ingest", str(bundle), "--db", writer)
    assert code == 0 and report["taken"] > 5000, err
    for args in (("db", "info"), ("detect",), ("db", "prune", "--samples-older-than", "9d", "--dry-run")):
        assert attnwatch(*args, "--db", reader)[0] in (0, 1)
    with open_store(reader, read_only=True) as store:
        assert screens.holdings(store).runs == 6
    code, _, err = attnwatch("ingest", str(seeded_bundle(tmp_path / "c.jsonl", 4)), "--db", reader)
    assert code == 3 and "may not do that" in err
    code, pruned, err = attnwatch("db", "prune", "--samples-older-than", "9d", "--db", writer)
    assert code == 0 and pruned["measurements"] > 3000, err


def test_hostile_names_come_back(database: str, tmp_path: Path) -> None:
    """As they do from SQLite, which tests of ingesting look at one by one; two that become one are no conflict."""
    twins = {"a\0": Value(1.0), "a\u2400": Value(2.0)}
    with open_store(tmp_path / "a.db") as light, open_store(database) as heavy:
        for number, text in enumerate(HOSTILE):
            m = make_measurement(
                make_case(0, text, mine=text), detail=text, metrics={text: Value(1.0), **twins}, samples={text: [1.0]},
                operators=[text], telemetry={text: text},
            )  # fmt: skip
            run = make_run(number, name=f"{number} {text}", suite=text, machine=Machine(text, text, host=text))
            path = write_run(tmp_path / f"{number}.jsonl", run, [m])
            for store in (light, heavy):
                assert ingest_bundle(store, path).taken == 1
                assert ingest_bundle(store, path).taken == 0
        assert digests(heavy) == digests(light)
        with open_store(tmp_path / "b.db") as back:
            copy_store(heavy, back)
            assert digests(back) == digests(light)
