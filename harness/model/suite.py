"""How a benchmark module says what is swept: one :class:`Question` with workloads per named suite.

A question is asked of every backend of its operation. Everything here is data; nothing imports torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .canonical import Scalar, label
from .params import PARAMETERS, SEQ_LEN
from .records import Case, Workload

#: Named suites, smallest first. ``full`` is the union of all of them.
SUITES = ("smoke", "boundary", "nightly", "weekly", "incidents", "full")

#: The variable that chooses the suite when asv imports the benchmarks: a name or a workload file.
SUITE_VARIABLE = "ATTNWATCH_SUITE"
DEFAULT_SUITE = "smoke"


@dataclass(frozen=True)
class Question:
    """One question to the kernels: the workloads of an operation per suite, asked of ``backends``.

    ``version`` changes only when the work itself changes, since a changed version starts new series.
    """

    name: str
    operation: str
    suites: dict[str, tuple[Workload, ...]]
    backends: tuple[str, ...]
    version: str = "1"
    timeout_s: float = 60.0
    text: str = ""

    def workloads(self, suite: str) -> tuple[Workload, ...]:
        """Workloads of a suite in order, without repeats; ``full`` is the union."""
        names = self.suites if suite == "full" else [suite]
        seen = {w.label: w for n in reversed(list(names)) for w in self.suites.get(n, ())}
        order = dict.fromkeys(w.label for n in names for w in self.suites.get(n, ()))
        return tuple(seen[x] for x in order)

    def cases(self, suite: str) -> list[Case]:
        """Workloads x backends, the backends of one workload next to each other."""
        return [self.case(w, b) for w in self.workloads(suite) for b in self.backends]

    def case(self, workload: Workload, backend: str) -> Case:
        """The case of one workload on one backend."""
        return Case(self.name, workload, backend, self.version)

    def benchmark(self, suite: str, name: str = "attn_latency") -> Callable[..., None]:
        """The asv benchmark of this question on ``suite``: parameters are the workload's label and the backend.

        asv knows it by its module and ``name``, so two of one module need names of their own.
        """
        workloads = self.workloads(suite)

        def attn_latency(workload: str, backend: str) -> None:
            """Measured by the worker; see the benchmark type."""

        fn: Any = attn_latency
        fn.__name__ = name
        fn.params = [[w.label for w in workloads], list(self.backends)]
        fn.param_names = ["workload", "backend"]
        fn.version = self.version
        # The worker enforces the case's own limit; asv's stands behind it and covers a worker's start.
        fn.timeout = self.timeout_s * 2 + 180
        fn.question = self
        fn.pretty_name = f"{self.name}: latency"
        return attn_latency


def grid(operation: str, *, weight: float = 1.0, **axes: Scalar | Sequence[Scalar]) -> tuple[Workload, ...]:
    """Workloads over the product of ``axes``; a scalar is a single value.

    ``seq_len`` stands for q_len == kv_len. Unset axes take the defaults: batch 1, heads_q 8, heads_kv = heads_q,
    head_dim 64, float32, not causal, forward.
    """
    return tuple(Workload(operation, _complete(given), weight) for given in _product(axes))


def bare_grid(operation: str, *, weight: float = 1.0, **axes: Scalar | Sequence[Scalar]) -> tuple[Workload, ...]:
    """Workloads over the product of ``axes`` with nothing filled in, for operations that are no attention."""
    return tuple(Workload(operation, given, weight) for given in _product(axes))


def _product(axes: Mapping[str, Scalar | Sequence[Scalar]]) -> Iterator[dict[str, Scalar]]:
    lists = {k: v if isinstance(v, list | tuple) else (v,) for k, v in axes.items()}
    for values in itertools.product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


def ragged(operation: str, pairs: Iterable[tuple[int, int]], **fixed: Scalar) -> Workload:
    """One ragged batch from (q_len, kv_len) per sequence; the lengths are kept in order as text."""
    pairs = list(pairs)
    lens: dict[str, Scalar] = {
        "q_lens": ",".join(str(q) for q, _ in pairs),
        "kv_lens": ",".join(str(k) for _, k in pairs),
    }
    return Workload(operation, _complete({**fixed, **lens}))


def _lengths(text: Scalar) -> list[int]:
    """Lengths of a ragged batch; empty where the text holds none (which the check of parameters tells)."""
    parts = text.split(",") if isinstance(text, str) else []
    return [int(p) for p in parts] if all(p.strip().isdigit() and len(p) < 19 for p in parts) else []


def _complete(given: dict[str, Scalar]) -> dict[str, Scalar]:
    seq = given.pop(SEQ_LEN, None)
    if seq is not None:
        given.setdefault("q_len", seq)
        given.setdefault("kv_len", seq)
    for longest in ("q_len", "kv_len"):
        lens = _lengths(given.get(f"{longest}s"))
        if lens:
            given.setdefault("batch", len(lens))
            given.setdefault(longest, max(lens))
    given.setdefault("batch", 1)
    given.setdefault("heads_q", 8)
    given.setdefault("heads_kv", given["heads_q"])
    given.setdefault("head_dim", 64)
    given.setdefault("dtype", "float32")
    given.setdefault("causal", False)
    given.setdefault("direction", "fwd")
    missing = {"q_len", "kv_len"} - set(given)
    if missing:
        raise ValueError(f"a workload needs {' and '.join(sorted(missing))}; given {label(given)}")
    known = {k: given[k] for k in PARAMETERS if k in given}
    return {**known, **{k: v for k, v in given.items() if k not in known}}


def with_backends(cases: Iterable[Case], backends: Sequence[str]) -> list[Case]:
    """Each workload of ``cases`` once, asked of ``backends`` instead."""
    first: dict[tuple[str, str], Case] = {}
    for c in cases:
        first.setdefault((c.benchmark, c.workload.label), c)
    return [replace(c, backend=b) for c in first.values() for b in backends]
