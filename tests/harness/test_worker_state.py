"""What a backend leaves changed in the worker's process is named, and no later case meets it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.model import Case, MeasureOptions, Status, Workload
from harness.worker import CaseError, WorkerClient, WorkerSpec

from .workers import QUICK, alive, case, client, eventually, private_runtime


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return private_runtime(tmp_path, monkeypatch)


# Each in a process of its own; the left side is what must be said, the flag whether timing is touched.
_MUTATIONS = {
    "torch.set_num_threads(1)": ("torch.get_num_threads()", True),
    "torch.set_default_dtype(torch.float64)": ("torch.get_default_dtype(): torch.float32 -> torch.float64", True),
    "torch.set_default_device('meta')": ("torch.get_default_device()", True),
    "torch.set_grad_enabled(False)": ("torch.is_grad_enabled(): True -> False", True),
    "torch.use_deterministic_algorithms(True)": ("torch.are_deterministic_algorithms_enabled()", True),
    "torch.set_float32_matmul_precision('high')": ("torch.get_float32_matmul_precision()", True),
    "torch.backends.cuda.matmul.allow_tf32 = True": ("torch.backends.cuda.matmul.fp32_precision", True),
    "torch.backends.cudnn.benchmark = True": ("torch.backends.cudnn.benchmark: False -> True", True),
    "torch.backends.cudnn.enabled = False": ("torch.backends.cudnn.enabled", True),
    "torch.backends.cudnn.deterministic = True": ("torch.backends.cudnn.deterministic", True),
    "torch.backends.cuda.enable_math_sdp(False)": ("torch.backends.cuda.math_sdp_enabled()", True),
    "torch.backends.cuda.enable_flash_sdp(False)": ("torch.backends.cuda.flash_sdp_enabled()", True),
    "torch._C._set_mkldnn_enabled(False)": ("torch.backends.mkldnn.enabled", True),
    "torch.autocast('cpu').__enter__()": ("torch.is_autocast_enabled('cpu')", True),
    "torch.nn.functional.softmax = len": ("torch.nn.functional.softmax was replaced", True),
    "os.environ['MKL_NUM_THREADS'] = '1'": ("variable MKL_NUM_THREADS: None -> '1'", True),
    "del os.environ['HOME']": ("variable HOME: removed", False),
    "time.sleep = time.monotonic = len": ("time.monotonic was replaced", True),
    "signal.setitimer(signal.ITIMER_REAL, 99)": ("timers: 'none' -> 'running'", True),
    "signal.alarm(99)": ("timers", True),
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)": ("handler of SIGTERM", False),
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])": ("mask SigBlk", False),
    "gc.disable()": ("garbage collector", True),
    "sys.setswitchinterval(1)": ("switch interval", True),
    "sys.setprofile(lambda *a: None)": ("tracing", True),
    "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})": ("processors", True),
    "os.nice(1)": ("priority", True),
    "os.chdir('/')": ("working folder", False),
    "os.umask(0)": ("umask", False),
    "os.close(0)": ("descriptor 0", False),
    "os.dup2(os.open(os.devnull, os.O_WRONLY), 2)": ("descriptor 2", False),
    "sys.stderr.close()": ("sys.stderr", False),
    "setattr(sys, 'stdout', open(os.devnull, 'w'))": ("sys.stdout", False),
    "sys.path.insert(0, '/nowhere')": ("sys.path: added before others: ['/nowhere']", False),
    "sys.path.clear()": ("sys.path: removed:", False),
    "sys.meta_path.reverse()": ("sys.meta_path", False),
    "sys.setrecursionlimit(500)": ("recursion limit: 1000 -> 500", False),
    "warnings.simplefilter('error')": ("warnings were made errors", False),
    "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))": ("RLIMIT_NOFILE", False),
    "faulthandler.disable()": ("faulthandler: True -> False", False),
    "threading.Thread(target=time.sleep, args=(9,), name='mine', daemon=True).start()": ("threads left running", False),
}  # fmt: skip

#: What libraries do all the time.
_HARMLESS = (
    "sys.path.append('/nowhere')", "sys.setrecursionlimit(5000)", "warnings.simplefilter('ignore')",
    "os.environ['TORCHINDUCTOR_CACHE_DIR'] = '/x'", "torch.manual_seed(3)", "import sqlite3", "time.extra = 1",
    "concurrent.futures.ThreadPoolExecutor(1).submit(len, ())", "subprocess.run(['true'])",
)  # fmt: skip

_ASK = """
import concurrent.futures, faulthandler, gc, json, os, resource, signal, subprocess, sys, threading, time, warnings
import torch
from harness.worker.state import changes, read_state
faulthandler.enable()
for text in json.loads(sys.argv[1]):
    read, write = os.pipe()
    if os.fork() == 0:
        before = read_state()
        exec(text)
        found = changes(before, read_state())
        os.write(write, json.dumps([text, [[c.text, c.timing, c.retire] for c in found]]).encode() + b"\\n")
        os._exit(0)
    os.close(write)
    with open(read) as answer:
        print(answer.read(), end="", flush=True)
    os.wait()
"""


@pytest.fixture(scope="module")
def told() -> dict[str, list[tuple[str, bool, bool]]]:
    """Changes found for each statement, run in processes forked from one that holds torch."""
    import json

    # Compiling in this process leaves the variable behind; to change one that is set is another matter.
    env = {k: v for k, v in os.environ.items() if not k.startswith("TORCHINDUCTOR_")} | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", _ASK, json.dumps([*_MUTATIONS, *_HARMLESS])],
        capture_output=True, text=True, check=True, env=env,
    )  # fmt: skip
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.slow
@pytest.mark.parametrize("statement", _MUTATIONS)
def test_a_change_is_named(told: dict[str, list[tuple[str, bool, bool]]], statement: str) -> None:
    words, timing = _MUTATIONS[statement]
    if statement.startswith("os.sched_setaffinity") and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one processor")
    found = [c for c in told[statement] if words in c[0]]
    assert found, told[statement]
    assert found[0][1] is timing
    assert found[0][2] is ("warnings" not in words), "everything but put-back filters costs the worker"


@pytest.mark.parametrize("statement", _HARMLESS)
def test_what_libraries_do_is_no_change(told: dict[str, list[tuple[str, bool, bool]]], statement: str) -> None:
    assert told[statement] == []


@pytest.mark.parametrize(
    ("what", "status", "words"),
    [
        ("folder", Status.OK, "working folder: '{runtime}' -> '/'"),
        ("umask", Status.OK, "umask: '0o22' -> '0o777'"),
        ("streams", Status.OK, "descriptor 1: .* -> 'closed'"),
        ("child", Status.OK, "processes left running: .*pid "),
        ("orphan", Status.OK, "processes left running: .*pid "),
        ("variable", Status.INVALID, "variable OMP_NUM_THREADS: .* -> '7'"),
        ("clock", Status.INVALID, "time.perf_counter was replaced"),
        ("alarm", Status.INVALID, "timers: 'none' -> 'running'"),
    ],
)
def test_the_next_case_gets_a_fresh_worker(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch, what: str, status: Status, words: str
) -> None:
    os.umask(0o022)
    with client(tmp_path) as c, WorkerClient.connect(c.spec) as other:
        before = c.measure(case(), QUICK)
        m = c.measure(case(f"state:{what}"), QUICK)
        told = str(m.telemetry["changed_state"])
        assert m.status is status and re.search(words.format(runtime=runtime), told), (m.status, told)
        if status is Status.INVALID:
            assert not m.samples and "latency_s" not in m.metrics
            assert "the backend changed the process" in m.detail and told in m.detail
        for later in (c.measure(case(), QUICK), other.measure(case(), QUICK)):
            assert later.status is Status.OK and "changed_state" not in later.telemetry
            assert later.telemetry["pid"] != before.telemetry["pid"]
            assert later.telemetry["cwd"] == str(runtime)
        assert eventually(lambda: not alive(int(str(before.telemetry["pid"]))))
        for pid in re.findall(r"pid (\d+)", told):
            assert eventually(lambda pid=pid: not alive(int(pid))), "it ended with the worker"


@pytest.mark.parametrize("what", ["own variable", "warnings"])
def test_harmless_changes_are_noted_and_the_worker_stays(tmp_path: Path, runtime: Path, what: str) -> None:
    with client(tmp_path) as c:
        m = c.measure(case(f"state:{what}"), QUICK)
        assert m.status is Status.OK and "/secret" not in str(m.telemetry)
        assert str(m.telemetry["changed_state"])
        later = c.measure(case(), QUICK)
        assert later.status is Status.OK, "warnings are no errors again"
        assert later.telemetry["pid"] == m.telemetry["pid"]


def test_prepared_cases_are_watched(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        good = c.prepare(case(), QUICK)
        with pytest.raises(CaseError, match="the backend changed the process") as caught:
            c.prepare(case("state:variable"), QUICK)
        assert caught.value.status is Status.INVALID
        with pytest.raises(CaseError, match="prepare it again"):
            c.sample(good, 1)
        late = c.prepare(case("in_sample:state:clock"), QUICK)
        with pytest.raises(CaseError, match=r"time\.perf_counter was replaced"):
            c.sample(late, 1)
        good = c.prepare(case(), QUICK)
        assert c.sample(good, 2) == [0.001] * 2


def test_a_change_beside_timing_lets_prepared_cases_be_sampled_first(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        pid = c.measure(case(), QUICK).telemetry["pid"]
        handle = c.prepare(case("state:folder"), QUICK)
        assert c.sample(handle, 2) == [0.001] * 2
        assert c.sample(handle, 1) == [0.001]
        c.release(handle)
        assert c.measure(case(), QUICK).telemetry["pid"] != pid


def test_the_log_works_without_standard_streams(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        assert c.measure(case("state:streams"), QUICK).status is Status.OK
    (log,) = runtime.glob("*.log")
    assert eventually(lambda: "ends: a backend changed the process" in log.read_text())


@pytest.mark.slow
def test_real_backends_share_one_worker_and_hostile_ones_do_not_reach_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNWATCH_RUNTIME_DIR", str(tmp_path / "rt"))
    monkeypatch.delenv("ATTNWATCH_BENCH", raising=False)
    (tmp_path / "hostile_backends.py").write_text(
        "import os, torch, torch.nn.functional as F\n"
        "def threads(q, k, v, *, causal=False):\n"
        "    torch.set_num_threads(1 + (os.cpu_count() or 1))\n"
        "    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)\n"
        "def dtype(q, k, v, *, causal=False):\n"
        "    torch.set_default_dtype(torch.float64)\n"
        "    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    params: dict[str, bool | int | float | str | None] = {
        "batch": 1, "heads_q": 2, "heads_kv": 2, "q_len": 32, "kv_len": 32, "head_dim": 16,
        "dtype": "float32", "causal": True, "direction": "fwd",
    }  # fmt: skip
    options = MeasureOptions(max_seconds=0.05)

    def one(backend: str) -> Case:
        return Case("prefill", Workload("attention", params), backend)

    with WorkerClient.connect(WorkerSpec("cpu", modules=("hostile_backends",))) as c:
        c.reports()
        for backend in ("sdpa_math", "sdpa_flash", "flex", "segmented"):
            m = c.measure(one(backend), options)
            assert m.status is Status.OK and "changed_state" not in m.telemetry, (m.detail, m.telemetry)
        (log,) = (tmp_path / "rt").glob("*.log")
        assert log.read_text().count("ready:") == 1
        for backend, words in (("threads", "get_num_threads"), ("dtype", "float32 -> torch.float64")):
            m = c.measure(one(f"hostile_backends:{backend}"), options)
            assert m.status is Status.INVALID and words in m.detail, m.detail
            assert c.measure(one("sdpa_math"), options).status is Status.OK
        assert m.telemetry["threads"] == m.telemetry["threads_after"]
        assert log.read_text().count("ready:") == 3
        c.shutdown()
