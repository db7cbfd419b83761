"""A PostgreSQL server of its own for tests: temporary data folder, free port, its own user where started as root."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import psycopg

_OPTIONS = "-c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=60 -c log_min_messages=panic"


class Server:
    """A server with any number of databases. ``stop`` and ``start`` are those of a real one."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.data = programs, folder / "data"
        self.port = _free_port()
        self._as: list[str] = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
            self._as = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self._run("initdb", "-D", str(self.data), "-A", "trust", "-U", "attnwatch", "-E", "UTF8", "--no-sync")
        self.socket = folder
        self.start()

    def _run(self, program: str, *args: str) -> None:
        # A server inherits the standard streams of pg_ctl; with a pipe of ours we would wait for it for ever.
        log = self.data.parent / f"{program}.log"
        with log.open("ab") as file:
            done = subprocess.run(
                [*self._as, str(self.programs / program), *args],
                cwd=self.data.parent, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=120, check=False,
            )  # fmt: skip
        assert done.returncode == 0, log.read_text(errors="replace")[-2000:]

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = f"{_OPTIONS} -p {self.port} -k {self.socket}"
        self._run(
            "pg_ctl", "-D", str(self.data), "-w", "-l", str(self.data.parent / "server.log"), "-o", options, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop: ``fast`` cuts connections, ``immediate`` is a crash."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop")

    def url(self, database: str = "postgres") -> str:
        """What ``--db`` takes."""
        return f"postgresql+psycopg://attnwatch@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """A connection past everything of ours, in autocommit."""
        import psycopg

        return psycopg.connect(host="127.0.0.1", port=self.port, user="attnwatch", dbname=database, autocommit=True)

    def new_database(self) -> str:
        """URL of a database that nobody has used."""
        name = f"t{uuid.uuid4().hex[:12]}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def programs() -> Path | None:
    """The folder of initdb and pg_ctl: on the path, or where Debian keeps them; the newest version counts."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    versions = [p for p in Path("/usr/lib/postgresql").glob("*/bin/initdb") if p.parts[-3].isdigit()]
    return max(versions, key=lambda p: int(p.parts[-3])).parent if versions else None


def start_server(folder: Path) -> Server:
    """A running server, or a skip with its reason; CI accepts no excuse."""
    found = programs()
    if found is None:
        why = "no PostgreSQL server here; install Debian's package postgresql"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return Server(found, folder)
