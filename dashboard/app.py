"""Navigation only: which pages there are and which one is shown. Run by ``attnwatch dashboard``."""

from __future__ import annotations

import streamlit as st

from dashboard import shell
from dashboard.views import compare, incident, incidents, memory, numerics, runs, series, static, sweep

#: Path in the address, title, view; the first one opens by default. Without icons, since the browser would fetch those
#: of pages from a server elsewhere.
VIEWS = (
    ("incidents", "Incidents", incidents.page),
    ("incident", "Incident", incident.page),
    ("series", "Series", series.page),
    ("compare", "Compare", compare.page),
    ("sweep", "Sweep", sweep.page),
    ("memory", "Memory", memory.page),
    ("numerics", "Numerics", numerics.page),
    ("static", "Static", static.page),
    ("runs", "Runs", runs.page),
)


def main(first: str = VIEWS[0][0]) -> None:
    """Show the page that the address names, ``first`` where it names none."""
    st.set_page_config(page_title="attnwatch", layout="wide")
    pages = {name: st.Page(view, title=title, url_path=name, default=name == first) for name, title, view in VIEWS}
    shell.know(pages)
    st.navigation(list(pages.values()), position="top").run()


if __name__ == "__main__":
    main()
