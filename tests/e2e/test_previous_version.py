"""The state folder of the previous version: this one starts it, reads its tables and continues them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile

import pytest
from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog

from lakehouse.local import stack as local_stack
from lakehouse.local.client_environment import environment
from lakehouse.local.home import Home
from tests.support.topics import TRADES, framed, register, s3_settings, trade
from tools.repository import PROJECT

RECORDED = PROJECT / "tests/support/recorded"
[ARCHIVE] = RECORDED.glob("state-*.tar.xz")
TOPICS = ("recorded_append", "recorded_upsert")


@pytest.fixture
def previous(tmp_path, monkeypatch):
    """Start the servers of the previous version's state folder, to which the environment refers."""
    home = Home(tmp_path / "home")
    home.folder("")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(home.path, filter="data")
    try:
        local_stack.up(home, ("kafka", "registry", "s3", "spark"))
        for name, value in environment(home).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("LAKEHOUSE_HOME", str(home.path))
        monkeypatch.setenv("LAKEHOUSE_CONFIG", str(RECORDED / "lakehouse.yaml"))
        monkeypatch.delenv("LAKEHOUSE_ENV", raising=False)
        yield
    finally:
        local_stack.down(home)


def command(*arguments: str) -> str:
    """Run a command in a process of its own, as a user does, and return its output."""
    program = [sys.executable, "-m", "lakehouse.cli.main", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def produce(topic: str, numbers: range) -> None:
    """Produce trades with the schema that the previous version registered."""
    schema_id = register(f"{topic}-value", TRADES)
    producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
    for record in map(trade, numbers):
        producer.produce(topic, key=record["userid"].encode(), value=framed(schema_id, TRADES, record))
    assert producer.flush(30) == 0


@pytest.mark.usefixtures("previous")
def test_tables_of_previous_version_are_complete_and_continued():
    for topic in TOPICS:
        assert "Every offset is accounted for" in command("ledger", topic)
        produce(topic, range(20, 25))
    command("stream", "--once")
    catalog = load_catalog("lake", type="sql", uri=os.environ["ICEBERG_CATALOG_URI"], **s3_settings())
    rows, newest = (catalog.load_table(("recorded", topic)).scan().to_arrow().to_pylist() for topic in TOPICS)
    assert sorted(row["kafka_offset"] for row in rows) == [*range(20), *range(21, 26)]
    trades = {record["userid"]: record for record in map(trade, range(25))}
    assert {row["userid"]: {name: row[name] for name in trade(0)} for row in newest} == trades
    for topic in TOPICS:
        assert "26 records consumed" in command("ledger", topic)
