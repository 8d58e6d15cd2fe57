"""A Spark Connect server without Kafka, registry and S3, and the summary of generated cases."""

import os

import pytest

from lakehouse.local import stack as local_stack
from lakehouse.local.client_environment import environment
from lakehouse.local.home import Home
from resources.spark.servers import Connect
from tests.support.fuzz.checking import COUNTS, ROWS
from tests.support.fuzz.decoding import Decoder


@pytest.fixture(scope="session")
def decoder(archive_of_spark, tmp_path_factory):
    """Return the decoder of records on an embedded server, which runs for the whole session."""
    home = Home(tmp_path_factory.mktemp("fuzz") / "home")
    before = dict(os.environ)
    try:
        local_stack.up(home, ("spark",))
        os.environ.update(environment(home))
        spark = Connect(remote=os.environ["SPARK_REMOTE"])
        yield Decoder(spark.session({}))
        spark.close()
    finally:
        os.environ.clear()
        os.environ.update(before)
        local_stack.down(home)


def pytest_sessionfinish(session):
    """Pass the counts of a worker process to the controller, which prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["generated"] = (dict(COUNTS), dict(ROWS))


def pytest_testnodedown(node):
    """Add the counts of a worker process."""
    for total, counts in zip((COUNTS, ROWS), getattr(node, "workeroutput", {}).get("generated", ()), strict=False):
        total.update(counts)


def pytest_terminal_summary(terminalreporter):
    """Print the number of generated cases, and the number for each row of docs/types.md."""
    if COUNTS:
        terminalreporter.section("what was generated")
        terminalreporter.line(", ".join(f"{count:,} {kind}" for kind, count in sorted(COUNTS.items())))
        for (format_, row), count in sorted(ROWS.items()):
            terminalreporter.line(f"{count:6,} {format_}: {row}")
