"""The worker as clients know it: what it measures, who shares it, when it goes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from harness.model import InfrastructureError, InputError, MeasureOptions, Status
from harness.worker import CaseError, WorkerClient, WorkerSpec
from harness.worker.identity import identify

from .workers import QUICK, alive, case, client, eventually, private_runtime, tree, workers_listening


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return private_runtime(tmp_path, monkeypatch)


def test_measures_and_stays_for_the_next_client(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as one:
        first = one.measure(case(), QUICK)
        assert first.status is Status.OK and first.metrics["latency_s"].value == 0.001
        one.close()
        with WorkerClient.connect(one.spec) as two:
            second = two.measure(case(), QUICK)
            two.shutdown()
    assert first.telemetry["pid"] == second.telemetry["pid"] != os.getpid()


def test_worker_has_its_own_session_and_stays_out_of_the_repository(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        telemetry = c.measure(case(), QUICK).telemetry
        assert telemetry["sid"] == telemetry["pid"] != os.getsid(0)
        assert telemetry["cwd"] == str(runtime)


def test_environment_reports_and_controls(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path, variables=(("FAKE", "7"),)) as c:
        environment = c.environment()
        assert environment.kernels_path == str(tmp_path / "tree" / "kernels")
        assert environment.variables == {"FAKE": "7"}
        assert [(r.name, r.usable) for r in c.reports()] == [("one", True), ("two", False)]
        assert c.controls()["control_gemm_s"].value == 1e-3


def test_prepare_sample_release(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        handle = c.prepare(case(), QUICK)
        assert c.sample(handle, 3) == [0.001] * 3
        c.release(handle)
        c.release(handle)
        with pytest.raises(CaseError, match="prepare it again"):
            c.sample(handle, 1)
        with pytest.raises(CaseError, match="head_dim 7 is odd") as caught:
            c.prepare(case("unsupported"), QUICK)
        assert caught.value.status is Status.UNSUPPORTED


def test_prepared_cases_are_released_with_the_connection(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as keeper:
        with WorkerClient.connect(keeper.spec) as c:
            c.prepare(case("kept"), QUICK)
        (log,) = runtime.glob("*.log")
        assert eventually(lambda: "released kept" in log.read_text())


def test_two_trees_get_two_workers_and_each_measures_its_own(tmp_path: Path, runtime: Path) -> None:
    slow = tree(tmp_path / "slow", "SPEED = 0.002\n")
    with client(tmp_path) as one, client(tmp_path / "other", kernels=slow) as two:
        a, b = one.measure(case(), QUICK), two.measure(case(), QUICK)
        again = one.measure(case(), QUICK)
    assert (a.metrics["latency_s"].value, b.metrics["latency_s"].value) == (0.001, 0.002)
    assert again.metrics["latency_s"].value == 0.001
    assert a.telemetry["pid"] == again.telemetry["pid"] != b.telemetry["pid"]


def test_an_edit_within_a_second_and_of_equal_size_is_measured(tmp_path: Path, runtime: Path) -> None:
    """Bytecode caches would pass the second tree for the first: same place, same size, same second."""
    place = tmp_path / "edited"
    for text, speed in (("SPEED = 0.003\n", 0.003), ("SPEED = 0.004\n", 0.004), ("SPEED = 0.005\n", 0.005)):
        spec = WorkerSpec("cpu", kernels=tree(place, text))
        os.utime(place / "kernels" / "__init__.py", (1, 1))
        with WorkerClient.connect(spec) as c:
            assert c.measure(case(), QUICK).metrics["latency_s"].value == speed
            c.shutdown()


def test_kernels_that_change_under_a_client_are_refused(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        assert c.measure(case(), QUICK).status is Status.OK
        tree(tmp_path / "tree", "SPEED = 0.5\n")
        with pytest.raises(InfrastructureError, match="changed while they were measured"):
            c.measure(case(), QUICK)
    with client(tmp_path, kernels=str(tmp_path / "tree")):
        pass  # a new client measures the new ones
    with client(tmp_path) as c:
        tree(tmp_path / "tree", "SPEED = 0.001\n")
        os.utime(tmp_path / "tree" / "kernels" / "__init__.py")
        assert c.measure(case(), QUICK).status is Status.OK, "touched, not changed"


def test_worker_leaves_when_idle(tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNWATCH_WORKER_IDLE_S", "0.2")
    with client(tmp_path) as c:
        pid = int(str(c.measure(case(), QUICK).telemetry["pid"]))
        assert alive(pid), "a connected client keeps it"
        c.close()
        assert eventually(lambda: not alive(pid))
        assert eventually(lambda: workers_listening(runtime) == 0)


def test_isolate_gives_each_case_a_process_and_leaves_nothing(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path, isolate=True) as c:
        pids = {int(str(c.measure(case(), QUICK).telemetry["pid"])) for _ in range(3)}
        assert len(pids) == 3
        assert not any(alive(p) for p in pids)
        handle = c.prepare(case(), QUICK)
        assert c.sample(handle, 1) == [0.001]
        c.release(handle)
        assert workers_listening(runtime) == 1, "only the one that is shared"
        assert c.measure(case("sigkill"), QUICK).status is Status.CRASHED


@pytest.mark.parametrize("changed", [{"OMP_NUM_THREADS": "3"}, {"CUDA_VISIBLE_DEVICES": "1"}, {"LD_PRELOAD": ""}])
def test_variables_that_libraries_read_are_part_of_the_key(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]
) -> None:
    spec = WorkerSpec("cpu", kernels=tree(tmp_path / "tree"))
    before = identify(spec).key
    assert identify(spec).key == before
    monkeypatch.setenv("SOME_UNRELATED_NAME", "1")
    assert identify(spec).key == before
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    assert identify(spec).key != before


def test_backend_module_of_the_user_is_pinned_and_part_of_the_key(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_backend.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    spec = WorkerSpec("cpu", kernels=tree(tmp_path / "tree"), modules=("my_own_backend",))
    first = identify(spec)
    assert first.pinned["my_own_backend"] == str(tmp_path / "my_own_backend.py")
    (tmp_path / "my_own_backend.py").write_text("x = 2\n")
    assert identify(spec).key != first.key


def test_current_folder_does_not_shadow_installed_kernels(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = identify(WorkerSpec("cpu")).kernels_path
    tree(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert identify(WorkerSpec("cpu")).kernels_path == installed


def test_bad_specs_are_input_errors(tmp_path: Path, runtime: Path) -> None:
    with pytest.raises(InputError, match="holds no package folder kernels"):
        WorkerClient.connect(WorkerSpec("cpu", kernels=str(tmp_path)))
    with pytest.raises(InputError, match="cannot run interpreter"):
        WorkerClient.connect(WorkerSpec("cpu", python="/nowhere/python"))


def test_worker_refuses_other_kernels_than_asked_for(tmp_path: Path, runtime: Path) -> None:
    import dataclasses

    from harness.worker.launch import open_channel

    identity = identify(WorkerSpec("cpu", kernels=tree(tmp_path / "tree")))
    wrong = dataclasses.replace(identity, kernels_hash="0" * 16)
    with pytest.raises(InfrastructureError, match="was asked for"):
        open_channel(wrong, "f" * 16, 30.0)


@pytest.mark.slow
def test_four_clients_at_once_start_one_worker(tmp_path: Path, runtime: Path) -> None:
    script = (
        "import sys, json\n"
        "from harness.worker import WorkerClient, WorkerSpec\n"
        "from harness.model import Case, Workload\n"
        "with WorkerClient.connect(WorkerSpec('cpu', kernels=sys.argv[1])) as c:\n"
        "    m = c.measure(Case('b', Workload('attention', {'batch': 1}), 'slow'))\n"
        "    print(json.dumps([m.status, m.telemetry['pid']]))\n"
    )
    folder = tree(tmp_path / "tree")
    children = [
        subprocess.Popen([sys.executable, "-c", script, folder], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    answers = [json.loads(child.communicate(timeout=120)[0]) for child in children]
    assert [status for status, _ in answers] == ["ok"] * 4
    assert len({pid for _, pid in answers}) == 1
    with client(tmp_path):
        assert workers_listening(runtime) == 1


def test_stale_socket_and_foreign_file_in_its_place(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        key = identify(c.spec).key
    path = runtime / f"{key}.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.is_socket()
    with client(tmp_path) as c:
        assert c.measure(case(), QUICK).status is Status.OK
    path.write_text("no socket")
    with client(tmp_path) as c:
        assert c.measure(case(), QUICK).status is Status.OK


def test_long_runtime_path(tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNWATCH_RUNTIME_DIR", str(tmp_path / ("d" * 150)))
    with client(tmp_path) as c:
        assert c.measure(case(), QUICK).status is Status.OK


def test_unusable_runtime_folders(tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    opened = tmp_path / "open"
    opened.mkdir()
    opened.chmod(0o777)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for path, message in (
        (file, "cannot use|not a folder"), (file / "below", "cannot use"),
        (opened, "chmod 700"), (link, "not a folder"),
        (Path("/proc/no/such"), "cannot use"),
    ):  # fmt: skip
        monkeypatch.setenv("ATTNWATCH_RUNTIME_DIR", str(path))
        with pytest.raises(InfrastructureError, match=message):
            WorkerClient.connect(WorkerSpec("cpu", kernels=tree(tmp_path / "tree")))


def test_garbage_from_a_client_harms_nobody(tmp_path: Path, runtime: Path) -> None:
    with client(tmp_path) as c:
        before = c.measure(case(), QUICK).telemetry["pid"]
        (path,) = runtime.glob("*.sock")
        for data in (b"\x00\xff\n", b"[1]\n", b'{"op": 3}\n', b'{"op": "measure"}\n', b'{"id": 1', b""):
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(str(path))
                s.sendall(data)
        assert c.measure(case(), QUICK).telemetry["pid"] == before


@pytest.mark.slow
def test_foreign_interpreter_sees_the_ruler_and_its_own_kernels(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare virtual environment with kernels in its own site-packages and no ruler installed."""
    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    python = str(place / "bin" / "python")
    with pytest.raises(InputError, match="not installed"):
        WorkerClient.connect(WorkerSpec("cpu", python=python))
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    tree(Path(site), "SPEED = 0.009\n")
    from harness.worker import identity

    identity._probe.cache_clear()
    with WorkerClient.connect(WorkerSpec("cpu", python=python)) as c:
        assert c.measure(case(), QUICK).metrics["latency_s"].value == 0.009
        assert c.environment().kernels_path == str(Path(site) / "kernels")
        c.shutdown()


# Every public function of the module gives twice its result.
_DOUBLED = """
for _n, _f in list(globals().items()):
    if getattr(_f, '__module__', '') == __name__ and callable(_f) and not _n.startswith('_'):
        globals()[_n] = lambda *a, _f=_f, **k: _f(*a, **k) * 2
"""


@pytest.mark.slow
def test_real_bench_measures_the_tree_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two copies of the real kernels; one has a backend whose result differs, which only its own worker sees."""
    import shutil

    monkeypatch.setenv("ATTNWATCH_RUNTIME_DIR", str(tmp_path / "rt"))
    monkeypatch.delenv("ATTNWATCH_BENCH", raising=False)
    source = Path(identify(WorkerSpec("cpu")).kernels_path)
    params: dict[str, bool | int | float | str | None] = {
        "batch": 1, "heads_q": 2, "heads_kv": 2, "q_len": 32, "kv_len": 32, "head_dim": 16,
        "dtype": "float32", "causal": True, "direction": "fwd",
    }  # fmt: skip
    from harness.model import Case, Workload

    one = Case("prefill", Workload("attention", params), "sdpa_math")
    results = []
    for name in ("good", "bad"):
        folder = tmp_path / name
        shutil.copytree(source, folder / "kernels", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        if name == "bad":
            file = folder / "kernels" / "attention" / "sdpa.py"
            file.write_text(file.read_text() + _DOUBLED)
        with WorkerClient.connect(WorkerSpec("cpu", kernels=str(folder))) as c:
            results.append(c.measure(one, MeasureOptions(max_seconds=0.1)))
            assert c.environment().kernels_path == str(folder / "kernels")
            c.shutdown()
    assert [m.status for m in results] == [Status.OK, Status.WRONG], [m.detail for m in results]
