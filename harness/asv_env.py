"""The environment type ``attnwatch`` for asv: a virtual environment that holds nothing but ``kernels``.

torch and the ruler come from the environment that runs asv, through a path file, so that every commit of
``kernels`` is measured with today's ruler and nothing heavy is installed twice. Named under ``plugins`` in
``asv.conf.json``.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from asv import util
from asv.console import log
from asv.plugins.virtualenv import Virtualenv

from harness.asv_session import SEARCH_VARIABLE

_RULER = "asv_bench_attnwatch"


class AttnwatchEnvironment(Virtualenv):  # type: ignore[misc, unused-ignore]
    """A virtual environment whose path file leads to the packages and the ruler of this interpreter."""

    tool_name = "attnwatch"

    def _setup(self) -> None:
        log.info(f"Creating environment for {self.name}")
        util.check_call([sys.executable, "-m", "virtualenv", "--no-download", "-p", self._executable, self._path])
        site = Path(
            self.run_executable("python", ["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
        )
        (site / "attnwatch_ruler.pth").write_text("\n".join(ruler_path_lines()) + "\n", encoding="utf-8")

    def run(self, args: list[str], **kwargs: Any) -> Any:
        """Run the environment's python."""
        log.debug(f"Running '{' '.join(args)}' in {self.name}")
        return self.run_executable("python", args, **kwargs)


def ruler_path_lines() -> list[str]:
    """Lines of a ``.pth`` file that reach this interpreter's packages and the ruler, but never its ``kernels``.

    Path files inside an added folder are not read, so an editable ``kernels`` stays out of reach; the ruler's own
    editable finder, where there is one, is installed by name.
    """
    lines = [sysconfig.get_path("purelib")]
    platlib = sysconfig.get_path("platlib")
    if platlib not in lines:
        lines.append(platlib)
    # Not through the distribution's metadata: in a checkout the build's own egg-info would be found first.
    for folder in lines.copy():
        for file in sorted(Path(folder).glob(f"__editable__.{_RULER}-*.pth")):
            lines.extend(file.read_text(encoding="utf-8").strip().splitlines())
    # Last, so that what is searched here can hide nothing of the commit's or the ruler's.
    given = f"os.environ.get({SEARCH_VARIABLE!r}, '').split(os.pathsep)"
    return [*lines, f"import os, sys; sys.path.extend(p for p in {given} if p)"]
