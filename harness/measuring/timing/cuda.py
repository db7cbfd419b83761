"""Timing on CUDA: events around one call on a stream that is held back until the host has queued it all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from harness.model import Scalar

from .clock import Account, Call

#: Below this share of the highest SM clock a sample is discarded as throttled.
CLOCK_FLOOR = 0.75

#: Longest that the stream is held back, and the pause after a throttled sample; seconds.
_LONGEST_HOLD_S = 0.05
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)


class Telemetry:
    """Clocks, temperature, power and throttle reasons from NVML; empty where NVML cannot be used."""

    def __init__(self, device: torch.device) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
            self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        except Exception:  # no library, no permission, no such board: recorded by the absence of values
            self._nvml = None

    def read(self) -> dict[str, Scalar]:
        """``temperature_c``, ``power_w``, ``clock_hz``, ``clock_max_hz``, ``throttle_reasons`` (bits)."""
        n, h = self._nvml, self._handle
        if n is None:
            return {}
        wanted: dict[str, Callable[[], Scalar]] = {
            "temperature_c": lambda: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
            "power_w": lambda: n.nvmlDeviceGetPowerUsage(h) / 1000.0,
            "clock_hz": lambda: self.sm_clock() * 1e6,
            "clock_max_hz": lambda: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM) * 1e6,
            "throttle_reasons": lambda: n.nvmlDeviceGetCurrentClocksThrottleReasons(h),
        }
        found: dict[str, Scalar] = {}
        for name, get in wanted.items():
            try:
                found[name] = get()
            except n.NVMLError:
                continue
        return found

    def sm_clock(self) -> float:
        """Current SM clock in MHz."""
        return float(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))

    def throttled(self, highest_hz: float) -> bool:
        """Whether the SM clock is below the floor now."""
        if self._nvml is None or not highest_hz:
            return False
        try:
            return self.sm_clock() * 1e6 < CLOCK_FLOOR * highest_hz
        except self._nvml.NVMLError:
            return False


class CudaClock:
    """Cold: zeroes a buffer of twice the queried L2 on the stream before each call.

    The stream spins until call and events are queued, so launch cost is outside the window. A start event
    that has fired before the end event was queued shows that the hold was too short: the sample is discarded
    as ``launch_bound`` and the hold doubled. A call that waits for the device itself can never be queued; once
    the hold is at its longest its samples count, with ``host_bound`` in the telemetry.
    """

    def __init__(self, device: str = "cuda") -> None:
        self._device = torch.device(device)
        torch.cuda.set_device(self._device)
        properties = torch.cuda.get_device_properties(self._device)
        self._flush_bytes = 2 * int(properties.L2_cache_size)
        self._buffer = torch.empty(max(self._flush_bytes, 1 << 20), dtype=torch.uint8, device=self._device)
        self._cycles_per_s = float(getattr(properties, "clock_rate", 0) or 2_000_000) * 1e3
        self._hold_s = 2e-4
        self._host_bound = False
        self._throttled = 0
        self.host_overhead_s: list[float] = []
        self._result: object = None
        self._telemetry = Telemetry(self._device)
        highest = self._telemetry.read().get("clock_max_hz")
        self._highest_hz = float(highest) if isinstance(highest, int | float) else 0.0

    @property
    def flush_bytes(self) -> int:
        return self._flush_bytes

    def start_case(self) -> None:
        """Forgets what was learnt about the last case's launches."""
        self._hold_s, self._host_bound, self._throttled = 2e-4, False, 0
        self.host_overhead_s = []

    def sample(self, call: Call, account: Account, *, cold: bool) -> tuple[float, str]:
        cuda: Any = torch.cuda  # its events are untyped
        before = time.perf_counter()
        self._result = None
        start = cuda.Event(enable_timing=True)
        end = cuda.Event(enable_timing=True)
        if cold:
            self._buffer.zero_()
        if not self._host_bound:
            cuda._sleep(int(self._hold_s * self._cycles_per_s))
        start.record()
        host = time.perf_counter()
        result = call()
        self.host_overhead_s.append(time.perf_counter() - host)
        end.record()
        ran_dry = not self._host_bound and start.query()
        end.synchronize()
        self._result = result
        del result
        seconds = start.elapsed_time(end) * 1e-3
        account.kernel_s += seconds
        account.flush_s += max(0.0, time.perf_counter() - before - seconds)
        if ran_dry:
            if self._hold_s < _LONGEST_HOLD_S:
                self._hold_s *= 2.0
                return seconds, "launch_bound"
            self._host_bound = True
        if self._telemetry.throttled(self._highest_hz):
            time.sleep(_PAUSES_S[min(self._throttled, len(_PAUSES_S) - 1)])
            self._throttled += 1
            return seconds, "throttled"
        return seconds, ""

    def once(self, call: Call, account: Account) -> tuple[object, float]:
        torch.cuda.synchronize(self._device)
        start = time.perf_counter()
        result = call()
        torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - start
        account.kernel_s += seconds
        return result, seconds

    def take(self) -> object:
        result, self._result = self._result, None
        return result

    def telemetry(self) -> dict[str, Scalar]:
        return {**self._telemetry.read(), "host_bound": self._host_bound}
