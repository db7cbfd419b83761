"""metrics, traces."""

from __future__ import annotations

import threading
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from harness.model.terms import InputError

from .common import DbOption, JsonOption, note, print_json

_PORT = 9464


def metrics(
    textfile: Annotated[
        Path | None, typer.Option("--textfile", metavar="FILE", help="Write them there, for node_exporter.")
    ] = None,
    serve: Annotated[
        str | None, typer.Option("--serve", metavar="[HOST:]PORT", help="Answer GET /metrics until Ctrl-C.")
    ] = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Figures of the newest runs and open incidents for Prometheus; printed where nothing else is asked."""
    from harness.observing import prometheus

    if json_out and (textfile or serve):
        raise InputError("--json prints the figures; leave --textfile and --serve away")
    if json_out:
        print_json({"figures": [asdict(f) for f in prometheus.read(db)]})
        return
    if textfile is not None:
        prometheus.write(db, textfile)
        note(f"written to {textfile}")
    if serve is not None:
        host, port = _address(serve)
        server, _ = prometheus.serve(db, host, port, note)
        shown = f"[{host}]" if ":" in host else host
        note(f"http://{shown}:{server.server_port}/metrics")
        threading.Event().wait()
    if textfile is None:
        print(prometheus.text(db), end="")


def traces(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="The newest by default.")] = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Send a run as an OpenTelemetry trace, a span for each case; OTEL_EXPORTER_OTLP_ENDPOINT says where."""
    from db.engine import open_store
    from harness.observing.spans import send

    with open_store(db, create=False, read_only=True) as store:
        trace, sent = send(store, run)
    if json_out:
        print_json({"trace": trace, "spans": sent})
        return
    note(f"{sent} spans sent, trace {trace}")


def _address(given: str) -> tuple[str, int]:
    """Host (this machine alone by default) and port."""
    host, _, port = given.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InputError(f"--serve: {given!r} is no [HOST:]PORT, such as {_PORT} or 0.0.0.0:{_PORT}")
    return host.strip("[]") or "127.0.0.1", int(port)
