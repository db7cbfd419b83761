"""The progress bar of long work; quiet when standard error is no terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.sweep import SweepEvent


class Bar:
    """Shows the case at hand, how many are done, elapsed and remaining time."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.progress = Progress(
            BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False), console=Console(stderr=True),
        )  # fmt: skip
        self.task = self.progress.add_task("", total=None)

    def show(self, done: int, total: int, text: str) -> None:
        """Set what is shown."""
        self.progress.update(self.task, completed=done, total=total, description=text[:100])

    def records(self, done: int) -> None:
        """Show how many records were written; nobody knows of how many."""
        self.rows("records", done)

    def rows(self, what: str, done: int) -> None:
        """The same for whatever is counted."""
        self.progress.update(self.task, completed=done, total=None, description=what)

    def __call__(self, event: SweepEvent) -> None:
        case = event.case
        text = event.text if case is None else f"{case.backend} {case.workload.label}"
        self.show(event.index + (event.kind == "case"), event.total, text)


@contextlib.contextmanager
def bar() -> Iterator[Bar | None]:
    """A running bar, or None when nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    shown = Bar()
    with shown.progress:
        yield shown
