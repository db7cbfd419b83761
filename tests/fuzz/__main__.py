"""``python -m tests.fuzz TARGET [SEEDS] [libFuzzer's options]``; needs atheris."""

from __future__ import annotations

import sys

import atheris

if __name__ == "__main__":
    with atheris.instrument_imports(include=["harness"]):
        from tests.fuzz.targets import TARGETS
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()
