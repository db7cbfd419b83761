from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from harness.measuring import environment as module
from harness.measuring.environment import cpu_model, environment, usable_cores
from harness.measuring.timing.clock import Account
from harness.measuring.timing.cpu import ASSUMED_LLC_BYTES, CpuClock, last_level_cache
from harness.variables import recorded


def test_variables_are_allow_listed_and_never_secret() -> None:
    given = {
        "OMP_NUM_THREADS": "2",
        "TRITON_PRINT_AUTOTUNING": "1",
        "FLASH_ATTN_TRITON_AMD_ENABLE": "0",
        "PATH": "/bin",
        "TORCH_HUB_TOKEN": "abc",
        "PYTORCH_API_KEY": "abc",
        "MKL_PASSWORD": "abc",
        "TORCH_PROXY": "https://me:abc@host",
        "TRITON_CACHE_DIR": "/tmp/x",
    }
    assert set(recorded(given)) == {
        "OMP_NUM_THREADS",
        "TRITON_PRINT_AUTOTUNING",
        "FLASH_ATTN_TRITON_AMD_ENABLE",
    }


def test_environment_of_a_cpu() -> None:
    got = environment("cpu")
    assert got.machine.device_kind == "cpu"
    assert f"({usable_cores()} cores)" in got.machine.device_model
    assert got.packages["torch"] == torch.__version__
    assert got.threads == torch.get_num_threads()
    assert len(got.kernels_hash) == 16 and (Path(got.kernels_path) / "registry.py").is_file()
    assert got.hash == environment("cpu").hash


def test_threads_and_variables_change_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment("cpu")
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    after = environment("cpu")
    assert before.hash != after.hash
    assert before.machine.fingerprint == after.machine.fingerprint


def test_missing_files_give_empty_fields(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_text", lambda path: "")
    got = environment("cpu")
    assert got.machine.clock_policy == "unknown"
    assert "memory_bytes" not in got.machine.details
    assert cpu_model(tmp_path / "none")


def test_quota_of_a_container_limits_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(module, "_text", lambda path: "150000 100000" if "cpu.max" in str(path) else "")
    assert usable_cores() == 2
    monkeypatch.setattr(module, "_text", lambda path: "max 100000")
    assert usable_cores() == 64


def test_cpu_model_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: Fast Chip 9000\n")
    assert cpu_model(file).startswith("Fast Chip 9000 (")


def _cache(folder: Path, cpu: int, level: int, size: str, shared: str, kind: str = "Unified") -> None:
    index = folder / f"cpu{cpu}" / "cache" / f"index{level}{kind}"
    index.mkdir(parents=True)
    for name, text in (("type", kind), ("level", str(level)), ("size", size), ("shared_cpu_list", shared)):
        (index / name).write_text(text + "\n")


def test_last_level_cache_adds_instances_of_usable_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 4})
    for cpu, shared in ((0, "0-3"), (1, "0-3"), (4, "4-7"), (8, "8-11")):
        _cache(tmp_path, cpu, 3, "32M", shared)
        _cache(tmp_path, cpu, 2, "1024K", str(cpu))
        _cache(tmp_path, cpu, 1, "32K", str(cpu), "Instruction")
    assert last_level_cache(tmp_path) == (64 << 20, "sysfs")


def test_last_level_cache_falls_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: 0)
    assert last_level_cache(tmp_path) == (ASSUMED_LLC_BYTES, "assumed")
    monkeypatch.setattr(os, "sysconf", lambda name: 8 << 20)
    assert last_level_cache(tmp_path) == (8 << 20, "sysconf")


def test_cold_samples_flush_and_hot_ones_do_not() -> None:
    clock, account = CpuClock(llc_bytes=1 << 20), Account()
    assert clock.flush_bytes == 2 << 20
    clock.sample(lambda: None, account, cold=False)
    assert clock._buffer is None
    clock.sample(lambda: None, account, cold=True)
    assert clock._buffer is not None
    assert clock._buffer.numel() * clock._buffer.element_size() == clock.flush_bytes
    assert account.flush_s > 0


def test_telemetry_reads_what_there_is() -> None:
    assert all(isinstance(v, float) for v in CpuClock(llc_bytes=1 << 20).telemetry().values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_times_the_device_and_not_the_launch() -> None:
    from harness.measuring.timing.cuda import CudaClock

    clock, account = CudaClock("cuda"), Account()
    a = torch.randn(4096, 4096, device="cuda")
    samples = [clock.sample(lambda: a @ a, account, cold=True) for _ in range(20)]
    assert [s for s, why in samples if not why]
    assert clock.flush_bytes >= 2 * torch.cuda.get_device_properties(0).L2_cache_size


def test_what_is_preloaded_is_recorded() -> None:
    assert recorded({"LD_PRELOAD": "libtcmalloc.so", "HOME": "/x"}) == {"LD_PRELOAD": "libtcmalloc.so"}


def test_waiting_for_a_core_is_seen() -> None:
    import os
    import subprocess
    import sys
    import time

    from harness.measuring.timing.cpu import Waiting

    waiting = Waiting()
    if waiting.nanoseconds() == 0:
        pytest.skip("this kernel does not count the time that threads wait for a core")
    cpu = min(os.sched_getaffinity(0))
    usual = os.sched_getaffinity(0)
    busy = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"])
    try:
        os.sched_setaffinity(0, {cpu})
        time.sleep(0.3)
        before, start = waiting.nanoseconds(), time.perf_counter_ns()
        while time.perf_counter_ns() - start < 300_000_000:
            pass
        assert waiting.nanoseconds() - before > 60_000_000, "two on one core: each waits about half of the time"
    finally:
        os.sched_setaffinity(0, usual)
        busy.kill()
        busy.wait()
