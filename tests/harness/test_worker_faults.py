"""What happens to a worker becomes a status with its cause, and the next case gets a new worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.model import InfrastructureError, InputError, MeasureOptions, Status
from harness.worker import CaseError, WorkerClient, WorkerSpec
from harness.worker.boot import MAX_LOG
from harness.worker.launch import Files, how_it_ended

from .workers import QUICK, alive, case, client, eventually, private_runtime, tree


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return private_runtime(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("backend", "status", "texts"),
    [
        (
            "sigkill",
            Status.CRASHED,
            ["killed by SIGKILL; the kernel's out-of-memory killer does this too", "last words"],
        ),
        ("segfault", Status.CRASHED, ["killed by SIGSEGV (segmentation fault)", "Fatal Python error", "_happen"]),
        ("exit", Status.CRASHED, ["the worker exited by itself with code 7"]),
        ("exit0", Status.CRASHED, ["the worker exited by itself with code 0"]),
        ("closefds", Status.CRASHED, ["closed descriptors that it had not opened, the worker's connection among them"]),
        pytest.param(
            "closefds_slow",
            Status.CRASHED,
            ["lost its connection while it ran on", "was killed for it"],
            marks=pytest.mark.slow,
        ),
        ("raise", Status.CRASHED, ["RuntimeError: boom"]),
        ("sysexit", Status.CRASHED, ["SystemExit: 3"]),
        ("memory", Status.OUT_OF_MEMORY, ["MemoryError: 4 GiB"]),
        ("nan", Status.INVALID, ["metrics.latency_s.value is nan"]),
    ],
)
def test_end_of_a_case_is_named_and_the_next_one_is_measured(
    tmp_path: Path, runtime: Path, backend: str, status: Status, texts: list[str]
) -> None:
    with client(tmp_path) as c:
        m = c.measure(case(backend), QUICK)
        assert m.status is status and not m.metrics and not m.samples
        for text in texts:
            assert text in m.detail
        if backend != "sigkill":
            assert "out-of-memory" not in m.detail and "nobody recorded" not in m.detail
        assert c.measure(case(), QUICK).status is Status.OK


def test_a_case_that_hangs_is_killed_at_its_limit(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        pid = int(str(c.measure(case(), QUICK).telemetry["pid"]))
        m = c.measure(case("hang"), MeasureOptions(timeout_s=0.3))
        assert m.status is Status.TIMED_OUT and "limit of 0.3 s" in m.detail
        assert not alive(pid)
        after = c.measure(case(), QUICK)
        assert after.status is Status.OK and after.telemetry["pid"] != pid


@pytest.mark.parametrize("how", ["timeout", "kill"])
def test_children_of_a_backend_die_with_the_worker(tmp_path: Path, runtime: Path, how: str) -> None:
    """Also those that left the process group or the session."""
    record = tmp_path / "children"
    with client(tmp_path) as c:
        pid = int(str(c.measure(case(), QUICK).telemetry["pid"]))
        if how == "kill":
            # A worker that dies without a client's doing, as by the out-of-memory killer.
            killer = subprocess.Popen(
                [sys.executable, "-c", "import os, time\n"
                 f"while not os.path.exists({str(record)!r}): time.sleep(0.02)\n"
                 f"time.sleep(0.2)\nos.kill({pid}, 9)"]
            )  # fmt: skip
            m = c.measure(case(f"children:{record}"), QUICK)
            killer.wait()
            assert m.status is Status.CRASHED and "SIGKILL" in m.detail
        else:
            m = c.measure(case(f"children:{record}"), MeasureOptions(timeout_s=1.0))
            assert m.status is Status.TIMED_OUT
        children = [int(p) for p in record.read_text().split()]
        assert len(children) == 3
        assert eventually(lambda: not any(alive(p) for p in children))


def test_hostile_detail_is_kept_as_harmless_text(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        m = c.measure(case("hostile"), QUICK)
    assert m.status is Status.CRASHED
    assert m.detail.encode()  # no lone surrogates
    assert len(m.detail) < 10_000 and "characters left out" in m.detail
    assert not {"\x1b", "\x00", "\u2028"} & set(m.detail)
    assert "'quoted\" [bold]\n" in m.detail and "ü" in m.detail


def test_worker_lost_while_sampling_and_in_between(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        handle = c.prepare(case("die_in_sample"), QUICK)
        with pytest.raises(CaseError, match="SIGKILL") as caught:
            c.sample(handle, 1)
        assert caught.value.status is Status.CRASHED
        handle = c.prepare(case(), QUICK)
        os.kill(int(str(c.measure(case(), QUICK).telemetry["pid"])), signal.SIGKILL)
        with pytest.raises(CaseError, match="prepare it again"):
            c.sample(handle, 1)
        with pytest.raises(CaseError, match="SIGSEGV"):
            c.prepare(case("segfault"), QUICK)
        assert c.measure(case(), QUICK).status is Status.OK


def test_worker_killed_between_cases_costs_no_case(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        pid = int(str(c.measure(case(), QUICK).telemetry["pid"]))
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: not alive(pid))
        m = c.measure(case(), QUICK)
        assert m.status is Status.OK and m.telemetry["pid"] != pid


@pytest.mark.parametrize(("mode", "text"), [("crash", "cannot live like this"), ("raise", "no device today")])
def test_worker_that_cannot_start_says_why(tmp_path: Path, runtime: Path, mode: str, text: str) -> None:
    spec = WorkerSpec("cpu", kernels=tree(tmp_path / "tree"), variables=(("FAKE_START", mode),))
    for _ in range(2):
        with pytest.raises(InfrastructureError, match=text):
            WorkerClient.connect(spec)


def test_kernels_that_do_not_import_are_an_infrastructure_error(tmp_path: Path, runtime: Path) -> None:
    with pytest.raises(InfrastructureError, match="broken on purpose"):
        WorkerClient.connect(WorkerSpec("cpu", kernels=tree(tmp_path / "tree", "raise OSError('broken on purpose')\n")))


def test_start_that_takes_too_long_is_ended(tmp_path: Path, runtime: Path) -> None:
    slow = tree(tmp_path / "tree", f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
                "time.sleep(600)\n")  # fmt: skip
    with pytest.raises(InfrastructureError, match="not ready after 1 s"):
        WorkerClient.connect(WorkerSpec("cpu", kernels=slow), start_timeout_s=1.0)
    pid = int((tmp_path / "pid").read_text())
    assert eventually(lambda: not alive(pid))


def test_client_that_vanishes_mid_call_leaves_the_worker_usable(tmp_path: Path, runtime: Path) -> None:
    script = (
        "import sys\n"
        "from harness.worker import WorkerClient, WorkerSpec\n"
        "from harness.model import Case, Workload\n"
        "c = WorkerClient.connect(WorkerSpec('cpu', kernels=sys.argv[1]))\n"
        "print('go', flush=True)\n"
        "c.measure(Case('b', Workload('attention', {'batch': 1}), 'slow'))\n"
        "c.measure(Case('b', Workload('attention', {'batch': 1}), 'slow'))\n"
    )
    with client(tmp_path) as c:
        pid = c.measure(case(), QUICK).telemetry["pid"]
        child = subprocess.Popen(
            [sys.executable, "-c", script, c.spec.kernels or ""], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdout.readline() == "go\n"
        time.sleep(0.1)
        child.kill()
        child.wait()
        child.stdout.close()
        m = c.measure(case(), QUICK)
        assert m.status is Status.OK and m.telemetry["pid"] == pid


def test_interrupted_client_does_not_leave_the_worker_computing(tmp_path: Path, runtime: Path) -> None:
    script = (
        "import sys\n"
        "from harness.worker import WorkerClient, WorkerSpec\n"
        "from harness.model import Case, Workload\n"
        "c = WorkerClient.connect(WorkerSpec('cpu', kernels=sys.argv[1]))\n"
        "print(c.measure(Case('b', Workload('attention', {'batch': 1}), 'ok')).telemetry['pid'], flush=True)\n"
        "try:\n"
        "    c.measure(Case('b', Workload('attention', {'batch': 1}), 'hang'))\n"
        "except KeyboardInterrupt:\n"
        "    m = c.measure(Case('b', Workload('attention', {'batch': 1}), 'ok'))\n"
        "    print(m.status.value, flush=True)\n"
        "    c.shutdown()\n"
    )
    folder = tree(tmp_path / "tree")
    child = subprocess.Popen([sys.executable, "-c", script, folder], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    (log,) = runtime.glob("*.log")
    assert eventually(lambda: "measure hang" in log.read_text())
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert out == "ok\n"
    assert not alive(pid)


def test_backend_whose_import_takes_the_worker_down_is_told_with_its_trace(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path, variables=(("FAKE_REPORTS", "segfault"),)) as c:
        with pytest.raises(InfrastructureError, match=r"reports(.|\n)*SIGSEGV(.|\n)*in reports"):
            c.reports()
        assert c.measure(case(), QUICK).status is Status.OK


def test_idle_connection_outlives_its_worker(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        pid = int(str(c.measure(case(), QUICK).telemetry["pid"]))
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: not alive(pid))
        assert c.environment().machine.device_model == "fake"


@pytest.mark.slow
def test_hang_ends_also_when_the_client_is_gone(tmp_path: Path, runtime: Path) -> None:
    """The worker's own watchdog, for a case that hangs with nobody left to kill it."""
    script = (
        "import sys\n"
        "from harness.worker import WorkerClient, WorkerSpec\n"
        "from harness.model import Case, MeasureOptions, Workload\n"
        "c = WorkerClient.connect(WorkerSpec('cpu', kernels=sys.argv[1]))\n"
        "print(c.measure(Case('b', Workload('attention', {'batch': 1}), 'ok')).telemetry['pid'], flush=True)\n"
        "c.measure(Case('b', Workload('attention', {'batch': 1}), 'hang'), MeasureOptions(timeout_s=0.5))\n"
    )
    folder = tree(tmp_path / "tree")
    child = subprocess.Popen([sys.executable, "-c", script, folder], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    (log,) = runtime.glob("*.log")
    assert eventually(lambda: "measure hang" in log.read_text())
    child.kill()
    child.wait()
    child.stdout.close()
    assert alive(pid)
    assert eventually(lambda: not alive(pid), 60.0)
    assert "Timeout" in log.read_text()


def test_the_log_is_bounded_while_a_case_prints(tmp_path: Path, runtime: Path) -> None:
    """20 MB in each of two calls; what was said last is still there."""
    with client(tmp_path) as c:
        for _ in range(2):
            assert c.measure(case("print:200"), QUICK).status is Status.OK
        m = c.measure(case("sigkill"), QUICK)
        assert "last words" in m.detail
        logs = list(runtime.glob("*.log*"))
        assert len(logs) == 2
        assert sum(p.stat().st_size for p in logs) <= 2 * MAX_LOG


def test_a_worker_that_left_on_purpose_says_so(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        pid = int(str(c.measure(case(), QUICK).telemetry["pid"]))
        key = next(runtime.glob("*.sock")).stem
    assert eventually(lambda: not alive(pid))
    assert how_it_ended(Files(runtime, key), pid) == "ended: told to end"


def test_what_cannot_be_imported_is_told_in_one_line(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ATTNWATCH_BENCH")
    (tmp_path / "shadow" / "torch").mkdir(parents=True)
    (tmp_path / "shadow" / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so.99: not found')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    with pytest.raises(InfrastructureError) as caught:
        WorkerClient.connect(WorkerSpec("cpu", kernels=tree(tmp_path / "tree")))
    text = str(caught.value)
    assert "torch is needed): ImportError: libcudart.so.99: not found" in text and "\n" not in text
    log = text.rpartition(" ")[2]
    assert "Traceback" in Path(log).read_text()


def test_a_module_in_the_way_of_kernels_is_named(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernels.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(InputError, match=r"kernels\.py stands in the way .* rename it"):
        WorkerClient.connect(WorkerSpec("cpu"))
    with pytest.raises(InputError, match=r"kernels\.py stands in the way .* rename it"):
        WorkerClient.connect(WorkerSpec("cpu", python=str(Path(sys.base_prefix) / "bin" / "python3")))


def test_a_bad_device_is_an_error_of_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_runtime(tmp_path, monkeypatch)
    monkeypatch.delenv("ATTNWATCH_BENCH")
    with pytest.raises(InputError, match="device 'gpu7': give cpu, cuda or cuda:N"):
        WorkerClient.connect(WorkerSpec("gpu7"))


def test_a_library_to_preload_that_is_not_there_is_refused(tmp_path: Path, runtime: Path) -> None:
    spec = WorkerSpec("cpu", kernels=tree(tmp_path / "tree"), variables=(("LD_PRELOAD", "/none.so"),))
    with pytest.raises(InputError, match=r"LD_PRELOAD names /none\.so, which does not exist"):
        WorkerClient.connect(spec)


@pytest.mark.parametrize("seed", [2**63, 2**64, -(2**63) - 1])
def test_a_seed_beyond_64_bits_is_an_error_of_input(seed: int) -> None:
    with pytest.raises(InputError, match=f"seed {seed} does not fit into 64 bits"):
        MeasureOptions(seed=seed)
    assert MeasureOptions(seed=2**63 - 1).seed == 2**63 - 1
