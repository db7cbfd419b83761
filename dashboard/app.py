"""Navigation only: which pages there are and which one is shown. Run by ``attnwatch dashboard``."""

from __future__ import annotations

import streamlit as st

from dashboard.views import incidents, runs


def main() -> None:
    """The app."""
    st.set_page_config(page_title="attnwatch", layout="wide")
    pages = [
        st.Page(incidents.page, title="Incidents", url_path="incidents", default=True),
        st.Page(runs.page, title="Runs", url_path="runs"),
    ]
    st.navigation(pages, position="top").run()


main()
