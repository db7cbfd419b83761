"""Start-up of the commands people type, as a ratio to a bare interpreter.

Bars: ``--help`` under 0.4 s, ``doctor`` (worker started anew, torch imported) under 5 s. Exit code 1 where missed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

HELP_S, DOCTOR_S = 0.4, 5.0


def seconds(command: list[str], runs: int, **env: str) -> float:
    """Median wall time of a command over ``runs`` after one warm-up."""
    times = []
    for i in range(runs + 1):
        began = time.perf_counter()
        subprocess.run(command, env={**os.environ, **env}, capture_output=True, check=True)
        if i:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> int:
    """Print the table."""
    cli = [sys.executable, "-m", "harness.cli"]
    bare = seconds([sys.executable, "-c", "pass"], 9)
    shown = seconds([*cli, "--help"], 9)
    with tempfile.TemporaryDirectory(prefix="attnwatch-bench-") as folder:
        # A runtime folder of its own: no worker is waiting there, so each start pays for torch.
        env = {"ATTNWATCH_RUNTIME_DIR": folder, "ATTNWATCH_WORKER_IDLE_S": "0.1"}
        cold = seconds([*cli, "doctor", "--device", "cpu"], 3, **env)
    warm = seconds([*cli, "doctor", "--device", "cpu"], 3)
    print(f"{'command':<28}{'median s':>10}{'x python':>10}{'bar s':>8}")
    print(f"{'python -c pass':<28}{bare:>10.3f}{1.0:>10.1f}{'':>8}")
    print(f"{'attnwatch --help':<28}{shown:>10.3f}{shown / bare:>10.1f}{HELP_S:>8}")
    print(f"{'doctor, new worker':<28}{cold:>10.3f}{cold / bare:>10.1f}{DOCTOR_S:>8}")
    print(f"{'doctor, worker running':<28}{warm:>10.3f}{warm / bare:>10.1f}{DOCTOR_S:>8}")
    return int(shown > HELP_S or cold > DOCTOR_S)


if __name__ == "__main__":
    sys.exit(main())
