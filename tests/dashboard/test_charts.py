"""Charts are pure: rows in, a valid chart with units out; colours are told apart by everyone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dashboard import colours
from dashboard.charts import heat, lines, points

CELLS = [
    {"x": x, "y": y, "facet": f, "ratio": None if x == 3 else 1.0 + n / 10, "tested": x != 3, "inside": x == 2,
     "unsure": x == 1, "label": "l", "short": "s", "cases": 1, "note": "n"}
    for (n, x), y, f in itertools.product(enumerate((1, 2, 3, "-")), (10, 9), ("a", "b"))
    if x != "-" or y == 10
][:12]  # fmt: skip
POINTS = [
    {"at": 1e12 + i, "value": None if i == 2 else 1.0 + i, "low": 0.9, "high": 1.1, "name": n, "backend": n, "run": "r",
     "revision": "v", "full": "v", "status": "ok", "shown": "s", "interval": "i", "measurement": i}
    for n in ("sdpa_math", "mine")
    for i in range(4)
]  # fmt: skip


def titles(made: Any) -> set[str]:
    """Every title of an axis or legend of a chart."""
    found: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if isinstance(node.get("title"), str):
                found.add(node["title"])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(made.to_dict())
    return found


@pytest.mark.parametrize("facet", ["backend", None])
def test_the_map_outlines_hatches_and_dims(facet: str | None) -> None:
    made = heat.ratio_map(CELLS, "kv_len", "batch", facet, what="latency, head / base")
    assert {"kv_len", "batch", "latency, head / base"} <= titles(made)
    text = str(made.to_dict())
    assert "datum.inside" in text
    assert "!datum.tested" in text
    assert "datum.unsure" in text


def test_axes_are_in_the_order_of_numbers() -> None:
    made = heat.ratio_map([{**CELLS[0], "x": x} for x in (10, 9, 100)], "kv_len", "batch", None)
    sorts = [layer["encoding"]["x"]["sort"] for layer in made.to_dict()["layer"]]
    assert all(s == ["9", "10", "100"] for s in sorts)


def test_series_have_units_bands_and_flags() -> None:
    marks = [{"at": 1e12 + 1, "text": "torch: a -> b", "short": "torch"}]
    made = lines.series(POINTS, "latency (ms)", log=True, bad_from=1e12 + 3, good_until=1e12 + 1, marks=marks)
    assert {"latency (ms)", "start of run (UTC)"} <= titles(made)
    assert "first bad" in str(made.to_dict())
    part = lines.series(POINTS, "latency (ms)", span=(1e12, 1e12 + 1), bad_from=1e12 + 3)
    assert "first bad" not in str(part.to_dict()), "what lies outside the span is not drawn"
    lines.overview(POINTS).to_dict()


@pytest.mark.parametrize(
    ("made", "axes"),
    [
        (heat.surface([{"x": 1, "y": 2, "facet": "a", "value": 0.0, "label": "l", "cases": 1}], "x", "y",
                      "latency (ms)", "backend"), {"latency (ms)"}),
        (points.front([{"backend": "a", "x": 1.0, "y": 1.0, "front": True, "label": "l"}], "time", "memory"), {"time"}),
        (points.growth([{"backend": "a", "x": 0.0, "y": 1.0, "label": "l"}], "size", "peak (MiB)"), {"peak (MiB)"}),
        (points.teeth([{"n": 1, "ratio": 2.0, "backend": "a", "label": "l", "shown": "2"}], "kv_len", "latency"),
         {"n (kv_len)", "latency at n + 1 / at n"}),
        (points.intervals([{"work": "w", "backend": "a", "value": 1.0, "low": 1.0, "high": 1.0, "shown": "1"}], "ms"),
         {"ms"}),
        (points.ratios([{"backend": "a", "ratio": 1.0, "verdict": "same", "label": "l"}], "latency, head / base"),
         {"latency, head / base"}),
        (points.shares([{"name": "n", "part": "p", "value": 1.0}], "MiB", ["p"], ["#000"]), {"MiB"}),
        (points.statuses([{"day": "d", "status": "ok", "cases": 1}], ["ok"], ["#000"]), {"cases"}),
        (lines.samples([{"i": 0, "value": 1.0, "kind": "kept"}], "latency (ms)"), {"latency (ms)"}),
        (lines.controls([{"at": 1e12, "name": "gemm", "share": 1.0, "run": "r"}]), {"time / median"}),
    ],
)  # fmt: skip
def test_every_chart_is_valid_and_names_its_axes(made: Any, axes: set[str]) -> None:
    assert axes <= titles(made)


def test_a_backend_keeps_its_colour_whatever_stands_beside_it() -> None:
    alone = points.growth([{"backend": "segmented", "x": 1.0, "y": 1.0, "label": "l"}], "x", "y").to_dict()
    rows = [{"backend": b, "x": 1.0, "y": 1.0, "label": "l"} for b in ("flex", "segmented", "sdpa_math")]
    among = points.growth(rows, "x", "y").to_dict()

    def colour_of(spec: dict[str, Any]) -> str:
        scale = spec["encoding"]["color"]["scale"]
        return str(scale["range"][scale["domain"].index("segmented")])

    assert colour_of(alone) == colour_of(among) == colours.colour("segmented")


def test_backends_of_ours_never_share_colour_and_shape() -> None:
    looks = [(colours.colour(n), colours.shape(n)) for n in colours._KNOWN]
    assert len(set(looks)) == len(looks)
    assert colours.colour("<b>") in colours.PALETTE


# Machado, Oliveira and Fernandes (2009), severity 1: what the common kinds of colour blindness see, in linear RGB.
_KINDS = {
    "all colours": np.eye(3),
    "no green": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "no red": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
}


def _linear(colour: str) -> Any:
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def _lab(linear: Any) -> Any:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(linear, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("kind", _KINDS)
def test_the_first_backends_are_told_apart_by_everyone(kind: str) -> None:
    seen = {c: _lab(_KINDS[kind] @ _linear(c)) for c in colours.PALETTE}
    for a, b in itertools.combinations(colours.PALETTE, 2):
        apart = float(np.linalg.norm(seen[a] - seen[b]))
        place_a, place_b = colours.PALETTE.index(a), colours.PALETTE.index(b)
        same_shape = place_a % len(colours.SHAPES) == place_b % len(colours.SHAPES)
        assert apart > (20 if same_shape else 5), (kind, a, b, apart)


@pytest.mark.parametrize("background", ["#FFFFFF", "#0E1117"])
def test_colours_stand_out_in_both_themes(background: str) -> None:
    luminance = lambda c: float(_linear(c) @ [0.2126, 0.7152, 0.0722])  # noqa: E731
    for colour in (*colours.PALETTE, colours.WORSE, colours.BETTER, colours.QUIET):
        bright, dark = sorted((luminance(colour), luminance(background)), reverse=True)
        assert (bright + 0.05) / (dark + 0.05) > 2, colour
