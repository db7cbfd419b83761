"""Screenshots of every page for ``docs/img``, from the store of the demonstration (``make demo`` fills it)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from bench_dashboard import server

WIDTH, LEAST, MOST = 1280, 500, 2200
#: Name of the picture: (address, tab to open, dark).
SHOTS: dict[str, tuple[str, str, bool]] = {
    "incidents": ("", "", False),
    "incidents-dark": ("", "", True),
    "incident-map": ("incident", "", False),
    "incident-map-dark": ("incident?x=kv_len&y=head_dim", "", True),
    "incident-series": ("incident", "Series", False),
    "incident-combinations": ("incident", "Combinations", False),
    "incident-changes": ("incident", "What changed", False),
    "incident-evidence": ("incident", "Evidence", False),
    "incident-trail": ("incident", "Trail", False),
    "incident-triage": ("incident", "Triage", False),
    "series": ("series", "", False),
    "series-dark": ("series?changed=true", "", True),
    "compare": ("compare", "", False),
    "compare-runs": ("compare?what=two+runs", "", False),
    "sweep": ("sweep", "", False),
    "memory": ("memory", "", False),
    "numerics": ("numerics", "", False),
    "static": ("static", "", False),
    "runs": ("runs", "", False),
}


def shoot(browser: Any, address: str, out: Path, name: str) -> None:
    """One picture, as high as its page."""
    path, tab, dark = SHOTS[name]
    context = browser.new_context(viewport={"width": WIDTH, "height": 900}, color_scheme="dark" if dark else "light")
    page = context.new_page()
    page.goto(address + path)
    page.locator("h1, h3").first.wait_for(timeout=60_000)
    page.locator('[data-testid="stStatusWidget"]').wait_for(state="detached", timeout=60_000)
    if tab:
        page.get_by_role("tab", name=tab, exact=True).click()
    block, before = page.locator('[data-testid="stMainBlockContainer"]'), 0
    for _ in range(10):  # parts that come into view are drawn only then, and the page grows
        _painted(page)
        height = int(block.evaluate("e => e.getBoundingClientRect().height")) - 60
        if height == before:
            break
        before = height
        page.set_viewport_size({"width": WIDTH, "height": min(max(height, LEAST), MOST)})
    page.screenshot(path=out / f"{name}.png")
    context.close()


def _painted(page: Any) -> None:
    """Waits until nothing runs and no part is still a grey place holder; plots draw themselves after that."""
    page.wait_for_timeout(1000)
    page.locator('[data-testid="stStatusWidget"]').wait_for(state="detached", timeout=60_000)
    page.wait_for_function("!document.querySelector('[data-testid=stSkeleton]')", timeout=60_000)
    page.wait_for_timeout(1000)


def main() -> int:
    """Write the pictures; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", type=Path, default=Path("demo.db"))
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    parser.add_argument("names", nargs="*", help="all by default")
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    args.out.mkdir(parents=True, exist_ok=True)
    with server(args.db) as (address, _), sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--headless", "--disable-background-networking", "--no-first-run"],
        )
        for name in args.names or SHOTS:
            shoot(browser, address, args.out, name)
            print(f"{args.out / name}.png  {(args.out / f'{name}.png').stat().st_size / 1e3:.0f} kB")
        browser.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
