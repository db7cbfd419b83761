"""Records by hand, as compiling gives them, and stores that hold them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from db.engine import Store
from harness.model import Revision
from harness.model.findings import NightReport
from harness.policy import NO_POLICY
from harness.static import StaticRecord
from harness.static_sweep import Compiled, StaticOptions, store_and_judge

NOW = 1.7e9


def record(**changes: Any) -> StaticRecord:
    """A variant on sm_90."""
    base = StaticRecord(
        "attend", "attend d128", "sm_90", {"num_warps": 8}, 200, 0, 0, 1000, 0, 8, 1, 0.125, "registers",
        {"hgmma": 32, "ldgsts_128": 16, "ldg_32": 1, "total": 900}, "3.7.1", "12.9", bank_conflict_ways=1,
    )  # fmt: skip
    return replace(base, **changes)


def grid(target: str = "sm_90", **changes: Any) -> list[StaticRecord]:
    """Forty-eight problems on one target."""
    made = itertools.product((64, 80, 128, 192), ("float16", "bfloat16"), (True, False), (8, 16, 32))
    return [
        record(
            configuration=f"attend d{d} {dtype} {causal} {heads}", target=target,
            problem={
                "backend": "segmented_triton", "operation": "attention", "heads_q": heads, "heads_kv": 8,
                "head_dim": d, "dtype": dtype, "causal": causal,
            },
            **changes,
        )
        for d, dtype, causal, heads in made
    ]  # fmt: skip


def where(records: Iterable[StaticRecord], head_dim: int, **changes: Any) -> list[StaticRecord]:
    """The same, those of one head size changed."""
    return [replace(r, **changes) if r.problem["head_dim"] == head_dim else r for r in records]


def night(store: Store, repo: Path, day: int, *targets: list[StaticRecord], grid: str = "pull_request") -> NightReport:
    """Store and judge the records of a day."""
    revision = Revision(f"{day:040x}", f"{day:040x}", subject=f"day {day}", kernels_hash=f"h{day}")
    compiled = Compiled(revision, repo, NOW + 86400.0 * day, list(targets))
    return store_and_judge(store, compiled, StaticOptions(repo, grid=grid), NO_POLICY)


def check_shipped(r: StaticRecord) -> None:
    """What every variant that ships must be: it fits, spills nothing, and uses the strongest instructions there are."""
    where = f"{r.configuration} on {r.target}: {r.options}"
    assert r.error == "" and r.spill_bytes == 0 and r.blocks_per_sm >= 1, where
    if r.kernel in ("attend", "backward_kv", "backward_q"):
        # A tile of fewer rows than a warp group's (decode) has only the warp's own matrix instructions.
        low = r.kernel == "attend" and int(r.options["block_m"]) < 64
        assert r.matrix_level == (1 if low else {"sm_80": 1, "sm_90": 2, "sm_100": 3}[r.target]), where
    assert r.count("ldg_128", "ldgsts_128", "utmaldg") > 0, where
