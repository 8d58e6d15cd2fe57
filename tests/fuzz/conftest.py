"""A Spark Connect server alone: no Kafka, registry or S3."""

import os

import pytest
from checking import COUNTS, ROWS
from decoding import Decoder

from lakehouse.local import stack as local_stack
from lakehouse.local.environment import environment
from lakehouse.local.home import Home
from resources.spark import Spark


@pytest.fixture(scope="session")
def decoder(tmp_path_factory):
    """What decodes records on the embedded server, which runs for the whole session."""
    home = Home(tmp_path_factory.mktemp("fuzz") / "home")
    before = dict(os.environ)
    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    try:
        local_stack.up(home, ("spark",))
        os.environ.update(environment(home))
        spark = Spark(remote=os.environ["SPARK_REMOTE"])
        yield Decoder(spark.session({}))
        spark.close()
    finally:
        os.environ.clear()
        os.environ.update(before)
        local_stack.down(home)


def pytest_sessionfinish(session):
    """Give what a process of several has generated to the one that shows it."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["generated"] = (dict(COUNTS), dict(ROWS))


def pytest_testnodedown(node):
    """Add what one of several processes has generated."""
    for total, counts in zip((COUNTS, ROWS), getattr(node, "workeroutput", {}).get("generated", ()), strict=False):
        total.update(counts)


def pytest_terminal_summary(terminalreporter):
    """Show what was generated, and which rows of docs/types.md it was examples of."""
    if COUNTS:
        terminalreporter.section("what was generated")
        terminalreporter.line(", ".join(f"{count:,} {what}" for what, count in sorted(COUNTS.items())))
        for (format_, row), count in sorted(ROWS.items()):
            terminalreporter.line(f"{count:6,} {format_}: {row}")
