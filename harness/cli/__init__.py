"""The ``attnwatch`` command. Start-up is kept short: each command imports what it needs when it runs."""

from __future__ import annotations

import sys

from harness.model.terms import AttnwatchError, Exit


def main() -> None:
    """Entry point: errors meant for people become one line on standard error and an exit code."""
    from .app import app

    try:
        app(standalone_mode=True)
    except AttnwatchError as err:
        print(f"attnwatch: {err}", file=sys.stderr)
        sys.exit(int(err.exit_code))
    except KeyboardInterrupt:
        print("attnwatch: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(int(Exit.INFRASTRUCTURE))
