"""The dashboard in a real browser, as a person uses it: Debian's Chromium through Playwright.

Skipped with a reason where the browser or Playwright is missing, except where ``CI`` is ``true``: there it fails.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.app import VIEWS
from db.engine import open_store
from db.queries import incidents
from harness.model import TriageState

from . import stores

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--headless", "--disable-background-networking", "--no-first-run"]
APP = Path(__file__).parents[2] / "dashboard" / "app.py"
WAIT_MS = 60_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser with a profile of its own; every console error of every page is kept in ``errors``."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None  # type: ignore[assignment]
    missing = None if CHROMIUM.exists() else f"{CHROMIUM} is not there: apt-get install chromium"
    missing = missing or (None if sync_playwright else "playwright is not installed: pip install -e '.[dev]'")
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing or sync_playwright is None:
        pytest.skip(str(missing))
    with sync_playwright() as p:
        context = p.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"), executable_path=CHROMIUM, args=FLAGS,
            viewport={"width": 1440, "height": 1000},
        )  # fmt: skip
        yield context
        context.close()


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("browser") / "nights.db"
    stores.nights(path, last_start=time.time() - 3600)
    return path


@pytest.fixture(scope="module")
def address(db: Path) -> Iterator[str]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [
        sys.executable, "-m", "streamlit", "run", str(APP), "--server.port", str(port), "--server.headless", "true",
        "--server.address", "127.0.0.1", "--browser.gatherUsageStats", "false", "--server.fileWatcherType", "none",
        "--client.toolbarMode", "minimal",
    ]  # fmt: skip
    env = {**os.environ, "ATTNWATCH_DB": str(db), "ATTNWATCH_READ_ONLY": ""}
    server = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=2).read()
            break
        except OSError:
            assert server.poll() is None, "the server ended"
            time.sleep(0.1)
    yield url
    server.terminate()
    server.wait(timeout=30)


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A tab; what its console complains of fails the test."""
    errors: list[str] = []
    tab = chromium.new_page()
    tab.set_default_timeout(WAIT_MS)
    tab.on("pageerror", lambda e: errors.append(str(e)))
    # Streamlit looks for its server below the path of a page before it looks at the root; that is no fault of ours.
    tab.on("console", lambda m: errors.append(m.text) if m.type == "error" and "_stcore" not in _place(m) else None)
    yield tab
    tab.close()
    assert errors == []


def _place(message: Any) -> str:
    return str((message.location or {}).get("url", ""))


def settle(page: Any, words: str) -> None:
    """Wait until ``words`` are on the page and nothing runs any more."""
    page.get_by_text(words).first.wait_for()
    page.locator('[data-testid="stStatusWidget"]').wait_for(state="detached")
    assert page.locator('[data-testid="stException"]').count() == 0


WORDS = {
    "incidents": "All incidents", "incident": "Reproduce:", "series": "moved farthest first", "compare": "Advice for",
    "sweep": "Colours are logarithmic", "memory": "How the peak grows", "numerics": "Largest error against the oracle",
    "static": "Operators or kernels dispatched", "runs": "Frozen control kernels",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name, _, _ in VIEWS])
def test_every_page_opens_without_exception_or_console_error(page: Any, address: str, name: str) -> None:
    page.goto(f"{address}/{'' if name == 'incidents' else name}")
    settle(page, WORDS[name])
    assert page.get_by_text("Demonstration.").first.is_visible()
    if name not in ("incidents",):
        page.locator('[data-testid="stVegaLiteChart"] canvas, [data-testid="stVegaLiteChart"] svg').first.wait_for()


def test_filter_open_change_an_axis_share_and_reload(page: Any, address: str) -> None:
    page.goto(address)
    settle(page, "All incidents")
    page.get_by_placeholder("title, trigger, revision, owner, id").fill("nothing like this")
    page.keyboard.press("Enter")
    settle(page, "No incident matches these filters.")
    assert "q=nothing" in page.url
    page.goto(address)
    settle(page, "All incidents")
    page.get_by_role("link", name="Open").first.click()
    settle(page, "Reproduce:")
    assert "incident=" in page.url
    page.get_by_role("combobox", name="Down").click()
    page.get_by_role("option", name="head_dim", exact=True).click()
    page.wait_for_url("**y=head_dim**")
    settle(page, "A cell shows the worst over q_len")
    shared = page.url
    other = page.context.new_page()
    other.goto(shared)
    settle(other, "A cell shows the worst over q_len")
    assert other.get_by_role("combobox", name="Down").input_value() == "head_dim"
    other.close()


def test_triage_is_kept_after_a_reload(page: Any, address: str, db: Path) -> None:
    page.goto(f"{address}/incident")
    settle(page, "Reproduce:")
    page.get_by_role("tab", name="Triage").click()
    page.get_by_role("combobox", name="New state").click()
    page.get_by_role("option", name="acknowledged").click()
    page.get_by_label("Reason").fill("seen in a browser")
    page.get_by_label("Owner").fill("team-kernels")
    page.get_by_role("button", name="Record").click()
    page.get_by_text("seen in a browser").filter(visible=True).first.wait_for()
    page.reload()
    settle(page, "Reproduce:")
    page.get_by_role("tab", name="Triage").click()
    page.get_by_text("seen in a browser").filter(visible=True).first.wait_for()
    with open_store(db, read_only=True) as store:
        assert [i.owner for i in incidents(store, states=[TriageState.ACKNOWLEDGED])] == ["team-kernels"]


def test_a_row_of_the_table_is_triaged_in_place(page: Any, address: str) -> None:
    page.goto(address)
    settle(page, "All incidents")
    # The table is drawn on a canvas: the box of the first row stands below the header.
    page.locator('[data-testid="stDataFrame"] canvas').first.click(position={"x": 18, "y": 52}, force=True)
    settle(page, "What is it?")
    assert page.get_by_role("button", name="Record").is_visible()


def test_a_part_of_a_series_is_brushed(page: Any, address: str) -> None:
    page.goto(f"{address}/series")
    settle(page, "moved farthest first")
    main, overview = (page.locator('[data-testid="stVegaLiteChart"]').nth(i) for i in (0, 1))
    overview.wait_for()
    assert "series=" in page.url, "the chosen rows stand in the address"
    overview.scroll_into_view_if_needed()
    page.wait_for_timeout(1000)
    before = main.screenshot()
    box = overview.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 20, steps=8)
    page.mouse.up()
    page.wait_for_timeout(1000)
    settle(page, "moved farthest first")
    page.wait_for_timeout(1000)
    assert main.screenshot() != before, "the chart shows the part alone"
