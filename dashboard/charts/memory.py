"""Charts of memory: model beside measurement, exponents, an address space over time, one call event by event."""

from __future__ import annotations

from typing import Any

import altair as alt

from dashboard.colours import QUIET, WORSE

from .base import Rows, backend_colour, backend_shape, data


def against(rows: Rows, x_axis: str, y_axis: str) -> Any:
    """Measured over modelled: what lies on the line is what the model says. Rows hold
    ``x y backend label share alarm``."""
    names = {r["backend"] for r in rows}
    ends = [min(min(r["x"], r["y"]) for r in rows), max(max(r["x"], r["y"]) for r in rows)]
    scale = alt.Scale(type="log", nice=False, padding=16)
    line = (
        alt.Chart(data([{"x": e, "y": e} for e in ends]))
        .mark_line(color=QUIET, strokeDash=[4, 3])
        .encode(x=alt.X("x:Q", title=x_axis, scale=scale), y=alt.Y("y:Q", title=y_axis, scale=scale))
    )
    dots = (
        alt.Chart(data(rows))
        .mark_point(size=70, strokeWidth=1.5)
        .encode(
            x=alt.X("x:Q", title=x_axis, scale=scale),
            y=alt.Y("y:Q", title=y_axis, scale=scale),
            color=backend_colour(names),
            fill=backend_colour(names).legend(None),
            fillOpacity=alt.condition("datum.alarm", alt.value(1.0), alt.value(0.15)),
            shape=backend_shape(names),
            tooltip=[
                alt.Tooltip("backend:N"), alt.Tooltip("label:N", title="case"),
                alt.Tooltip("share:Q", title="measured over model - 1", format="+.1%"),
            ],
        )
    )  # fmt: skip
    return alt.layer(line, dots).properties(height=300, width="container")


def exponents(rows: Rows) -> Any:
    """Fitted exponents with their intervals, one row per line of the sweep. Rows hold
    ``name backend value low high``."""
    names = {r["backend"] for r in rows}
    order = list(dict.fromkeys(r["name"] for r in rows))
    levels = (
        alt.Chart(data([{"at": 1, "what": "linear"}, {"at": 2, "what": "quadratic"}]))
        .mark_rule(color=QUIET, strokeDash=[2, 3])
        .encode(x="at:Q", tooltip=[alt.Tooltip("what:N")])
    )
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("name:N", title=None, sort=order, axis=alt.Axis(labelLimit=420)), color=backend_colour(names)
    )
    axis = "exponent, with its 95 % interval (1: in step, 2: quadratic)"
    bars = base.mark_rule(strokeWidth=2, opacity=0.6).encode(
        x=alt.X("low:Q", title=axis, scale=alt.Scale(zero=True)), x2="high:Q"
    )
    dots = base.mark_point(filled=True, size=70).encode(
        x=alt.X("value:Q", title=axis),
        shape=backend_shape(names),
        tooltip=[
            alt.Tooltip("name:N", title="line"),
            alt.Tooltip("backend:N"),
            alt.Tooltip("shown:N", title="exponent"),
        ],
    )
    return alt.layer(levels, bars, dots).properties(height=alt.Step(22), width="container")


def address_map(rows: Rows, x_axis: str, y_axis: str, facet: bool = False) -> Any:
    """Who holds the address space when: one cell per moment and part of it. Rows hold ``t t2 cell cell2 held policy``.

    Cells are intervals on both axes, so that a hundred thousand blocks fit one picture.
    """
    made = (
        alt.Chart(data(rows))
        .mark_rect()
        .encode(
            x=alt.X("t:Q", title=x_axis, scale=alt.Scale(nice=False, zero=False)),
            x2="t2:Q",
            y=alt.Y("cell:Q", title=y_axis, scale=alt.Scale(nice=False, zero=False), axis=alt.Axis(format="~s")),
            y2="cell2:Q",
            color=alt.Color(
                "held:Q", title="held", legend=alt.Legend(format=".0%", values=[0, 0.5, 1], gradientLength=120),
                scale=alt.Scale(scheme="viridis", domain=[0, 1]),
            ),
            tooltip=[
                alt.Tooltip("t:Q", title=x_axis, format=".4g"), alt.Tooltip("cell:Q", title=y_axis, format="~s"),
                alt.Tooltip("held:Q", format=".0%"),
            ],
        )
    )  # fmt: skip
    if not facet:
        return made.properties(height=260, width="container")
    return made.properties(height=260, width=340).facet(
        facet=alt.Facet("policy:N", title=None, header=alt.Header(labelFontWeight="bold")), columns=3
    )


def timeline(levels: Rows, marks: Rows) -> Any:
    """Bytes held over one call, its copies and the entry of its kernel. ``levels`` hold ``t mib size kind``, ``marks``
    ``t what size``."""
    x = alt.X("t:Q", title="time since the first event (us)", scale=alt.Scale(nice=False))
    held = (
        alt.Chart(data(levels))
        .mark_area(
            interpolate="step-after", opacity=0.35, color="#0077BB", line={"color": "#0077BB", "strokeWidth": 1.2}
        )
        .encode(x=x, y=alt.Y("mib:Q", title="held (MiB)"))
    )
    steps = (
        alt.Chart(data([r for r in levels if r["kind"]]))
        .mark_point(size=22, filled=True)
        .encode(
            x=x,
            y="mib:Q",
            color=alt.Color(
                "kind:N", title=None, scale=alt.Scale(domain=["ALLOC", "FREE"], range=["#0077BB", "#EE7733"])
            ),
            shape=alt.Shape(
                "kind:N", title=None, scale=alt.Scale(domain=["ALLOC", "FREE"], range=["triangle-up", "triangle-down"])
            ),
            tooltip=[
                alt.Tooltip("kind:N"), alt.Tooltip("size:Q", title="bytes", format=","), alt.Tooltip("t:Q", title="us"),
            ],
        )
    )  # fmt: skip
    layers = [held, steps]
    if marks:
        layers.append(
            alt.Chart(data(marks))
            .mark_rule(color=WORSE, strokeDash=[3, 2], opacity=0.7)
            .encode(
                x=x,
                tooltip=[alt.Tooltip("what:N", title="event"), alt.Tooltip("size:Q", title="bytes", format=",")],
            )
        )
    return alt.layer(*layers).properties(height=260, width="container")


def saturation(rows: Rows, curve: Rows, x_axis: str) -> Any:
    """Bandwidth against the work in flight, its fit, and what is left. Rows hold ``backend x y residual``, ``curve``
    ``backend x y what`` (the fit, and published curves to compare with)."""
    names = {r["backend"] for r in rows}
    x = alt.X("x:Q", title=x_axis, scale=alt.Scale(type="log", nice=False, padding=16))
    dots = (
        alt.Chart(data(rows))
        .mark_point(filled=True, size=60)
        .encode(
            x=x,
            y=alt.Y("y:Q", title="bandwidth (GB/s)"),
            color=backend_colour(names),
            shape=backend_shape(names),
            tooltip=[alt.Tooltip("backend:N"), alt.Tooltip("y:Q", title="GB/s", format=".3g")],
        )
    )
    lines = (
        alt.Chart(data(curve))
        .mark_line()
        .encode(
            x=x,
            y="y:Q",
            color=backend_colour(names),
            strokeDash=alt.StrokeDash("what:N", title=None),
            tooltip=[alt.Tooltip("what:N"), alt.Tooltip("backend:N")],
        )
    )
    left = alt.Chart(data(rows)).encode(
        x=x,
        y=alt.Y("residual:Q", title="measured / fit - 1", axis=alt.Axis(format="+.0%")),
        color=backend_colour(names),
    )
    level = alt.Chart(data([{"zero": 0}])).mark_rule(color=QUIET, strokeDash=[2, 3]).encode(y="zero:Q")
    residuals = alt.layer(level, left.mark_rule().encode(y2=alt.Y2Datum(0)), left.mark_point(filled=True, size=40))
    return alt.vconcat(
        alt.layer(lines, dots).properties(height=240, width=760), residuals.properties(height=90, width=760)
    )
