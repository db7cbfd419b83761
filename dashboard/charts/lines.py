"""Series over runs, and the samples behind one point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from dashboard.colours import QUIET, WORSE

from .base import Rows, backend_dash, data


def series(
    points: Rows,
    axis: str,
    *,
    log: bool = False,
    bad_from: float | None = None,
    good_until: float | None = None,
    marks: Rows = (),
    span: Sequence[float] | None = None,
) -> Any:
    """Values over time with their 95 % bands, over ``span`` (ms, from and to) or all of it.

    Points hold ``at`` (ms since the epoch), ``value low high name backend run revision status``. ``bad_from`` marks the
    first bad run, ``good_until`` the last good one, ``marks`` (``at text``) upgrades.
    """
    names = sorted({p["name"] for p in points})
    if span is not None:
        points = [p for p in points if span[0] <= p["at"] <= span[1]]
        marks = [m for m in marks if span[0] <= m["at"] <= span[1]]
    shown = [p for p in points if p["value"] is not None]
    lowest = [p["value"] for p in shown]
    scale = alt.Scale(type="log" if log and lowest and min(lowest) > 0 else "linear", zero=False, nice=True)
    x = alt.X("at:T", title="start of run (UTC)", axis=alt.Axis(labelOverlap="greedy"))
    colour = _by_name(points, names)
    base = alt.Chart(data(shown)).encode(x=x)
    band = base.mark_area(opacity=0.22).encode(
        y=alt.Y("low:Q", title=axis, scale=scale), y2="high:Q", color=colour.legend(None)
    )
    line = base.mark_line(strokeWidth=1.6).encode(
        y=alt.Y("value:Q", title=axis, scale=scale), color=colour, **_dash(points, names)
    )
    dots = base.mark_point(filled=True, size=34, opacity=0.9).encode(
        y=alt.Y("value:Q", title=axis, scale=scale),
        color=colour.legend(None),
        tooltip=[
            alt.Tooltip("name:N", title="series"), alt.Tooltip("shown:N", title=axis),
            alt.Tooltip("interval:N", title="95 % interval"), alt.Tooltip("revision:N", title="revision"),
            alt.Tooltip("at:T", title="run of", format="%Y-%m-%d %H:%M"), alt.Tooltip("run:N", title="run"),
        ],
    )  # fmt: skip
    layers = [*_rules(marks, x), band, line, dots]
    failures = [p | {"value": max(lowest, default=1.0)} for p in points if p["value"] is None]
    if failures:
        layers.append(
            alt.Chart(data(failures))
            .mark_text(text="✕", color=WORSE, fontSize=14)
            .encode(
                x=x, y=alt.Y("value:Q", title=axis, scale=scale),
                tooltip=[alt.Tooltip("name:N", title="series"), alt.Tooltip("status:N", title="status")],
            )
        )  # fmt: skip
    if good_until is not None and (span is None or span[0] <= good_until <= span[1]):
        layers.append(_flag(good_until, "last good", QUIET, x, "right"))
    if bad_from is not None and (span is None or span[0] <= bad_from <= span[1]):
        layers.append(_flag(bad_from, "first bad", WORSE, x, "left"))
    return alt.layer(*layers).properties(height=300, width="container")


def overview(points: Rows, *, log: bool = False) -> Any:
    """The whole span in small, to choose a part of it with the pointer: the selection ``span`` of ``at``."""
    shown = [p for p in points if p["value"] is not None]
    scale = alt.Scale(type="log" if log and all(p["value"] > 0 for p in shown) else "linear", zero=False)
    names = sorted({p["name"] for p in shown})
    return (
        alt.Chart(data(shown))
        .mark_line(strokeWidth=1)
        .encode(
            x=alt.X("at:T", title="drag here to look closer, double-click for all"),
            y=alt.Y("value:Q", title=None, scale=scale, axis=None),
            color=_by_name(shown, names).legend(None),
            detail="name:N",
        )
        .properties(height=110, width="container")
        .add_params(alt.selection_interval(encodings=["x"], name="span"))
    )


def _by_name(points: Rows, names: list[str]) -> Any:
    """Colour of the backend where a name is one backend's alone; else of the name itself, apart from one another."""
    from dashboard.colours import PALETTE, colour

    backends = {p["name"]: p["backend"] for p in points}
    alone = len(set(backends.values())) == len(names)
    colours = [colour(backends[n]) if alone else PALETTE[i % len(PALETTE)] for i, n in enumerate(names)]
    legend = alt.Legend(orient="top", labelLimit=600, columns=1, title=None) if len(names) > 1 else None
    return alt.Color("name:N", scale=alt.Scale(domain=names, range=colours), legend=legend)


def _dash(points: Rows, names: list[str]) -> dict[str, Any]:
    backends = {p["backend"] for p in points}
    if len(backends) < 2 or len(backends) != len(names):
        return {}
    return {"strokeDash": backend_dash(backends).legend(None)}


def _rules(marks: Rows, x: Any) -> list[Any]:
    if not marks:
        return []
    base = alt.Chart(data(marks)).encode(x=x)
    tip = [alt.Tooltip("text:N", title="changed"), alt.Tooltip("at:T", title="with the run of", format="%Y-%m-%d")]
    return [
        base.mark_rule(strokeDash=[2, 3], color=QUIET, strokeWidth=1.5).encode(tooltip=tip),
        base.mark_text(align="left", dx=4, y=8, color=QUIET, fontSize=10).encode(text="short:N", tooltip=tip),
    ]


def _flag(at: float, words: str, colour: str, x: Any, align: str) -> Any:
    base = alt.Chart(data([{"at": at, "text": words}])).encode(x=x)
    rule = base.mark_rule(color=colour, strokeWidth=2)
    text = base.mark_text(
        align=align, dx=5 if align == "left" else -5, y=24, color=colour, fontSize=11, fontWeight="bold"
    ).encode(text="text:N")
    return alt.layer(rule, text)


def samples(rows: Rows, axis: str) -> Any:
    """Raw samples in the order they were taken, and how they spread. Rows hold ``i value kind run``."""
    kinds = ["kept", "warm-up"]
    colour = alt.Color("kind:N", title=None, scale=alt.Scale(domain=kinds, range=["#0077BB", QUIET]))
    order = (
        alt.Chart(data(rows))
        .mark_point(filled=True, size=30)
        .encode(
            x=alt.X("i:Q", title="sample"), y=alt.Y("value:Q", title=axis, scale=alt.Scale(zero=False)), color=colour,
            tooltip=[alt.Tooltip("value:Q", title=axis), alt.Tooltip("kind:N")],
        )
        .properties(height=200, width=430)
    )  # fmt: skip
    kept = [r for r in rows if r["kind"] == "kept"]
    spread = (
        alt.Chart(data(kept))
        .mark_bar(color="#0077BB")
        .encode(
            x=alt.X("value:Q", title=axis, bin=alt.Bin(maxbins=30)), y=alt.Y("count():Q", title="samples kept"),
        )
        .properties(height=200, width=430)
    )  # fmt: skip
    return alt.hconcat(order, spread, spacing=40)


def controls(rows: Rows) -> Any:
    """Control kernels over runs, each as its share of its own median. Rows hold ``at name share run``."""
    names = sorted({r["name"] for r in rows})
    line = (
        alt.Chart(data(rows))
        .mark_line(point=alt.OverlayMarkDef(filled=True, size=26), strokeWidth=1.4)
        .encode(
            x=alt.X("at:T", title="start of run (UTC)"),
            y=alt.Y("share:Q", title="time / median", scale=alt.Scale(zero=False)),
            color=alt.Color(
                "name:N", title="control", scale=alt.Scale(domain=names, range=["#0077BB", "#EE7733", "#009988"])
            ),
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("share:Q", format=".3f"), alt.Tooltip("run:N")],
        )
    )
    level = alt.Chart(data([{"one": 1}])).mark_rule(color=QUIET, strokeDash=[2, 3]).encode(y="one:Q")
    return alt.layer(level, line).properties(height=230, width="container")
