"""Servers that tests share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .servers import Server, start_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One PostgreSQL server for all tests."""
    # Not under pytest's folder, which only its owner may enter; and the path of a socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="attnwatch-pg-"))
    try:
        made = start_server(folder)
        try:
            yield made
        finally:
            made.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database(server: Server) -> str:
    """URL of an empty database."""
    return server.new_database()
