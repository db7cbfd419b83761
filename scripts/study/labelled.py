"""Labelled series and the scores that are customary for them.

The data are not part of the project. ``study_folder`` finds them beside the repository or where
``ATTNWATCH_STUDY_DATA`` points, and everything that needs them is left out where they are absent.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

#: A mark within so many points of a detection counts as the same change.
MARGIN = 5


@dataclass(frozen=True)
class Labelled:
    """One series with the marks of each annotator: first points of new segments, 0-based."""

    name: str
    y: Array
    marks: Mapping[str, tuple[int, ...]]

    @property
    def unchanged(self) -> bool:
        """All annotators call it unchanged."""
        return not any(self.marks.values())


def study_folder() -> Path | None:
    """Folder of the labelled data, or None."""
    given = os.environ.get("ATTNWATCH_STUDY_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[3] / "shared" / "data"
    return folder if (folder / "sap_annotated_dev.jsonl.gz").is_file() else None


def load(folder: Path, name: str, annotators: int = 0) -> list[Labelled]:
    """Series of ``name.jsonl.gz`` with at least ``annotators`` of them; None in the values becomes NaN."""
    out = []
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            marks = {k: tuple(sorted(v)) for k, v in (row["ann"] or {}).items()}
            if len(marks) >= annotators:
                y = np.array([np.nan if v is None else v for v in row["y"]], dtype=float)
                out.append(Labelled(row["name"], y, marks))
    return out


def matched(marks: Iterable[int], found: Iterable[int], margin: int = MARGIN) -> int:
    """How many marks have a detection of their own within the margin."""
    left = set(found)
    count = 0
    for mark in sorted(marks):
        near = min(left, key=lambda x: (abs(x - mark), x), default=None)
        if near is not None and abs(near - mark) <= margin:
            left.remove(near)
            count += 1
    return count


def f1(series: Labelled, found: Sequence[int], margin: int = MARGIN) -> float:
    """F1 with precision over the union of annotators and recall averaged over them; index 0 counts as marked."""
    ours = {0, *found}
    precision = matched({0}.union(*series.marks.values()), ours, margin) / len(ours)
    recalls = [matched({0, *m}, ours, margin) / len({0, *m}) for m in series.marks.values()]
    recall = float(np.mean(recalls))
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def cover(series: Labelled, found: Sequence[int]) -> float:
    """Covering: Jaccard overlap of each marked segment with the best found one, weighted by length."""
    n = len(series.y)
    ours = _segments(found, n)
    scores = []
    for marks in series.marks.values():
        total = 0.0
        for a, b in _segments(marks, n):
            total += (b - a) * max(max(0, min(b, d) - max(a, c)) / (max(b, d) - min(a, c)) for c, d in ours)
        scores.append(total / n)
    return float(np.mean(scores))


def _segments(marks: Iterable[int], n: int) -> list[tuple[int, int]]:
    edges = sorted({0, n, *(m for m in marks if 0 < m < n)})
    return list(itertools.pairwise(edges))


def consensus(series: Labelled, margin: int = MARGIN, least: int = 3) -> list[int]:
    """Changes that at least ``least`` annotators marked within ``margin`` of each other: the median of their marks."""
    marks = sorted((m, who) for who, ms in series.marks.items() for m in ms)
    out: list[int] = []
    i = 0
    while i < len(marks):
        j = i
        while j < len(marks) and marks[j][0] - marks[i][0] <= margin:
            j += 1
        if len({who for _, who in marks[i:j]}) >= least:
            out.append(int(np.median([m for m, _ in marks[i:j]])))
            i = j
        else:
            i += 1
    return out


def unsupported(series: Labelled, found: Sequence[int], margin: int = MARGIN) -> int:
    """Detections that nobody marked."""
    every = np.array(sorted({m for ms in series.marks.values() for m in ms}), dtype=float)
    return sum(1 for x in found if not every.size or np.abs(every - x).min() > margin)


@dataclass(frozen=True)
class Score:
    """Figures over a set of series. ``per_series`` holds F1, cover, consensus found, consensus there: [series, 4]."""

    f1: float
    cover: float
    recall: float
    unsupported: float
    false_alarms: float
    per_series: Array


def score(data: Sequence[Labelled], found: Sequence[Sequence[int]]) -> Score:
    """Score detections; rates are per 1000 points, false alarms over the series that all call unchanged."""
    rows = np.zeros((len(data), 4))
    for i, (series, ours) in enumerate(zip(data, found, strict=True)):
        agreed = consensus(series)
        rows[i] = f1(series, ours), cover(series, ours), matched(agreed, ours), len(agreed)
    points = sum(len(s.y) for s in data)
    quiet = [(s, f) for s, f in zip(data, found, strict=True) if s.unchanged]
    quiet_points = sum(len(s.y) for s, _ in quiet)
    return Score(
        float(rows[:, 0].mean()),
        float(rows[:, 1].mean()),
        float(rows[:, 2].sum() / max(rows[:, 3].sum(), 1)),
        1000 * sum(unsupported(s, f) for s, f in zip(data, found, strict=True)) / max(points, 1),
        1000 * sum(len(f) for _, f in quiet) / max(quiet_points, 1),
        rows,
    )
