"""Backends side by side: intervals, the front of speed and memory, growth, teeth at block boundaries."""

from __future__ import annotations

from typing import Any

import altair as alt

from dashboard.colours import BETTER, QUIET, WORSE

from .base import Rows, backend_colour, backend_shape, data


def intervals(rows: Rows, axis: str, *, log: bool = True) -> Any:
    """A value with its interval per backend, one line per workload. Rows hold ``work backend value low high shown``."""
    names = {r["backend"] for r in rows}
    order = list(dict.fromkeys(r["work"] for r in rows))
    logarithmic = log and all(r["value"] > 0 for r in rows)
    scale = alt.Scale(type="log", nice=False, padding=12) if logarithmic else alt.Scale(zero=False)
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("work:N", title=None, sort=order, axis=alt.Axis(labelLimit=420, grid=True)),
        color=backend_colour(names),
    )
    bars = base.mark_rule(strokeWidth=2, opacity=0.6).encode(x=alt.X("low:Q", title=axis, scale=scale), x2="high:Q")
    dots = base.mark_point(filled=True, size=75).encode(
        x=alt.X("value:Q", title=axis, scale=scale),
        shape=backend_shape(names),
        tooltip=[
            alt.Tooltip("work:N", title="work"), alt.Tooltip("backend:N"), alt.Tooltip("shown:N", title=axis),
        ],
    )  # fmt: skip
    return alt.layer(bars, dots).properties(height=alt.Step(22), width="container")


def front(rows: Rows, x_axis: str, y_axis: str) -> Any:
    """Two metrics of which less is better; who is on the front is joined. Rows hold ``backend x y front label``."""
    names = {r["backend"] for r in rows}
    base = alt.Chart(data(rows)).encode(
        x=alt.X("x:Q", title=x_axis, scale=alt.Scale(type="log", nice=False, padding=50)),
        y=alt.Y("y:Q", title=y_axis, scale=alt.Scale(type="log", nice=False, padding=30)),
    )
    line = base.transform_filter("datum.front").mark_line(color=QUIET, strokeDash=[4, 3], interpolate="step-after")
    dots = base.mark_point(size=160, strokeWidth=1.5).encode(
        color=backend_colour(names),
        fill=backend_colour(names).legend(None),
        fillOpacity=alt.condition("datum.front", alt.value(1.0), alt.value(0.15)),
        shape=backend_shape(names),
        tooltip=[alt.Tooltip("backend:N"), alt.Tooltip("label:N", title="values")],
    )
    words = base.mark_text(align="left", dx=11, dy=-8, color=QUIET).encode(text="backend:N")
    return alt.layer(line, dots, words).properties(height=300, width="container")


def growth(rows: Rows, x_axis: str, y_axis: str) -> Any:
    """A metric against size on two logarithmic axes, where a power is a straight line. Rows: ``x y backend label``."""
    names = {r["backend"] for r in rows}
    return (
        alt.Chart(data([r for r in rows if r["x"] > 0 and r["y"] > 0]))
        .mark_point(filled=True, size=55, opacity=0.75)
        .encode(
            x=alt.X("x:Q", title=x_axis, scale=alt.Scale(type="log", nice=False, padding=16)),
            y=alt.Y("y:Q", title=y_axis, scale=alt.Scale(type="log", nice=False, padding=16)),
            color=backend_colour(names),
            shape=backend_shape(names),
            tooltip=[alt.Tooltip("backend:N"), alt.Tooltip("label:N", title="case"), alt.Tooltip("y:Q", title=y_axis)],
        )
        .properties(height=320, width="container")
    )


def teeth(rows: Rows, x: str, what: str) -> Any:
    """Cost of one more: the value at n + 1 over the value at n. Rows hold ``n ratio backend label``."""
    names = {r["backend"] for r in rows}
    level = alt.Chart(data([{"one": 1}])).mark_rule(color=QUIET, strokeDash=[2, 3]).encode(y="one:Q")
    dots = (
        alt.Chart(data(rows))
        .mark_point(filled=True, size=60, opacity=0.8)
        .encode(
            x=alt.X("n:O", title=f"n ({x})", axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("backend:N"),
            y=alt.Y("ratio:Q", title=f"{what} at n + 1 / at n", scale=alt.Scale(zero=False)),
            color=backend_colour(names),
            shape=backend_shape(names),
            tooltip=[
                alt.Tooltip("backend:N"),
                alt.Tooltip("label:N", title="case"),
                alt.Tooltip("shown:N", title="ratio"),
            ],
        )
    )
    return alt.layer(level, dots).properties(height=300, width="container")


def shares(rows: Rows, axis: str, parts: list[str], colours: list[str]) -> Any:
    """What a total is made of, one bar per backend and workload. Rows hold ``name part value``."""
    order = list(dict.fromkeys(r["name"] for r in rows))
    return (
        alt.Chart(data(rows))
        .mark_bar()
        .encode(
            y=alt.Y("name:N", title=None, sort=order, axis=alt.Axis(labelLimit=420)),
            x=alt.X("value:Q", title=axis, stack="zero"),
            color=alt.Color("part:N", title=None, scale=alt.Scale(domain=parts, range=colours)),
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("part:N"), alt.Tooltip("value:Q", title=axis, format=".4g")],
        )
        .properties(height=alt.Step(20), width="container")
    )


def statuses(rows: Rows, order: list[str], colours: list[str]) -> Any:
    """Cases by status over runs. Rows hold ``at status cases run``."""
    return (
        alt.Chart(data(rows))
        .mark_bar()
        .encode(
            x=alt.X("day:O", title="run", axis=alt.Axis(labelOverlap="greedy", labelAngle=0)),
            y=alt.Y("cases:Q", title="cases"),
            color=alt.Color("status:N", title=None, scale=alt.Scale(domain=order, range=colours)),
            tooltip=[alt.Tooltip("day:N", title="run"), alt.Tooltip("status:N"), alt.Tooltip("cases:Q")],
        )
        .properties(height=230, width="container")
    )


def ratios(rows: Rows, axis: str) -> Any:
    """Head over base, one mark per case and one line per backend. Rows hold ``backend ratio verdict label``."""
    order = ["worse", "within noise", "same", "better"]
    colours = [WORSE, QUIET, QUIET, BETTER]
    level = alt.Chart(data([{"one": 1}])).mark_rule(color=QUIET, strokeDash=[2, 3]).encode(x="one:Q")
    marks = (
        alt.Chart(data(rows))
        .mark_point(filled=True, size=45, opacity=0.6)
        .encode(
            x=alt.X("ratio:Q", title=axis, scale=alt.Scale(type="log", nice=False, padding=20)),
            y=alt.Y("backend:N", title=None),
            color=alt.Color("verdict:N", title=None, scale=alt.Scale(domain=order, range=colours)),
            tooltip=[
                alt.Tooltip("backend:N"), alt.Tooltip("label:N", title="case"),
                alt.Tooltip("ratio:Q", title=axis, format=".3f"), alt.Tooltip("verdict:N"),
            ],
        )
    )  # fmt: skip
    return alt.layer(level, marks).properties(height=alt.Step(34), width="container")
