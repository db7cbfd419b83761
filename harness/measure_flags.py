"""The flags of measuring, once: ``python -m harness.measure`` and ``attnwatch measure`` are both made from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.model.suite import DEFAULT_SUITE


@dataclass(frozen=True)
class Flag:
    """One flag. ``kind`` says what its text must be; a ``switch`` takes none and ``repeat`` may be given again."""

    name: str
    help: str
    metavar: str = ""
    kind: Literal["text", "repeat", "switch", "duration", "positive", "integer"] = "text"
    default: str | None = None

    @property
    def key(self) -> str:
        """Its name as an identifier."""
        return self.name.removeprefix("--").replace("-", "_")


FLAGS = (
    Flag("--suite", "A named suite or a workload file.", "NAME|FILE", default=DEFAULT_SUITE),
    Flag("--backend", "Backends to ask, by glob or by function; may be given again.", "GLOB|MODULE:FUNCTION", "repeat"),
    Flag("--where", "Only cases for which the expression holds, such as 'kv_len % 128 == 1'.", "EXPR"),
    Flag("--out", "The bundle, resumed where it exists; attnwatch-SUITE.jsonl by default.", "FILE"),
    Flag("--device", "cpu or cuda:N; a GPU where there is one.", "DEVICE"),
    Flag("--budget", "Begin no case after 90s, 15m, 2h.", "TIME", "duration"),
    Flag("--shard", "Only part I of N of the cases; the parts together are all of them.", "I/N"),
    Flag("--shard-costs", "A bundle of an earlier run: shards are balanced by the time its cases took.", "FILE"),
    Flag("--run", "What the shards of one run share; the id of the CI run where there is one.", "NAME"),
    Flag("--reuse", "Leave out what the store there holds of these kernels in this environment.", "URL"),
    Flag("--isolate", "A fresh process for each case.", kind="switch"),
    Flag("--rel-width", "Half-width of the median's interval to stop at, such as 0.02.", "X", "positive"),
    Flag("--max-seconds", "Longest sampling of one metric.", "S", "positive"),
    Flag("--timeout", "Longest time for one case.", "S", "positive"),
    Flag("--seed", "Seed of the inputs.", "N", "integer"),
    Flag("--quick", "Wider intervals, latency only.", kind="switch"),
    Flag("--dry-run", "Say how much would be measured and end.", kind="switch"),
    Flag("--list", "Print the cases and measure nothing.", kind="switch"),
    Flag("--json", "JSON alone on standard output.", kind="switch"),
)


def argv(given: dict[str, object]) -> list[str]:
    """A command line out of values by :attr:`Flag.key`; None, False and nothing are not given."""
    out: list[str] = []
    for flag in FLAGS:
        value = given.get(flag.key)
        if isinstance(value, list | tuple):
            out += [f"{flag.name}={v}" for v in value]
        elif value is True:
            out.append(flag.name)
        elif value is not None and value is not False:
            out.append(f"{flag.name}={value}")
    return out
