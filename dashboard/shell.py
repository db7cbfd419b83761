"""What surrounds every page: the banner of a demonstration, and errors of the store in words instead of a traceback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import streamlit as st

from dashboard import data
from dashboard.text import plain
from harness.model import AttnwatchError

View = Callable[[str], None]


def framed(view: View) -> Callable[[], None]:
    """The page of a view. The view is given the mark of the store, the key of everything cached."""

    @wraps(view)
    def page() -> None:
        try:
            mark = data.mark()
            if data.holdings(mark).demo:
                st.info(
                    "**Demonstration.** Nights resampled from a short measuring of this machine, "
                    "with faults planted in them. Nothing here happened.",
                    icon=":material/science:",
                )
            view(mark)
        except AttnwatchError as error:
            st.error(plain(error), icon=":material/database_off:")
            st.caption("Nothing was changed. Reload the page to try again.")

    return page


def option(
    words: str, key: str, choices: list[Any], *, default: Any = None, help: str | None = None,
    names: Callable[[Any], str] = str,
) -> Any:  # fmt: skip
    """A choice that stands in the address of the page; None where there is nothing to choose from."""
    if not choices:
        return None
    index = choices.index(default) if default in choices else 0
    return st.selectbox(words, choices, index=index, key=key, bind="query-params", help=help, format_func=names)


def words(label: str, key: str, help: str | None = None, placeholder: str | None = None) -> str:
    """A line of text that stands in the address of the page."""
    return st.text_input(label, key=key, bind="query-params", help=help, placeholder=placeholder) or ""


def machine(mark: str, key: str = "machine") -> str | None:
    """The machine to look at; the one that ran last is the default."""
    known = {m.fingerprint: m for m in data.machines(mark) if m.runs}
    if not known:
        return None

    def name(fingerprint: str) -> str:
        m = known[fingerprint]
        alike = sum(o.device_model == m.device_model for o in known.values()) > 1
        return f"{m.device_model} · {fingerprint[:6]}" if alike else m.device_model

    chosen: str = option("Machine", key, list(known), names=name)
    return chosen


def empty(mark: str) -> bool:
    """Says so where the store holds no runs."""
    if data.holdings(mark).runs:
        return False
    st.info("The store holds no runs yet. `make nightly` makes the first one, `make demo` fills one to look at.")
    return True


def chart(made: Any, words: str) -> None:
    """A chart with a text for those who cannot see it."""
    st.altair_chart(made, alt=words)


def missing(items: Mapping[str, str]) -> None:
    """Says plainly what the store does not hold yet: what -> what it would take."""
    with st.container(border=True):
        st.markdown("**Not recorded yet**")
        for what, why in items.items():
            st.markdown(f"- {plain(what)}: {plain(why)}")
