"""Reports as the commands print them, small and large."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

HOSTILE = (
    "@octocat", "#123", "[click](https://evil.example)", "a|b\\|c", "`tick``s`", "<script>alert(1)</script>",
    "<!-- attnwatch:comment clean -->", "</details>", "\u202egnp.exe", "line\nbreak\r\n# heading", "$x^2$", ":tada:",
    "https://evil.example/?q=1", "user@evil.example", "&lt;b&gt;", "![img](x)", "\x00\x1b[31m", "***", "~~~", "```\nx",
    "é漢字🚀", " lead and trail ", "",
)  # fmt: skip


def row(kv_len: int = 128, backend: str = "segmented", **figures: Any) -> Row:
    """One case of a comparison; what it shows is given by name."""
    plain = {
        "backend": backend, "operation": "attention", "benchmark": "decode", "batch": 1, "q_len": 1, "kv_len": kv_len,
        "head_dim": 64, "dtype": "float16", "causal": True, "base_status": "ok", "head_status": "ok",
        "verdict": "same", "ratio": 1.001, "ratio_low": 0.99, "ratio_high": 1.012, "p": 0.7,
        "smallest_detectable": 0.021, "detail": None, "lost_s": 0.0,
    }  # fmt: skip
    return {**plain, **figures}


def slower(kv_len: int, ratio: float = 1.2, **more: Any) -> Row:
    """A case that is slower on head."""
    interval = {"ratio_low": ratio * 0.98, "ratio_high": ratio * 1.02}
    return row(kv_len, verdict="slower", ratio=ratio, p=1e-6, lost_s=1e-5 * ratio, **{**interval, **more})


def failing(kv_len: int, base: str = "ok", head: str = "out_of_memory", **more: Any) -> Row:
    """A case without a verdict."""
    nothing = dict.fromkeys(("verdict", "ratio", "ratio_low", "ratio_high", "p", "smallest_detectable"))
    detail = more.pop("detail", "head: tried to allocate 2.00 GiB")
    return row(kv_len, **{**nothing, "base_status": base, "head_status": head, "detail": detail, **more})


def columns(case: Row) -> Row:
    """What `explain` is given of a case."""
    return {k: v for k, v in case.items() if k not in FIGURES}


FIGURES = frozenset(row()) - {
    "backend", "operation", "benchmark", "batch", "q_len", "kv_len", "head_dim", "dtype", "causal",
}  # fmt: skip


def trigger(text: str, inside: list[Row], total: int, effect: float | None = 1.2, **more: Any) -> Row:
    """A trigger that covers ``inside``."""
    n = len(inside)
    ends = None if effect is None else [effect * 0.99, effect * 1.01]
    return {
        "predicate": [], "text": text, "regressed_inside": n, "inside": n, "regressed_total": n, "total": total,
        "effect": effect, "effect_ci": ends, "combinations": [columns(c) for c in inside],
        "alternatives": ["q_len < 2 and kv_len % 128 != 0"], **more,
    }  # fmt: skip


def report(cases: list[Row], triggers: list[Row] | None = None, **more: Any) -> Row:
    """What `attnwatch compare --json` prints."""
    plain = {
        "base": "1111111111111111111111111111111111111111", "head": "2222222222222222222222222222222222222222",
        "cases": cases, "triggers": triggers or [], "unexplained": [], "gate": {"go": True, "reasons": []},
        "left_out": [], "adverse": 0,
    }  # fmt: skip
    return {**plain, **more}


ODD = "q_len == 1 and kv_len % 128 != 0"


def clean() -> Row:
    """Nothing changed."""
    return report([row(128 * k) for k in range(1, 13)])


def one_regression() -> Row:
    """One case is slower."""
    bad = slower(129)
    return report([bad, *(row(128 * k) for k in range(1, 13))], [trigger(ODD, [bad], 13)])


def forty_regressions() -> Row:
    """Forty cases share one trigger."""
    bad = [slower(128 * k + 1, 1.2 + k / 1000) for k in range(40)]
    return report([*bad, *(row(128 * k) for k in range(1, 41))], [trigger(ODD, bad, 80)])


def improvement() -> Row:
    """Some cases are faster and none is slower."""
    fast = [row(k, verdict="faster", ratio=0.8, ratio_low=0.78, ratio_high=0.82) for k in (256, 512, 1024)]
    return report([*fast, row(128), row(384)])


def ambiguous() -> Row:
    """Nothing can be said of any case."""
    wide = {"verdict": "ambiguous", "ratio": 1.05, "ratio_low": 0.9, "ratio_high": 1.21, "smallest_detectable": 0.16}
    return report([row(128 * k, **wide) for k in range(1, 5)])


def all_failed() -> Row:
    """Neither side ran."""
    why = "base: no kernel image is available; head: no kernel image is available"
    return report([failing(128 * k, "crashed", "crashed", detail=why) for k in range(1, 5)])


def out_of_memory() -> Row:
    """Large cases do not fit any more."""
    bad = [failing(k) for k in (65536, 131072)]
    cover = trigger("kv_len >= 65536", bad, 8, None)
    return report([*bad, *(row(128 * k) for k in range(1, 7))], [cover])


def five_thousand() -> Row:
    """A full sweep with many kinds of changes."""
    cases, triggers = [], []
    for b in range(10):
        bad = [slower(128 * k + 1, 1.1 + b / 50, backend=f"backend_{b}") for k in range(100)]
        good = [row(128 * k, f"backend_{b}") for k in range(400)]
        cases += [*bad, *good]
        triggers.append(trigger(f"backend == 'backend_{b}' and kv_len % 128 != 0", bad, 5000, 1.1 + b / 50))
    return report(cases, triggers)


def hostile() -> Row:
    """Names that want to be more than names."""
    bad = [slower(k + 1, 1.3, backend=name, dtype=name) for k, name in enumerate(HOSTILE)]
    covers = [
        trigger(f"backend == {name!r}", [case], len(bad), 1.3, alternatives=[name])
        for name, case in zip(HOSTILE, bad, strict=True)
    ]
    broken = [failing(9000 + k, detail=name) for k, name in enumerate(HOSTILE)]
    dead = [failing(9500 + k, "crashed", "crashed", detail=name) for k, name in enumerate(HOSTILE)]
    return report([*bad, *broken, *dead], covers, base=HOSTILE[2], head="\n".join(HOSTILE))


def night(metric: str, kind: str = "more", shadow: bool = False, state: str = "new") -> Row:
    """What `attnwatch nightly --json` prints of one incident about one metric."""
    workload = {"operation": "attention", "params": {"batch": 1, "q_len": 1, "kv_len": 129}, "weight": 1.0}
    finding = {
        "case": {"benchmark": "decode", "workload": workload, "backend": "segmented", "benchmark_version": "1"},
        "metric": metric, "kind": kind, "state": "confirmed", "how": "exact, the same again", "ratio": 1.5,
        "low": None, "high": None, "base_status": "ok", "head_status": "ok",
    }  # fmt: skip
    incident = {
        "id": "e94298c4", "title": f"segmented uses more ({metric})", "trigger": ODD, "findings": [finding],
        "state": state, "effect": 1.5, "effect_low": None, "effect_high": None, "tested": 12, "is_new": True,
        "evidence": "1 of 1 regressed inside, 0 of 11 outside", "alternatives": [], "shadow": shadow,
    }  # fmt: skip
    return {
        "run_id": "r2", "suite": "decode", "suite_given": "decode.suite.json", "incidents": [incident],
        "revision": {"id": "2" * 40, "commit": "2" * 40}, "base_revision": {"id": "1" * 40, "commit": "1" * 40},
        "counts": {"ok": 12}, "smallest_detectable": 0.03, "failures": [], "notes": [],
    }  # fmt: skip


GOLDEN = {
    "clean": clean, "one-regression": one_regression, "forty-regressions": forty_regressions,
    "improvement": improvement, "ambiguous": ambiguous, "all-failed": all_failed, "out-of-memory": out_of_memory,
    "static-only": lambda: night("registers"), "memory-only": lambda: night("peak_memory_bytes"),
    "five-thousand": five_thousand, "hostile": hostile,
}  # fmt: skip
