"""Apache Kafka: one broker that is its own controller (KRaft), durable in the state folder."""

from __future__ import annotations

import base64
import shutil
import uuid
from pathlib import Path

from lakehouse.errors import LakehouseError
from lakehouse.local import jars
from lakehouse.local.context import LOOPBACK, Context
from lakehouse.local.home import Home, write_atomically
from lakehouse.local.java import class_path, java
from lakehouse.local.process import Server, run_tool


def server(context: Context) -> Server:
    """The broker."""
    folder = context.home.folder("kafka")
    ports = {name: context.ports[name] for name in ("kafka", "kafka-controller")}
    address = f"{LOOPBACK}:{ports['kafka']}"
    properties = folder / "server.properties"
    libs = class_path(jars.paths("kafka"))

    def prepare() -> None:
        write_atomically(properties, _properties(folder / "data", *ports.values()))
        _format(context.home, libs)

    def ready() -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            return bool(AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    options = ("-XX:TieredStopAtLevel=1", "-Dlog4j2.level=INFO")
    return Server(
        name="kafka",
        command=java(*options, "-cp", libs, "kafka.Kafka", str(properties), heap="384m"),
        folder=folder,
        address=address,
        ready=ready,
        env={},
        ports=ports,
        prepare=prepare,
    )


def _properties(data: Path, port: int, controller_port: int) -> str:
    """Settings of a single node. Internal topics get one replica and, to start fast, one partition.

    The cleaner's buffer is 128 MB by default and the request queue 500 long; both are sized for a large broker.
    """
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{LOOPBACK}:{controller_port}
listeners=PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}
advertised.listeners=PLAINTEXT://{LOOPBACK}:{port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=4
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=4194304
queued.max.requests=200
"""


def _format(home: Home, libs: str) -> None:
    """Give an empty data folder its cluster id. Formatted aside and moved into place, so never half formatted.

    Raises: LakehouseError when records are there but the cluster id is not, or the tool fails.
    """
    folder = home.folder("kafka")
    data, fresh = folder / "data", folder / "data.new"
    if (data / "meta.properties").exists():
        return
    if data.exists() and any(data.iterdir()):
        raise LakehouseError(
            f"Kafka's data folder {data} holds files but not meta.properties, which names the cluster they belong to."
            " Nothing was changed. Restore that file, or move the folder away to start with empty topics"
        )
    shutil.rmtree(fresh, ignore_errors=True)
    properties = write_atomically(folder / "format.properties", _properties(fresh, port=9092, controller_port=9093))
    # A random id may begin with a hyphen: after '=' it is not taken for an option.
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    tool = ("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config", str(properties))
    run_tool("kafka", home, java("-XX:TieredStopAtLevel=1", "-cp", libs, *tool, heap="128m"))
    if data.exists():
        data.rmdir()
    fresh.rename(data)
