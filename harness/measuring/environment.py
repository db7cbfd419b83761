"""The record of everything around the kernels. Files that are missing give empty fields, never an error."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
from pathlib import Path
from typing import Any

from harness.hashing import kernels_location
from harness.model import Environment, InfrastructureError, Machine, Scalar
from harness.variables import recorded

#: Packages whose version may change a number, by distribution name.
PACKAGES = (
    "torch", "triton", "numpy", "xformers", "flash-attn", "flash-attn-3", "flash-attn-4", "flashinfer-python",
    "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cutlass-dsl",
)  # fmt: skip


def installed_packages() -> dict[str, str]:
    """Versions of those of ``PACKAGES`` that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except (importlib.metadata.PackageNotFoundError, OSError):
            continue
    return found


def usable_cores() -> int:
    """Cores this process may use: affinity, further limited by a control group's quota (rounded up)."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota, _, period = _text("/sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        cores = min(cores, max(1, -(-int(quota) // int(period))))
    return int(cores)


def cpu_model(cpuinfo: Path | str = "/proc/cpuinfo") -> str:
    """Model name of the processor with its usable cores, such as ``AMD EPYC (2 cores)``."""
    name = ""
    for line in _text(cpuinfo).splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("model name", "hardware", "cpu part"):
            name = value.strip()
            break
    return f"{name or platform.processor() or platform.machine() or 'unknown'} ({usable_cores()} cores)"


def environment(device: str) -> Environment:
    """The full record for ``device``; imports torch. Without a package ``kernels`` its hash is empty."""
    import torch

    kind = torch.device(device).type
    machine, driver = _cuda(torch.device(device)) if kind == "cuda" else (_cpu(), "")
    packages = installed_packages()
    for name, version in (("cuda", torch.version.cuda), ("torch", torch.__version__)):
        if version:
            packages[name] = str(version)
    try:
        location, kernels_hash = kernels_location()
    except InfrastructureError:
        location, kernels_hash = None, ""
    return Environment(
        machine=machine,
        python=platform.python_version(),
        packages=packages,
        driver=driver,
        variables=recorded(os.environ),
        threads=torch.get_num_threads(),
        kernels_hash=kernels_hash,
        kernels_path=str(location or ""),
    )


def _details() -> dict[str, Scalar]:
    found: dict[str, Scalar] = {"system": f"{platform.system()} {platform.release()}", "cores": usable_cores()}
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            found["memory_bytes"] = int(line.split()[1]) << 10
    return found


def _cpu() -> Machine:
    from .timing.cpu import last_level_cache

    size, source = last_level_cache()
    policy = _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or "unknown"
    details = _details() | {"llc_bytes": size, "llc_source": source}
    return Machine("cpu", cpu_model(), policy, _host(), details=details)


def _cuda(device: Any) -> tuple[Machine, str]:
    import torch

    properties = torch.cuda.get_device_properties(device)
    details = _details() | {
        "cpu": cpu_model(),
        "l2_bytes": int(properties.L2_cache_size),
        "multiprocessors": int(properties.multi_processor_count),
        "device_memory_bytes": int(properties.total_memory),
        "compute_capability": f"{properties.major}.{properties.minor}",
    }
    uuid = str(getattr(properties, "uuid", ""))
    policy, driver = _nvml(uuid)
    return Machine("cuda", properties.name, policy, _host(), uuid, details), driver


def _nvml(uuid: str) -> tuple[str, str]:
    """Clock policy (``locked MHz`` where application clocks differ from the default) and driver version."""
    try:
        import pynvml

        pynvml.nvmlInit()
        driver = _decoded(pynvml.nvmlSystemGetDriverVersion())
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode())
    except Exception:  # no library or no permission: said as unknown, not guessed
        return "unknown", ""
    try:
        now = pynvml.nvmlDeviceGetApplicationsClock(handle, pynvml.NVML_CLOCK_SM)
        usual = pynvml.nvmlDeviceGetDefaultApplicationsClock(handle, pynvml.NVML_CLOCK_SM)
    except pynvml.NVMLError:
        return "default", driver
    return ("default" if now == usual else f"locked {now} MHz"), driver


def _decoded(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _host() -> str:
    try:
        return socket.gethostname()
    except OSError:
        return ""


def _text(path: Path | str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
