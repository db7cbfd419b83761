"""Figures in the text format of Prometheus: once, into a file for node_exporter, or served at ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from db.engine import open_store
from harness.extras import needed
from harness.model import AttnwatchError, InfrastructureError

from .figures import HELP, Figure, figures

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

EXTRA = "observability"

Say = Callable[[str], None]


def registry(db: str | None, say: Say) -> CollectorRegistry:
    """A registry that reads the store anew at each scrape. One that cannot be read is ``attnwatch_store_up 0``."""
    client = needed("prometheus_client", EXTRA)
    made = client.CollectorRegistry(auto_describe=False)
    made.register(_Collector(db, say, _family()))
    held: CollectorRegistry = made
    return held


def text(db: str | None) -> str:
    """The figures as text. Raises what reading the store raises."""
    client = needed("prometheus_client", EXTRA)
    made = client.CollectorRegistry(auto_describe=False)
    made.register(_Fixed(read(db), _family()))
    shown: bytes = client.generate_latest(made)
    return shown.decode()


def write(db: str | None, path: Path) -> None:
    """Put the figures into ``path`` at once, as node_exporter's textfile collector wants it (``*.prom``)."""
    shown, part = text(db), path.with_name(f"{path.name}.part")
    try:
        part.write_text(shown, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise InfrastructureError(f"{path}: {error.strerror}; --textfile names a file that can be written") from None


def serve(db: str | None, host: str, port: int, say: Say) -> tuple[Any, Any]:
    """Start to answer ``GET /metrics`` on a thread; (server, thread). InfrastructureError where the port is taken."""
    client = needed("prometheus_client", EXTRA)
    try:
        server, thread = client.start_http_server(port, host, registry(db, say))
    except OSError as error:
        raise InfrastructureError(f"--serve {host}:{port}: {error.strerror}; give another port") from None
    return server, thread


def read(db: str | None) -> list[Figure]:
    """Figures of the store at ``db``."""
    with open_store(db, create=False, read_only=True) as store:
        return figures(store)


def _family() -> Any:
    return needed("prometheus_client.metrics_core", EXTRA).GaugeMetricFamily


def _families(found: list[Figure], family: Any) -> Iterator[Any]:
    for name, words in HELP.items():
        mine = [f for f in found if f.name == name]
        if mine:
            made = family(name, words, labels=list(mine[0].labels))
            for figure in mine:
                made.add_metric(list(figure.labels.values()), figure.value)
            yield made


class _Fixed:
    def __init__(self, found: list[Figure], family: Any) -> None:
        self.found, self.family = found, family

    def collect(self) -> Iterator[Any]:
        return _families(self.found, self.family)


class _Collector:
    def __init__(self, db: str | None, say: Say, family: Any) -> None:
        self.db, self.say, self.family = db, say, family

    def collect(self) -> Iterator[Any]:
        try:
            found = read(self.db)
        except AttnwatchError as error:
            self.say(str(error))
            found = [Figure("attnwatch_store_up", 0.0)]
        return _families(found, self.family)
