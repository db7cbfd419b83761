"""Every page on every kind of store: no exception, and something sensible on it."""

from __future__ import annotations

import html
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.app import VIEWS
from db.engine import open_store
from db.queries import incident, incidents
from harness.model import TriageState

from . import stores

NAMES = [name for name, _, _ in VIEWS]


def app(first: str, **query: str) -> AppTest:
    """The app with the page ``first`` open."""
    made = AppTest.from_string(f"from dashboard.app import main\nmain({first!r})\n", default_timeout=60)
    for key, value in query.items():
        made.query_params[key] = value
    return made.run()


def shown(at: AppTest) -> str:
    """All text on the page."""
    kinds = (
        "title",
        "header",
        "subheader",
        "markdown",
        "caption",
        "info",
        "success",
        "warning",
        "error",
        "code",
        "text",
    )
    return "\n".join(str(e.value) for kind in kinds for e in getattr(at, kind))


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a.db"
    monkeypatch.setenv("ATTNWATCH_DB", str(path))
    monkeypatch.delenv("ATTNWATCH_READ_ONLY", raising=False)
    return path


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of nights; tests that write take a copy."""
    path: Path = tmp_path_factory.mktemp("nights") / "n.db"
    stores.nights(path)
    return path


@pytest.fixture
def filled(nights: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNWATCH_DB", str(nights))
    monkeypatch.delenv("ATTNWATCH_READ_ONLY", raising=False)
    return nights


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_store_says_what_to_do(db: Path, name: str) -> None:
    open_store(db).close()
    at = app(name)
    assert not at.exception
    assert "no runs yet" in shown(at)


@pytest.mark.parametrize("name", NAMES)
def test_one_run_is_enough_for_every_page(db: Path, name: str) -> None:
    stores.run(db, "base", stores.grid(12))
    at = app(name)
    assert not at.exception
    if name == "incidents":
        assert "No incidents" in shown(at)
        assert at.warning, "a run of another year must raise the freshness alarm"


@pytest.mark.parametrize("name", NAMES)
def test_nights_with_an_incident(filled: Path, name: str) -> None:
    at = app(name)
    assert not at.exception
    assert "Demonstration" in shown(at), "every page says that nothing here happened"


def test_the_first_screen_answers_what_since_when_and_how_sure(filled: Path) -> None:
    text = shown(app("incidents"))
    with open_store(filled, read_only=True) as store:
        found = incidents(store, states=[TriageState.NEW])
    assert len(found) == 1
    assert found[0].trigger_text in text
    assert (found[0].first_bad_revision or "?")[:12] in text
    assert "&#43;38&#46;" in text, "the effect, escaped"


def test_an_incident_tells_how_to_reproduce_it(filled: Path) -> None:
    text = shown(app("incident"))
    assert "attnwatch compare --base" in text
    assert 'backend == "sdpa_flash"' in text
    assert "Planted in this demonstration" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_are_text(db: Path, name: str) -> None:
    cases = [stores._named(stores.HOSTILE), *stores.grid(4)]
    stores.run(db, "base", cases, text=stores.HOSTILE)
    stores.run(db, "head", cases, text=stores.HOSTILE + "2", at=stores.NOW + 86400)
    stores.incident(db, "hostile", cases, text=stores.HOSTILE)
    at = app(name)
    assert not at.exception
    for element in (*at.markdown, *at.caption, *at.info, *at.warning, *at.success, *at.title):
        assert "<img" not in element.value
        assert ":red[" not in element.value
        assert "](javascript" not in element.value
        assert not element.allow_html if hasattr(element, "allow_html") else True


@pytest.mark.slow
@pytest.mark.parametrize("name", ["incidents", "incident"])
def test_many_incidents_are_paged(db: Path, name: str) -> None:
    cases = stores.grid(4)
    stores.run(db, "base", cases)
    stores.run(db, "head", cases, at=stores.NOW + 86400)
    for i in range(130):
        stores.incident(db, f"i{i}", cases[:2])
    at = app(name)
    assert not at.exception
    if name == "incidents":
        assert len(at.dataframe[0].value) == 50
        assert at.number_input[0].max == 3
        at.number_input[0].set_value(3).run()
        assert len(at.dataframe[0].value) == 30


@pytest.mark.slow
def test_five_thousand_combinations_in_one_incident(db: Path) -> None:
    cases = stores.grid(5000)
    stores.run(db, "base", cases)
    stores.run(db, "head", cases, at=stores.NOW + 86400)
    stores.incident(db, "big", cases)
    at = app("incident", incident="big")
    assert not at.exception
    assert "5,000 combinations" in shown(at)
    assert any(len(d.value) == 500 for d in at.dataframe)
    at.number_input(key="rows").set_value(10).run()
    assert not at.exception
    assert not app("incidents").exception


@pytest.mark.slow
@pytest.mark.parametrize("name", ["incidents", "series"])
def test_a_locked_store_is_told_in_words(db: Path, name: str) -> None:
    open_store(db).close()
    holder = sqlite3.connect(db)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    at = app(name)
    assert not at.exception
    assert "locked" in at.error[0].value
    holder.close()


@pytest.mark.parametrize("name", ["incidents", "runs"])
def test_a_newer_schema_is_told_in_words(db: Path, name: str) -> None:
    open_store(db).close()
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    at = app(name)
    assert not at.exception
    assert "newer" in at.error[0].value
    assert "upgrade attnwatch" in at.error[0].value


def test_no_store_at_all_is_told_in_words(db: Path) -> None:
    at = app("incidents")
    assert "no store here" in at.error[0].value


def test_an_unknown_incident_is_told(filled: Path) -> None:
    at = app("incident", incident="nosuch")
    assert not at.exception
    assert "no incident nosuch" in shown(at)


def _form(at: AppTest) -> tuple[Any, Any, Any]:
    return at.selectbox(key=next(s.key for s in at.selectbox if str(s.key).startswith("state-"))), at.text_area[0], at


def test_triage_is_kept_with_its_reason_and_owner(nights: Path, db: Path) -> None:
    db.write_bytes(nights.read_bytes())
    at = app("incident")
    state, reason, _ = _form(at)
    state.set_value("acknowledged")
    reason.set_value("looking into it")
    next(t for t in at.text_input if t.label == "Owner").set_value("team-kernels")
    next(b for b in at.button if b.label == "Record").click().run()
    assert not at.exception
    with open_store(db, read_only=True) as store:
        found = next(i for i in incidents(store) if i.state == TriageState.ACKNOWLEDGED)
        assert found.owner == "team-kernels"
        detail = incident(store, found.id)
        assert detail is not None
        assert detail.events[-1].reason == "looking into it"
    assert "looking into it" in shown(app("incident", incident=found.id)), "seen at once, nothing stale"


def test_triage_without_a_reason_changes_nothing(nights: Path, db: Path) -> None:
    db.write_bytes(nights.read_bytes())
    at = app("incident")
    state, _, _ = _form(at)
    state.set_value("expected")
    next(b for b in at.button if b.label == "Record").click().run()
    assert "needs a reason" in shown(at)
    with open_store(db, read_only=True) as store:
        assert {i.state for i in incidents(store)} == {TriageState.NEW}


def test_read_only_has_no_form(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNWATCH_READ_ONLY", "1")
    at = app("incident")
    assert "read-only" in shown(at)
    assert not at.text_area


@pytest.mark.parametrize(
    ("name", "query", "check"),
    [
        (
            "incident", {"x": "head_dim", "y": "kv_len", "facet": "none"},
            lambda at: at.selectbox(key="x").value == "head_dim",
        ),
        ("incidents", {"q": "nothing like this"}, lambda at: "No incident matches" in shown(at)),
        ("incidents", {"backend": "sdpa_flash"}, lambda at: at.selectbox(key="backend").value == "sdpa_flash"),
        ("series", {"metric": "peak_memory_bytes", "changed": "true"}, lambda at: at.toggle(key="changed").value),
        ("compare", {"what": "two runs"}, lambda at: "within noise" in [m.label for m in at.metric]),
        ("incident", {"where": "head_dim == 64"}, lambda at: at.text_input(key="where").value == "head_dim == 64"),
        ("incident", {"where": "1 +"}, lambda at: "cannot read" in at.error[0].value),
    ],
)  # fmt: skip
def test_the_address_holds_what_is_looked_at(
    filled: Path, name: str, query: dict[str, str], check: Callable[[AppTest], bool]
) -> None:
    at = app(name, **query)
    assert not at.exception
    assert check(at)


def test_a_run_with_a_release_known_to_be_wrong_says_so(db: Path) -> None:
    stores.run(db, "r", stores.suite()[:1], packages={"flash-attn": "2.3.3"})
    told = [html.unescape(w.value) for w in app("runs").warning]
    assert any("flash" in t and "2.3.3" in t and "kv_len % 128" in t for t in told), told
