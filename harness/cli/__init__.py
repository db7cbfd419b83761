"""The ``attnwatch`` command. Start-up is kept short: each command imports what it needs when it runs."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

INTERRUPTED = 130


def main() -> None:
    """Entry point: whatever goes wrong becomes one line on standard error and an exit code that means what it says.

    1 is kept for adverse findings; an error of ours is 3, with a traceback where ``ATTNWATCH_TRACEBACK`` is set.
    """
    try:
        code = _run()
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = _say("interrupted", INTERRUPTED)
    except BrokenPipeError as err:
        code = _pipe_broke(err)
    except OSError as err:
        code = _failed(f"standard output: {err.strerror}", err)
    sys.exit(code)


def _run() -> int:
    # Imported inside the guard: Ctrl-C while modules load is an interruption like any other.
    from harness.model.terms import AttnwatchError
    from harness.signals import terminable

    from .streams import readable_streams

    try:
        readable_streams()
        from .app import app

        with terminable():
            # The parser gives back the code of an Exit here rather than raising it.
            code = app(standalone_mode=False)
    except AttnwatchError as err:
        return _say(str(err), int(err.exit_code))
    except BrokenPipeError:
        raise
    except SystemExit as end:
        # The parser turns a broken pipe into exit code 1, which is ours for adverse findings.
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as err:
        return _unexpected(err)
    return code if isinstance(code, int) else 0


def _unexpected(err: Exception) -> int:
    import typer

    if isinstance(err, typer.Exit):
        return int(err.exit_code)
    if isinstance(err, typer.Abort):
        return _say("interrupted", INTERRUPTED)
    if hasattr(err, "format_message") and hasattr(err, "exit_code"):  # usage errors of the command line parser
        return _usage(err)
    if isinstance(err, UnicodeEncodeError):
        # File names may be any bytes; only what has to be text is refused, where it turns out.
        wrong = {c for c in err.object if "\ud800" <= c <= "\udfff"}
        for number, given in enumerate(sys.argv[1:], 1):
            if wrong & set(given):
                return _say(f"argument {number}: {os.fsencode(given)!r} is not UTF-8; give it as UTF-8 text", 2)
    if isinstance(err, OSError):
        where = f"{err.filename}: " if err.filename else ""
        return _failed(f"{where}{err.strerror or err}", err)
    return _failed(f"internal error: {type(err).__name__}: {err}", err)


def _usage(err: Any) -> int:
    """A usage error in one line like all others, and where the help is; the help itself where no command was named."""
    if type(err).__name__ == "NoArgsIsHelpError":
        err.show()
        return int(err.exit_code)
    context = getattr(err, "ctx", None)
    where = f"; see {context.command_path} --help" if context is not None else ""
    return _say(f"{err.format_message().rstrip('.')}{where}", int(err.exit_code))


def _failed(text: str, err: BaseException) -> int:
    if os.environ.get("ATTNWATCH_TRACEBACK"):
        import traceback

        traceback.print_exception(err)
    return _say(text.splitlines()[0][:500], 3)


def _pipe_broke(err: BrokenPipeError) -> int:
    """The reader of our output went away (``| head``): not our error. Any other broken pipe is one."""
    from .streams import drop_unread

    return 0 if drop_unread() else _failed(f"internal error: {type(err).__name__}: {err}", err)


def _say(text: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"attnwatch: {text}", file=sys.stderr)
    return code
