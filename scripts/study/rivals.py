"""Other people's detectors on the same series: asv's steps, the rule of Mozilla's perfherder, apache-otava.

otava pins numpy and pulls in cloud clients, so it lives in an environment of its own under the user's cache and is
asked through a pipe.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

OTAVA = "apache-otava==0.8.0"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "attnwatch" / "detection-rivals"
_ASK_OTAVA = """
import json, sys, time
from otava.analysis import compute_change_points
options, series = json.load(sys.stdin)
began = time.process_time()
found = [[int(c.index) for c in compute_change_points(y, **options)[0]] if len(y) > 2 else [] for y in series]
json.dump([found, time.process_time() - began], sys.stdout)
"""


@dataclass(frozen=True)
class Answer:
    """Change points of each series and the processor seconds that finding them took, without start-up."""

    found: list[list[int]]
    seconds: float


Rival = Callable[[Sequence[Array]], Answer]


def timed(one: Callable[[Array], list[int]]) -> Rival:
    """A detector of one series as one of many."""

    def many(series: Sequence[Array]) -> Answer:
        began = time.process_time()
        found = [one(y[np.isfinite(y)]) for y in series]
        return Answer(found, time.process_time() - began)

    return many


def asv_steps(y: Array) -> list[int]:
    """Beginnings of asv's steps, all but the first."""
    from asv import step_detect

    return [int(left) for left, *_ in step_detect.detect_steps(list(y))[1:]] if len(y) > 2 else []


def perfherder(y: Array, threshold: float = 7.0, least: float = 0.02, window: int = 12) -> list[int]:
    """Weighted t between the ``window`` points before and after each; local maxima above ``threshold``, where the
    means differ by the share ``least``."""
    n = len(y)
    weight = np.arange(window, 0, -1) / window
    t = np.zeros(n)
    for i in range(window, n - window + 1):
        a, b = y[i - window : i][::-1], y[i : i + window]
        means = [float(np.average(v, weights=weight)) for v in (a, b)]
        spread = [float(np.average((v - m) ** 2, weights=weight)) for v, m in zip((a, b), means, strict=True)]
        size = weight.sum() ** 2 / (weight**2).sum()
        error = np.sqrt((spread[0] + spread[1]) / max(size - 1, 1))
        relevant = abs(means[1] - means[0]) >= least * abs(means[0])
        t[i] = abs(means[1] - means[0]) / max(error, 1e-12) if relevant else 0.0
    return [
        i for i in range(n) if t[i] > threshold and t[i] == t[max(0, i - window) : i + window + 1].max()
        and (i == 0 or t[i] > t[i - 1])
    ]  # fmt: skip


def otava(max_pvalue: float) -> Rival | None:
    """otava at a significance level, or None, with a message, where its environment cannot be made."""
    python = _CACHE / "bin" / "python"
    if not python.is_file():
        print(f"making an environment for {OTAVA} in {_CACHE}", file=sys.stderr)
        try:
            subprocess.run([sys.executable, "-m", "venv", str(_CACHE)], check=True, capture_output=True)
            pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", OTAVA]
            subprocess.run(pip, check=True, capture_output=True, timeout=600)
        except (subprocess.SubprocessError, OSError) as err:
            print(f"otava is left out: its environment cannot be made ({type(err).__name__})", file=sys.stderr)
            python.unlink(missing_ok=True)
            return None

    def many(series: Sequence[Array]) -> Answer:
        clean = [y[np.isfinite(y)].tolist() for y in series]
        asked = json.dumps([{"max_pvalue": max_pvalue}, clean])
        done = subprocess.run([str(python), "-c", _ASK_OTAVA], input=asked, capture_output=True, text=True, check=True)
        found, seconds = json.loads(done.stdout)
        return Answer(found, seconds)

    return many


def all_rivals() -> dict[str, Rival]:
    """Name -> detector, those that can be had here."""
    rivals: dict[str, Rival] = {"asv steps": timed(asv_steps), "perfherder t>7, 2 %": timed(perfherder)}
    rivals["perfherder t>5"] = timed(lambda y: perfherder(y, 5.0, 0.0))
    for p in (1e-3, 1e-6):
        found = otava(p)
        if found is None:
            break
        rivals["otava default" if p == 1e-3 else "otava p 1e-6"] = found
    return rivals
