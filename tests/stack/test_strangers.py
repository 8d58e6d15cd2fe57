"""docs/security.md says who is let in at each port of the stack; here the stack is asked."""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import strangers
from dagster_stack import dagster_of
from pyspark.sql import functions
from support import Stream

from lakehouse.config.loader import PROJECT
from lakehouse.local import ports, process


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    port: str
    server: str
    part: str
    others: bool
    """Whether another user of the machine is let in."""
    pages: bool

    @property
    def name(self):
        return f"{self.server} {self.part}".strip()


def rows():
    """The table of docs/security.md."""
    found = []
    for line in (PROJECT / "docs/security.md").read_text().splitlines():
        if re.match(r"\| (\d+|random|none) ", line):
            port, server, _, others, pages = (cell.strip() for cell in line.strip("|").split("|"))
            assert {others.split(":")[0], pages.split(":")[0]} <= {"let in", "refused"}, line
            for name in re.findall("`(.*?)`", server):
                part = server.partition(",")[2].strip() if server.count("`") == 2 else ""
                found.append(Row(port, name, part, others.startswith("let in"), pages.startswith("let in")))
    return found


ROWS = rows()
KNOCKS = {
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
"""How a stranger asks to be let in, by row."""

PATHS = {
    "registry": "/apis/ccompat/v7/subjects",
    "registry behind the guard": "/apis/ccompat/v7/subjects",
    "aws": "/moto-api/",
    "snowflake": "/healthz",
    "dagster": "/server_info",
}
"""What a page asks for: something that a program gets an answer to."""


@pytest.fixture(scope="module")
def whole_stack(stack, resources, tmp_path_factory):
    """The shared stack with Dagster and a Python worker of Spark, as the servers that run in it."""
    stream = Stream(resources)
    stream.produce_trades(range(3))
    session = resources.spark.session({})
    following = functions.udf(lambda number: number + 1, "bigint")
    assert session.range(1).select(following("id").alias("number")).collect() == [(1,)]
    with dagster_of(stream, stack, tmp_path_factory.mktemp("strangers")):
        yield stack


@pytest.fixture(scope="module")
def sockets(whole_stack):
    """The TCP ports on which each server's processes listen."""
    found = {}
    for name, running in process.running(whole_stack).items():
        listening = {
            socket.laddr.port
            for member in running.processes
            for socket in member.net_connections("tcp")
            if socket.status == psutil.CONN_LISTEN
        }
        found[name] = listening
    return found


@pytest.fixture(scope="module")
def open_ports(whole_stack, sockets):
    """The ports of each row of the table."""
    known = ports.recorded(whole_stack)
    usual = {str(port): name for name, port in ports.USUAL.items()}
    found = {row.name: known[usual[row.port]] for row in ROWS if row.port in usual}
    for server in sockets:
        others = sorted(sockets[server] - set(found.values()))
        random = [row.name for row in ROWS if (row.server, row.port) == (server, "random")]
        assert len(others) == len(random), f"{server} listens on {others}, and docs/security.md has {random}"
        found |= dict(zip(random, others, strict=True))
    return found


def test_every_listening_socket_is_in_the_table(sockets, open_ports):
    assert set().union(*sockets.values()) == set(open_ports.values())
    assert set(open_ports) == set(KNOCKS)
    assert {row.server for row in ROWS} >= set(sockets)


@pytest.mark.parametrize("row", [row for row in ROWS if row.port != "none"], ids=lambda row: row.name)
def test_another_user_is_let_in_where_the_table_says_so(row, open_ports):
    assert KNOCKS[row.name](open_ports[row.name]) == row.others


@pytest.mark.parametrize("row", [row for row in ROWS if row.port != "none"], ids=lambda row: row.name)
def test_a_page_of_another_site_is_let_in_where_the_table_says_so(row, open_ports):
    assert strangers.page(open_ports[row.name], PATHS.get(row.name, "/")) == row.pages


def test_no_other_user_reaches_the_unix_sockets_and_secrets_of_the_stack(whole_stack):
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
    if os.geteuid() == 0:  # who is not the administrator cannot act as somebody else
        assert strangers.as_nobody(lambda: os.listdir("/tmp"))
        assert not any(strangers.unix_socket(path) for path in bound)
        assert not strangers.as_nobody((secrets / "spark_token").read_text)
