"""What only a GPU can tell, in one go of at most eight minutes; see gpu_check.sh.

A run cut off leaves its part in OUT, and one begun anew there does only what is missing: ``state.json`` (per stage),
``bundle.jsonl`` (for ``attnwatch ingest``), ``summary.txt`` and ``summary.json``. ``--dry-run`` times nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.model.suite import grid, ragged
from harness.model.workloads import write_suite
from kernels.registry import ORACLES, all_backends, resolve

BUDGET_S = 470.0
LENGTHS = (1024, 2048, 4096, 8192, 16384)
TOKENS, HIDDEN = 16384, 2048


class Check:
    """One run: the device, where results go, and how much time is left."""

    def __init__(self, out: Path, dry: bool, budget: float) -> None:
        self.out, self.dry, self.end = out, dry, time.monotonic() + budget
        out.mkdir(parents=True, exist_ok=True)
        self.device = "cpu" if dry else "cuda:0"
        self._path = out / ("state-dry.json" if dry else "state.json")
        self.state: dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def left(self) -> float:
        return self.end - time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{self.left():5.0f} s left] {text}", flush=True)

    def stage(self, name: str, work: Callable[[Check], Any], least: float) -> None:
        """Run ``work`` unless it is done or ``least`` seconds are not left; what it raises is its result."""
        if "result" in self.state.get(name, {}):
            return self.say(f"{name}: done before")
        if self.left() < least:
            return self.say(f"{name}: left out, needs {least:.0f} s")
        self.say(f"{name} ...")
        begin = time.monotonic()
        try:
            entry: dict[str, Any] = {"result": work(self)}
        except Exception as error:
            entry = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}
        entry["seconds"] = round(time.monotonic() - begin, 1)
        self.state[name] = entry
        self._path.write_text(json.dumps(self.state, indent=1))
        return self.say(f"{name}: {entry.get('error') or 'done'} ({entry['seconds']} s)")

    def sampler(self) -> Callable[[Callable[[], Any], int, bool], list[float]]:
        """(call, samples, cold) -> seconds, by the ruler's own clock; throttled and late samples are taken again."""
        from harness.measuring.timing.clock import Account
        from harness.measuring.timing.cuda import CudaClock

        clock = CudaClock(self.device)

        def sample(call: Callable[[], Any], count: int, cold: bool = True) -> list[float]:
            clock.start_case()
            found: list[float] = []
            for _ in range(5 * count + 20):
                seconds, why = clock.sample(call, Account(), cold=cold)
                if not why:
                    found.append(seconds)
                if len(found) == count:
                    return found
            raise RuntimeError(f"only {len(found)} of {count} samples counted: throttled or launch-bound")

        return sample


def environment(c: Check) -> Any:
    """Device, driver, versions, backends."""
    import triton

    usable = {n: b.availability(c.device) for n, b in all_backends().items()}
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
        "backends": {n: a.version or "usable" if a.usable else f"no: {a.reason}" for n, a in usable.items()},
    }
    if not c.dry:
        p = torch.cuda.get_device_properties(0)
        found |= {"device": p.name, "sms": p.multi_processor_count, "memory_bytes": p.total_memory, "uuid": str(p.uuid)}
        found["driver"] = driver()
    return found


def driver() -> str:
    """Version of the driver, or why it is not known."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception as error:
        return f"unknown ({type(error).__name__})"


def correctness(c: Check) -> Any:
    """Every usable backend over the boundary grid: max|out - exact| <= 2 max|low - exact| + one rounding."""
    from harness.measuring.operations import operation_of

    small = c.dry
    dims = (64,) if small else (64, 80, 96, 128, 160, 192, 256)
    lengths = ((33, 41),) if small else ((1, 129), (127, 127), (129, 257), (321, 200), (4, 1025))
    loads = []
    for d in dims:
        for q_len, kv_len in lengths:
            for extra in ({}, {"causal": True}, {"causal": True, "window": 65}, {"causal": True, "softcap": 20.0}):
                loads += grid("attention", q_len=q_len, kv_len=kv_len, head_dim=d, heads_q=6, heads_kv=2,
                              dtype="bfloat16", **extra)  # fmt: skip
        for page in (16,) if small else (1, 16, 64, 256):
            loads.append(ragged("paged_attention", [(1, 300), (7, 129), (130, 130), (1, 1)], heads_q=8, heads_kv=2,
                                head_dim=d, page_size=page, causal=True, dtype="bfloat16"))  # fmt: skip
        loads.append(ragged("varlen_attention", [(130, 130), (1, 300), (0, 0), (64, 129)], heads_q=6, heads_kv=2,
                            head_dim=d, causal=True, dtype="bfloat16"))  # fmt: skip
        if not small:
            loads += grid("attention", seq_len=[129, 256], head_dim=d, dtype="bfloat16", causal=True, direction="bwd")
    tried: dict[str, dict[str, Any]] = {}
    until = time.monotonic() + min(100.0, c.left() * 0.3)
    done = 0
    for load in loads:
        if time.monotonic() > until:
            break
        done += 1
        for name, backend in all_backends().items():
            counts = tried.setdefault(name, {"right": 0, "wrong": [], "failed": [], "unsupported": 0})
            if name == "flex" and done % 12 != 1:
                continue  # it is compiled anew for most problems, which would take the time of all others
            if backend.unsupported(load.operation, load.params, c.device) or not backend.availability(c.device).usable:
                counts["unsupported"] += 1
                continue
            try:
                inputs = operation_of(load).make(load.params, 0, c.device)
                worst = judge(load, inputs, backend.load(load.operation))
                counts["right"] += worst <= 1
                if worst > 1:
                    counts["wrong"].append(f"{load.label}: {worst:.2f} of what is allowed")
            except Exception as error:
                counts["failed"].append(f"{load.label}: {type(error).__name__}: {str(error)[:120]}")
    return {"workloads": f"{done} of {len(loads)}", "backends": tried}


def judge(load: Any, inputs: Any, function: Callable[..., Any]) -> float:
    """Worst error over what is allowed, over the output or over the gradients."""
    oracle = resolve(ORACLES[load.operation])
    backward = load.params.get("direction") == "bwd"
    tensors = [t.detach().requires_grad_(backward) for t in inputs.tensors.values()]
    dtype = tensors[0].dtype

    def results(call: Callable[..., Any], **more: Any) -> list[torch.Tensor]:
        out = call(*tensors, **inputs.options, **more)
        if not backward:
            return [out]
        seed = torch.Generator(device=out.device).manual_seed(1)
        grad = torch.randn(out.shape, generator=seed, device=out.device).to(out.dtype)
        return list(torch.autograd.grad(out, tensors, grad))

    worst = 0.0
    for got, exact, low in zip(results(function), results(oracle), results(oracle, dtype=dtype), strict=True):
        if not exact.numel():
            continue
        error = (got.double() - exact.double()).abs().max().item()
        slack = max(1.0, exact.abs().max().item()) * torch.finfo(dtype).eps * (2 if backward else 0.5)
        allowed = (3 if backward else 2) * (low.double() - exact.double()).abs().max().item() + slack + 1e-5
        worst = max(worst, math.inf if math.isnan(error) else error / allowed)
    return worst


def ceilings(c: Check) -> Any:
    """Copy bandwidth and bf16 matrix rate of this device: the two roofs of the roofline."""
    sample = c.sampler()
    source = torch.empty(1 << 30, dtype=torch.uint8, device=c.device)
    target = torch.empty_like(source)
    copy = 2 * source.numel() / statistics.median(sample(lambda: target.copy_(source), 20, True))
    x, y = (torch.randn(8192, 8192, device=c.device).bfloat16() for _ in range(2))
    return {
        "copy_bytes_per_s": copy,
        "matmul_flop_per_s": 2 * 8192**3 / statistics.median(sample(lambda: x @ y, 20, True)),
    }


def table(c: Check) -> Any:
    """Prefill at D 64 and 128, 1k to 16k, and paged decode to 32k, into the bundle by ``harness.measure``."""
    loads = []
    for length in LENGTHS:
        for d in (64, 128):
            loads += grid("attention", seq_len=length, head_dim=d, heads_q=HIDDEN // d, heads_kv=HIDDEN // d,
                          batch=TOKENS // length, dtype="bfloat16", causal=[False, True])  # fmt: skip
    for kv in (1024, 4096, 16384, 32768):
        for batch in (1, 16):
            loads.append(ragged("paged_attention", [(1, kv)] * batch, heads_q=32, heads_kv=8, head_dim=128,
                                page_size=16, causal=True, dtype="bfloat16"))  # fmt: skip
    suite = c.out / "gpu.suite.json"
    write_suite(suite, loads, "gpu")
    command = [sys.executable, "-m", "harness.measure", "--suite", str(suite), "--device", c.device]
    command += ["--where", "backend not in ('segmented', 'paged')"]  # our eager versions are there for CPUs
    if c.dry:
        done = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=False)
        return {"workloads": len(loads), "dry_run": (done.stdout + done.stderr).strip()[-300:]}
    limit = max(30.0, c.left() - 20)
    command += ["--out", str(c.out / "bundle.jsonl"), "--max-seconds", "0.25", "--budget", f"{limit:.0f}s"]
    code = subprocess.run(command, check=False).returncode
    return {"workloads": len(loads), "exit_code": code, "rows": rows(c.out / "bundle.jsonl", c.state)}


def rows(bundle: Path, state: dict[str, Any]) -> list[dict[str, Any]]:
    """Latency of every measured case beside the roof that the device's own ceilings give."""
    roofs = state.get("ceilings", {}).get("result") or {}
    found = []
    for line in bundle.read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        if data.get("kind") != "measurement":
            continue
        case = data["case"]
        p = case["workload"]["params"]
        latency = (data.get("metrics") or {}).get("latency_s")
        seconds = latency.get("value") if isinstance(latency, dict) else latency
        row = {"backend": case["backend"], "status": data["status"], "latency_s": seconds, **p}
        if seconds and roofs:
            pairs, heads, d = _pairs(p), p["heads_q"], p["head_dim"]
            row["flop_per_s"] = 4 * pairs * heads * d / seconds
            row["bytes_per_s"] = _bytes(p) / seconds
            row["share_of_roof"] = max(
                row["flop_per_s"] / roofs["matmul_flop_per_s"], row["bytes_per_s"] / roofs["copy_bytes_per_s"]
            )
        found.append(row)
    return found


def _lens(p: dict[str, Any]) -> list[tuple[int, int]]:
    if p.get("q_lens"):
        return [(int(q), int(k)) for q, k in zip(p["q_lens"].split(","), p["kv_lens"].split(","), strict=True)]
    return [(p["q_len"], p["kv_len"])] * p["batch"]


def _pairs(p: dict[str, Any]) -> int:
    """Unmasked (query, key) pairs; causal is bottom-right."""
    causal = bool(p.get("causal"))
    return sum(sum(max(0, k - q + i + 1) for i in range(q)) if causal else q * k for q, k in _lens(p))


def _bytes(p: dict[str, Any]) -> int:
    return sum(2 * p["head_dim"] * (2 * q * p["heads_q"] + 2 * k * p["heads_kv"]) for q, k in _lens(p))


def pairs(c: Check) -> Any:
    """A/A: how often two identical sides are told apart. Injected: a slow tail that must be found and named."""
    from kernels.segmented import triton_attention as ours

    sample = c.sampler()
    cycles = 12_000
    problems = {
        n: tuple(torch.randn(4, 16, n, 128, device=c.device).bfloat16() for _ in range(3))
        for n in (1024, 1025, 1100, 1152, 1280, 1344, 1472, 2048, 2049, 2176)
    }

    def plain(x: Any) -> Any:
        return ours.attention(*x, causal=True)

    def tail(x: Any) -> Any:
        out = ours.attention(*x, causal=True)
        if x[1].shape[2] % 128:
            torch.cuda._sleep(cycles)
        return out

    verdicts = {"aa": {}, "injected": {}}  # type: dict[str, dict[int, Any]]
    for n, x in problems.items():
        for name, head in (("aa", plain), ("injected", tail)):
            base_s, head_s = [], []
            for _ in range(24):  # interleaved, so that drift of the clock falls on both sides
                base_s += sample(lambda x=x: plain(x), 1, True)
                head_s += sample(lambda x=x, head=head: head(x), 1, True)
            verdicts[name][n] = _slower(base_s, head_s)
    slow = [n for n, v in verdicts["injected"].items() if v["slower"]]
    named = [m for m in (2, 4, 8, 16, 32, 64, 128, 256) if {n for n in problems if n % m} == set(slow)]
    return {
        "false_verdicts": sum(v["different"] for v in verdicts["aa"].values()),
        "aa_cases": len(problems),
        "injected_found": slow,
        "injected_expected": [n for n in problems if n % 128],
        "named": [f"kv_len % {m} != 0" for m in named],
        "verdicts": verdicts,
    }


def _slower(base: list[float], head: list[float]) -> dict[str, Any]:
    """Sign test over pairs at 1 in 1000, and a difference of at least 2 %."""
    wins = sum(h > b for b, h in zip(base, head, strict=True))
    n, ratio = len(base), statistics.median(h / b for b, h in zip(base, head, strict=True))
    extreme = max(wins, n - wins)
    p = min(1.0, 2 * sum(math.comb(n, k) for k in range(extreme, n + 1)) / 2**n)
    different = p <= 1e-3 and abs(math.log(ratio)) >= math.log(1.02)
    return {"ratio": ratio, "p": p, "different": different, "slower": different and ratio > 1}


def timer(c: Check) -> Any:
    """Our hot timing against replays of a CUDA graph of the same kernel; they must agree within 2 %."""
    from kernels.segmented import triton_attention as ours

    sample = c.sampler()
    found = {}
    for n in (1024, 4096):
        x = tuple(torch.randn(4, 16, n, 128, device=c.device).bfloat16() for _ in range(3))
        ours.attention(*x, causal=True)
        by_clock = statistics.median(sample(lambda x=x: ours.attention(*x, causal=True), 30, False))
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(20):
                ours.attention(*x, causal=True)
        times = []
        for _ in range(8):
            a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            a.record()
            graph.replay()
            b.record()
            b.synchronize()
            times.append(a.elapsed_time(b) * 1e-3 / 20)
        by_graph = statistics.median(times)
        found[n] = {"clock_s": by_clock, "graph_s": by_graph, "ratio": by_clock / by_graph}
    return {"agree": all(abs(v["ratio"] - 1) <= 0.02 for v in found.values()), "by_length": found}


def summary(c: Check) -> str:
    """The text that a person reads; everything else is in summary.json."""
    s = {name: entry.get("result") or {"error": entry.get("error")} for name, entry in c.state.items()}
    head = "DRY RUN ON A CPU: nothing was measured." if c.dry else "GPU check"
    lines = [head, json.dumps({k: v for k, v in s.get("environment", {}).items() if k != "backends"})]
    for name, found in (s.get("correctness", {}).get("backends") or {}).items():
        if found["right"] or found["wrong"] or found["failed"]:
            lines.append(f"{name:<18} right {found['right']} wrong {len(found['wrong'])} failed {len(found['failed'])}")
            lines += [f"    {text}" for text in (found["wrong"] + found["failed"])[:5]]
    if s.get("ceilings", {}).get("copy_bytes_per_s"):
        r = s["ceilings"]
        lines.append(
            f"copy {r['copy_bytes_per_s'] / 1e12:.2f} TB/s, matmul {r['matmul_flop_per_s'] / 1e12:.0f} TFLOP/s"
        )
    for r in s.get("table", {}).get("rows") or []:
        if r.get("share_of_roof"):
            lines.append(
                f"{r['backend']:<18} q {r['q_len']:>5} kv {r['kv_len']:>5} d {r['head_dim']} b {r['batch']:>2} "
                f"causal {int(bool(r.get('causal')))} {r['latency_s'] * 1e6:9.1f} us "
                f"{r['flop_per_s'] / 1e12:6.1f} TFLOP/s "
                f"{r['bytes_per_s'] / 1e12:5.2f} TB/s roof {r['share_of_roof']:.0%}"
            )
        elif r["status"] not in ("unsupported", "skipped"):
            lines.append(f"{r['backend']:<18} q {r['q_len']:>5} kv {r['kv_len']:>5} d {r['head_dim']}: {r['status']}")
    for name in ("pairs", "timer"):
        if name in s:
            lines.append(f"{name}: {json.dumps({k: v for k, v in s[name].items() if k != 'verdicts'})}")
    lines += [f"{n}: FAILED {e['error']}" for n, e in c.state.items() if "error" in e]
    return "\n".join(lines) + "\n"


def main() -> int:
    """0 where every stage ended and nothing was wrong, else 1; 3 where there is no GPU."""
    parser = argparse.ArgumentParser(prog="scripts/gpu_check.sh", description=__doc__)
    parser.add_argument("out", nargs="?", default="gpu-check", type=Path, help="folder of results")
    parser.add_argument("--dry-run", action="store_true", help="walk through on a CPU; nothing is timed")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds in all")
    options = parser.parse_args()
    if not options.dry_run and not torch.cuda.is_available():
        print("gpu_check: torch sees no CUDA device; --dry-run walks through without one", file=sys.stderr)
        return 3
    c = Check(options.out, options.dry_run, options.budget)
    c.stage("environment", environment, 0)
    c.stage("correctness", correctness, 10)
    for name, work, least in (("ceilings", ceilings, 10), ("timer", timer, 15), ("pairs", pairs, 40)):
        if not c.dry:
            c.stage(name, work, least)
    c.stage("table", table, 40)
    if not c.dry:
        c.stage("choices", lambda _: resolve("kernels.triton_support.choices:made")(), 0)
    text = summary(c)
    for suffix, content in (("txt", text), ("json", json.dumps(c.state, indent=1))):
        (c.out / f"summary{'-dry' * c.dry}.{suffix}").write_text(content, encoding="utf-8")
    print(text)
    backends = (c.state.get("correctness", {}).get("result") or {}).get("backends", {})
    return int(any(b["wrong"] for b in backends.values()) or any("error" in e for e in c.state.values()))


if __name__ == "__main__":
    sys.exit(main())
