"""What all charts share: one scale of backends, and rows handed over as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

from dashboard.colours import colour, dash, shape

Rows = Sequence[dict[str, Any]]


def data(rows: Rows) -> Any:
    """Rows as the data of a chart; types are named where fields are used."""
    return alt.InlineData(values=list(rows))


def backend_colour(names: Iterable[str], field: str = "backend", title: str = "backend") -> Any:
    """Colour by backend, the same on every page."""
    known = sorted(set(names))
    return alt.Color(f"{field}:N", title=title, scale=alt.Scale(domain=known, range=[colour(n) for n in known]))


def backend_shape(names: Iterable[str], field: str = "backend", title: str = "backend") -> Any:
    """Shape of points by backend: with the colour, so that neither has to be seen alone."""
    known = sorted(set(names))
    return alt.Shape(f"{field}:N", title=title, scale=alt.Scale(domain=known, range=[shape(n) for n in known]))


def backend_dash(names: Iterable[str], field: str = "backend", title: str = "backend") -> Any:
    """Dash of lines by backend."""
    known = sorted(set(names))
    return alt.StrokeDash(f"{field}:N", title=title, scale=alt.Scale(domain=known, range=[dash(n) for n in known]))


def in_order(values: Iterable[Any]) -> list[Any]:
    """Distinct values, numbers by size, then texts by name."""
    return sorted(set(values), key=lambda v: (isinstance(v, str), v) if not isinstance(v, bool) else (False, int(v)))
