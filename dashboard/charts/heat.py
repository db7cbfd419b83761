"""Heat maps: head over base across two parameters, plain surfaces, and what was tried again."""

from __future__ import annotations

from typing import Any

import altair as alt

from dashboard.colours import BETTER, EVEN, QUIET, WORSE

from .base import Rows, data, in_order

_CELL = 44


def ratio_map(cells: Rows, x: str, y: str, facet: str | None, *, what: str = "head / base") -> Any:
    """Head over base: one cell per pair of values, one map per value of ``facet``.

    Cells hold ``x y facet ratio tested inside unsure label cases`` (ratio None where there is none). Inside the
    trigger: outlined. Not tested: hatched. Slower but not confirmed: dimmed.
    """
    cells, (xs, ys, order) = _as_text(cells)
    ratios = [c["ratio"] for c in cells if c["ratio"]]
    most = min(max([*(max(r, 1 / r) for r in ratios), 1.1]), 4.0)
    base = alt.Chart(data(cells)).encode(
        x=alt.X("x:O", title=x, sort=xs, axis=alt.Axis(labelAngle=-45, labelOverlap="greedy", grid=False)),
        y=alt.Y("y:O", title=y, sort=ys[::-1], axis=alt.Axis(grid=False)),
        tooltip=[
            alt.Tooltip("x:N", title=x), alt.Tooltip("y:N", title=y), alt.Tooltip("label:N", title=what),
            alt.Tooltip("cases:Q", title="cases in the cell"), alt.Tooltip("note:N", title="state"),
        ],
    )  # fmt: skip
    colour = alt.Color(
        "ratio:Q", title=what, legend=alt.Legend(
            values=[1 / most, 1, most], labelExpr="format(datum.value - 1, '+.0%')", gradientLength=120
        ),
        scale=alt.Scale(type="log", domain=[1 / most, 1, most], range=[BETTER, EVEN, WORSE], clamp=True, nice=False),
    )  # fmt: skip
    opacity = alt.condition("datum.unsure", alt.value(0.35), alt.value(1.0))
    filled = base.transform_filter("datum.tested && isValid(datum.ratio)").mark_rect().encode(
        color=colour, opacity=opacity
    )  # fmt: skip
    broken = base.transform_filter("datum.tested && !isValid(datum.ratio)").mark_rect(color=QUIET, opacity=0.25)
    words = base.transform_filter("datum.tested").mark_text(fontSize=10, clip=True).encode(
        text="short:N",
        color=alt.condition(
            "isValid(datum.ratio) && !datum.unsure && datum.ratio >= 0.8", alt.value("#101010"), alt.value(QUIET)
        ),
    )  # fmt: skip
    hatch = base.transform_filter("!datum.tested").mark_text(text="╱ ╱", color=QUIET, opacity=0.6, fontSize=11)
    inside = base.transform_filter("datum.inside")
    # Black on white, so that it stands out from every colour in both themes.
    outline = [inside.mark_rect(filled=False, stroke=c, strokeWidth=w) for c, w in (("white", 4), ("black", 2))]
    layers = [filled, broken, hatch, *outline]
    if len(xs) <= 24:
        layers.insert(3, words)
    step = _CELL if len(xs) <= 24 else 14
    layered = alt.layer(*layers).properties(width=alt.Step(step), height=alt.Step(28 if len(ys) <= 24 else 14))
    if facet is None:
        return layered
    columns = max(1, min(len(order), 1100 // (step * max(len(xs), 1) + 90)))
    return layered.facet(
        facet=alt.Facet("facet:N", title=facet, sort=order, header=alt.Header(labelFontWeight="bold")), columns=columns
    ).resolve_axis(x="independent", y="independent")


def surface(rows: Rows, x: str, y: str, value: str, facet: str | None, *, log: bool = True) -> Any:
    """A metric over two parameters. Rows hold ``x y facet value label cases``; ``value`` is the axis title."""
    rows, (xs, ys, order) = _as_text(rows)
    step = _CELL if len(xs) <= 24 else 14
    # A logarithm of nothing is no colour.
    log = log and all(r["value"] > 0 for r in rows)
    lowest, highest = min(r["value"] for r in rows), max(r["value"] for r in rows)
    middle = (lowest * highest) ** 0.5 if log else (lowest + highest) / 2
    # The upper half of the colours is bright and needs dark words.
    rows = [{**r, "bright": r["value"] > middle} for r in rows]
    base = alt.Chart(data(rows)).encode(
        x=alt.X("x:O", title=x, sort=xs, axis=alt.Axis(labelAngle=-45, labelOverlap="greedy", grid=False)),
        y=alt.Y("y:O", title=y, sort=ys[::-1], axis=alt.Axis(grid=False)),
        tooltip=[
            alt.Tooltip("x:N", title=x), alt.Tooltip("y:N", title=y), alt.Tooltip("label:N", title=value),
            alt.Tooltip("cases:Q", title="cases in the cell"),
        ],
    )  # fmt: skip
    filled = base.mark_rect().encode(
        color=alt.Color(
            "value:Q", title=value,
            legend=alt.Legend(format=".2~g", values=[lowest, middle, highest], gradientLength=120),
            scale=alt.Scale(scheme="viridis", type="log" if log else "linear", nice=False),
        )
    )  # fmt: skip
    words = base.mark_text(fontSize=10, clip=True).encode(
        text=alt.Text("value:Q", format=".2~r"),
        color=alt.condition("datum.bright", alt.value("#101010"), alt.value("#F4F4F4")),
    )
    layered = alt.layer(filled, words) if len(xs) <= 24 else filled
    base = layered.properties(width=alt.Step(step), height=alt.Step(28 if len(ys) <= 24 else 14))
    if facet is None:
        return base
    columns = max(1, min(len(order), 1100 // (step * max(len(xs), 1) + 90)))
    return base.facet(facet=alt.Facet("facet:N", title=facet, sort=order), columns=columns).resolve_axis(
        x="independent", y="independent"
    )


def retries(rows: Rows) -> Any:
    """Share of cases tried more than once, one column per run and one row per benchmark and backend.

    Rows hold ``run name share mark cases retried recovered why``, oldest run first. Where none was tried twice: grey.
    Where the run tried nothing: no cell. ``mark`` says whether all of them recovered, with the colour and not by it.
    """
    runs = list(dict.fromkeys(r["run"] for r in rows))
    most = max([r["share"] for r in rows if r["retried"]], default=1.0)
    base = alt.Chart(data(rows)).encode(
        x=alt.X("run:O", title="start of run (UTC)", sort=runs,
                axis=alt.Axis(labelAngle=-45, labelOverlap="greedy", grid=False)),
        y=alt.Y("name:N", title="benchmark / backend", axis=alt.Axis(labelLimit=420, grid=False)),
        tooltip=[
            alt.Tooltip("run:N"), alt.Tooltip("name:N", title="benchmark / backend"),
            alt.Tooltip("retried:Q", title="tried again (cases)"), alt.Tooltip("cases:Q", title="of (cases)"),
            alt.Tooltip("recovered:Q", title="recovered (cases)"), alt.Tooltip("why:N", title="earlier attempts"),
        ],
    )  # fmt: skip
    colour = alt.Color(
        "share:Q",
        title="tried again / cases",
        legend=alt.Legend(format=".2~%", values=[0, most], gradientLength=80),
        scale=alt.Scale(domain=[0, most], range=[EVEN, WORSE], nice=False),
    )
    once = base.transform_filter("datum.retried == 0").mark_rect(color=QUIET, opacity=0.18)
    twice = base.transform_filter("datum.retried > 0").mark_rect().encode(color=colour)
    words = base.transform_filter("datum.retried > 0").mark_text(fontSize=11, color="#101010").encode(text="mark:N")
    return alt.layer(once, twice, words).properties(width=alt.Step(22 if len(runs) <= 48 else 14), height=alt.Step(24))


def _as_text(rows: Rows) -> tuple[Rows, list[list[str]]]:
    """Rows with their places as text, and the order of places: a scale takes no mixture of numbers and texts."""
    orders = [[str(v) for v in in_order(r[k] for r in rows)] for k in ("x", "y")]
    facets = list(dict.fromkeys(r["facet"] for r in rows))  # names come in the order that the caller chose
    named = all(isinstance(v, str) for v in facets)
    orders.append([str(v) for v in (facets if named else in_order(facets))])
    return [{**r, "x": str(r["x"]), "y": str(r["y"]), "facet": str(r["facet"])} for r in rows], orders
