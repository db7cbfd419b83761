"""What surrounds every page: the banner of a demonstration, and errors of the store in words instead of a traceback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import streamlit as st

from dashboard import data
from dashboard.charts import lines
from dashboard.text import plain, short, when
from harness.model import AttnwatchError
from harness.model.terms import COMPILE_TARGET

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


_PAGES = "pages of the app"


def know(pages: Mapping[str, Any]) -> None:
    """Keep the pages of this run of the script, so that views can link to each other."""
    st.session_state[_PAGES] = pages


def page_of(name: str) -> Any:
    """The page of a view, for links."""
    return st.session_state[_PAGES][name]


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
    """The machine to look at; the one that ran last is the default. What was only compiled for comes last."""
    ran = sorted(data.machines(mark), key=lambda m: m.device_kind == COMPILE_TARGET)
    known = {m.fingerprint: m for m in ran if m.runs}
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
    """Says plainly what the store does not hold yet: what -> what it would take, in Markdown of our own."""
    with st.container(border=True):
        st.markdown("**Not recorded yet**")
        for what, why in items.items():
            st.markdown(f"- {what}: {why}")


def run(mark: str, place: Any, machine: str | None, key: str = "run") -> str | None:
    """A run of a machine, the newest by default; its id stands in the address."""
    known = {r.id: r for r in data.runs(mark, machine)} if machine else {}
    with place:
        chosen: str | None = option(
            "Run", key, list(known),
            names=lambda i: f"{when(known[i].started_at)}  {known[i].suite}  {short(known[i].revision)}",
        )  # fmt: skip
    return chosen


def series(rows: list[dict[str, Any]], axis: str, words: str, key: str, **options: Any) -> None:
    """Series over runs, above the whole span in small, in which a part can be chosen."""
    place = st.container()
    log = bool(options.get("log"))
    chosen = st.altair_chart(lines.overview(rows, log=log), key=key, on_select="rerun", selection_mode="span")
    span = dict(chosen.get("selection", {})).get("span", {}).get("at")
    with place:
        chart(lines.series(rows, axis, span=span or None, **options), words)
