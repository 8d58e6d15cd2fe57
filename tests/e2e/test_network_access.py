"""Access to each port of the stack, compared with the table of docs/security.md."""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from pyspark.sql import functions

from lakehouse.local.processes import ports, process
from tests.support.processes.dagster_stack import dagster_of
from tests.support.servers import strangers
from tests.support.topics import Stream
from tools.repository import PROJECT


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    port: str
    server: str
    part: str
    others: bool
    """True if another user of the machine is let in."""
    pages: bool

    @property
    def name(self):
        return f"{self.server} {self.part}".strip()


def rows():
    """Return the rows of the table in docs/security.md."""
    table = []
    for line in (PROJECT / "docs/security.md").read_text().splitlines():
        if re.match(r"\| (\d+|random|none) ", line):
            port, server, _, others, pages = (cell.strip() for cell in line.strip("|").split("|"))
            assert {others.split(":")[0], pages.split(":")[0]} <= {"let in", "refused"}, line
            for name in re.findall("`(.*?)`", server):
                part = server.partition(",")[2].strip() if server.count("`") == 2 else ""
                table.append(Row(port, name, part, others.startswith("let in"), pages.startswith("let in")))
    return table


ROWS = rows()
CONNECTIONS = {
    "kafka": strangers.kafka,
    "kafka controller": strangers.kafka_controller,
    "registry": strangers.registry,
    "registry behind the guard": strangers.registry_behind_the_guard,
    "s3": strangers.s3,
    "aws": strangers.aws,
    "spark Spark Connect": strangers.spark_connect,
    "spark driver": strangers.spark_rpc,
    "spark blocks": strangers.spark_rpc,
    "snowflake": strangers.snowflake,
    "dagster": strangers.dagster,
}
"""Functions that connect as another user, by row."""

PATHS = {
    "registry": "/apis/ccompat/v7/subjects",
    "registry behind the guard": "/apis/ccompat/v7/subjects",
    "aws": "/moto-api/",
    "snowflake": "/healthz",
    "dagster": "/server_info",
}
"""Paths that foreign pages request, by row; a server responds if a program requests them."""


@pytest.fixture(scope="module")
def whole_stack(stack, resources, tmp_path_factory):
    """Yield the shared stack with Dagster and a Python worker of Spark, which are servers too."""
    stream = Stream(resources)
    stream.produce_trades(range(3))
    session = resources.spark.session({})
    successor = functions.udf(lambda number: number + 1, "bigint")
    assert session.range(1).select(successor("id").alias("number")).collect() == [(1,)]
    with dagster_of(stream, stack, tmp_path_factory.mktemp("strangers")):
        yield stack


@pytest.fixture(scope="module")
def sockets(whole_stack):
    """Return the TCP ports on which the processes of each server listen."""
    ports_of_server = {}
    for name, running in process.running(whole_stack).items():
        listening = {
            socket.laddr.port
            for member in running.processes
            for socket in member.net_connections("tcp")
            if socket.status == psutil.CONN_LISTEN
        }
        ports_of_server[name] = listening
    return ports_of_server


@pytest.fixture(scope="module")
def open_ports(whole_stack, sockets):
    """Return the port of each row of the table."""
    recorded = ports.recorded(whole_stack)
    usual = {str(port): name for name, port in ports.USUAL.items()}
    port_of_row = {row.name: recorded[usual[row.port]] for row in ROWS if row.port in usual}
    for server in sockets:
        others = sorted(sockets[server] - set(port_of_row.values()))
        random = [row.name for row in ROWS if (row.server, row.port) == (server, "random")]
        assert len(others) == len(random), f"{server} listens on {others}, and docs/security.md has {random}"
        port_of_row |= dict(zip(random, others, strict=True))
    return port_of_row


def test_listening_sockets_are_all_documented(sockets, open_ports):
    assert set().union(*sockets.values()) == set(open_ports.values())
    assert set(open_ports) == set(CONNECTIONS)
    assert {row.server for row in ROWS} >= set(sockets)


@pytest.mark.parametrize("row", [row for row in ROWS if row.port != "none"], ids=lambda row: row.name)
def test_access_of_other_users_is_as_documented(row, open_ports):
    assert CONNECTIONS[row.name](open_ports[row.name]) == row.others


@pytest.mark.parametrize("row", [row for row in ROWS if row.port != "none"], ids=lambda row: row.name)
def test_access_of_foreign_pages_is_as_documented(row, open_ports):
    assert strangers.page(open_ports[row.name], PATHS.get(row.name, "/")) == row.pages


def test_unix_sockets_and_secrets_are_closed_to_other_users(whole_stack):
    bound = {
        Path(socket.laddr)
        for running in process.running(whole_stack).values()
        for member in running.processes
        for socket in member.net_connections("unix")
        if socket.laddr.startswith("/")
    }
    folder = whole_stack.sockets()
    assert folder / "dagster-code" in bound and any(path.match(f"{folder}/.*.sock") for path in bound)
    secrets = whole_stack.path / "secrets"
    for path in {secrets, *(socket.parent for socket in bound)}:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    if os.geteuid() == 0:  # only the administrator can act as another user
        assert strangers.as_nobody(lambda: os.listdir("/tmp"))
        assert not any(strangers.unix_socket(path) for path in bound)
        assert not strangers.as_nobody((secrets / "spark_token").read_text)
