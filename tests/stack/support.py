"""What tests of ingestion share: topics of their own, and an oracle that never asks the project's code."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastavro
import killed
import yaml
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from forked import Forked, fork
from pyiceberg.catalog import load_catalog

from lakehouse.config.loader import PROJECT, Config
from lakehouse.config.topic import Topic
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import Published, ingest
from lakehouse.pipeline.staged_commit import OnPhase, Phase, no_report
from lakehouse.readers import reader_of
from lakehouse.readers.reader import Registration

TRADES = (PROJECT / "schemas/stock_trades.avsc").read_text()
METADATA = ("kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_schema_id")


@cache
def admin() -> AdminClient:
    """A Kafka admin client of the tests' own; kept, because its answers are lost with it."""
    return AdminClient({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})


@cache
def registry() -> SchemaRegistryClient:
    """A registry client of the tests' own."""
    return SchemaRegistryClient({"url": os.environ["SCHEMA_REGISTRY_URL"], "timeout": 10})


def register(subject: str, schema: str) -> int:
    """The id of an Avro schema under a subject."""
    return registry().register_schema(subject, Schema(schema, "AVRO"))


def framed(schema_id: int, schema: str, record: dict[str, Any]) -> bytes:
    """A record in the Confluent wire format."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(schema)), record)
    return struct.pack(">bI", 0, schema_id) + body.getvalue()


def trade(number: int, **changes: Any) -> dict[str, Any]:
    """A stock trade that differs from its neighbours in every column it can."""
    return {
        "side": ("BUY", "SELL")[number % 2],
        "quantity": 1 + number % 4999,
        "symbol": ("ZBZX", "ZJZZT", "ZTEST")[number % 3],
        "price": 5 + number % 995,
        "account": ("ABC123", "LMN456")[number % 2],
        "userid": f"User_{1 + number % 9}",
    } | changes


@dataclass
class Message:
    """What the oracle read: a record as the broker has it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass
class Stream:
    """A topic of one test, declared as in lakehouse.yaml, and everything needed to look at it from outside."""

    resources: Any
    partitions: int = 3
    settings: dict[str, Any] = field(default_factory=dict)
    namespace: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:10]}")

    def __post_init__(self) -> None:
        self.settings = {"key": "userid", "errors": "log"} | self.settings
        self.topic = Topic.model_validate(self.settings | {"name": f"topic-{self.namespace}"})
        self.create()

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def config(self) -> Config:
        return Config(namespace=self.namespace, topics={self.name: self.topic}, environments={})

    @property
    def systems(self) -> Clients:
        r = self.resources
        return Clients.of(r)

    def show(self, reader: str, **clients: Any) -> Registration:
        """Publish the table in a reader, with other clients than the resources where they are given."""
        given = SimpleNamespace(
            **{"catalog": self.resources.catalog, reader: getattr(self.resources, reader, None)} | clients
        )
        topic, table = given.catalog.published(self.namespace, self.topic)
        return reader_of(reader).publish(self.namespace, topic, table, given)

    def create(self) -> None:
        # Some tests choose timestamps, and a broker drops old ones whenever it looks.
        topic = NewTopic(self.name, self.partitions, config={"retention.ms": "-1"})
        for created in admin().create_topics([topic]).values():
            created.result()

    def schema(self, schema: str = TRADES) -> int:
        """Register the value schema."""
        return register(f"{self.name}-value", schema)

    def produce(self, messages: list[dict[str, Any]], **config: Any) -> None:
        """Produce messages given as confluent_kafka's produce takes them."""
        producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], **config})
        for message in messages:
            producer.produce(self.name, **message)
            producer.poll(0)
        assert producer.flush(30) == 0

    def produce_trades(self, numbers: range, schema: str = TRADES) -> None:
        schema_id = self.schema(schema)
        trades = [trade(n) for n in numbers]
        self.produce([{"key": t["userid"].encode(), "value": framed(schema_id, schema, t)} for t in trades])

    def die(self, point: str, folder: Path, extra: dict[str, Any] | None = None, topic: str | None = None) -> None:
        """Ingest (or derive) in another process, which dies at a point; see killed.py."""
        ended = self.start(point, folder, extra, topic).wait(120)
        assert ended == -signal.SIGKILL, f"it did not die {point} but ended with {ended}"

    def start(self, point: str, folder: Path, extra: dict[str, Any] | None = None, topic: str | None = None) -> Forked:
        """Another process that ingests (or derives), up to a point."""
        return fork(killed.main, point, str(self.declare(folder, extra)), topic or self.name)

    def declare(self, folder: Path, extra: dict[str, Any] | None = None) -> Path:
        """A lakehouse.yaml in `folder` that declares this topic, and `extra` ones, for another process."""
        declared = {self.name: self.settings} | (extra or {})
        environments = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())["environments"]
        file = folder / "lakehouse.yaml"
        file.write_text(yaml.safe_dump({"namespace": self.namespace, "topics": declared, "environments": environments}))
        return file

    def ingest(self, on_phase: OnPhase = no_report) -> list[Published]:
        return list(ingest(self.namespace, self.topic, self.systems, on_phase=on_phase))

    def table(self, name: str | None = None) -> Any:
        """The table as a pyiceberg catalog of the tests' own loads it; None when there is none."""
        catalog = load_catalog(
            "lake",
            type="sql",
            uri=os.environ["ICEBERG_CATALOG_URI"],
            **{"s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"], "s3.region": os.environ["AWS_REGION"]},
        )
        identifier = (self.namespace, name or self.topic.table)
        return catalog.load_table(identifier) if catalog.table_exists(identifier) else None

    def rows(self) -> list[dict[str, Any]]:
        """The published rows, in the order of the log."""
        table = self.table()
        return in_order(table.scan().to_arrow().to_pylist()) if table else []

    def dead_letters(self) -> list[dict[str, Any]]:
        """The dead letters with their records' fields beside them, in the order of the log."""
        table = self.table(f"{self.topic.table}__dead_letters")
        letters = table.scan().to_arrow().to_pylist() if table else []
        for letter in letters:
            record = letter.pop("source_record")
            letter |= {k if k in ("key", "value", "headers", "topic") else f"kafka_{k}": v for k, v in record.items()}
        return in_order(letters)

    def messages(self) -> list[Message]:
        """Every committed record of the topic, as a consumer of the tests' own reads them."""
        return consume(self.name, self.partitions)

    def expected_rows(self) -> list[dict[str, Any]]:
        """What the table must hold when every message becomes a row, decoded by Confluent's deserializer."""
        # The default strategy asks the registry for "associations", which only Confluent's has.
        decode = AvroDeserializer(registry(), conf={"subject.name.strategy": topic_subject_name_strategy})
        context = SerializationContext(self.name, MessageField.VALUE)
        return in_order([decode(m.value, context) | metadata(m) for m in self.messages()])


def once(phase: Phase, act: Callable[[], Any]) -> tuple[OnPhase, list[Any]]:
    """Do something when a phase begins for the first time. The list will hold what it returned."""
    done: list[Any] = []

    def on_phase(begun: Phase) -> None:
        if begun == phase and not done:
            done.append(None)
            done[0] = act()

    return on_phase, done


CHEAP = {"cheap": {"type": "range", "column": "price", "max": 50, "severity": "quarantine"}}
"""Checks that some trades pass and some do not."""


def with_checks(topic: Topic, checks: dict[str, Any]) -> Topic:
    """The topic with checks as lakehouse.yaml would declare them."""
    return Topic.model_validate({**topic.model_dump(by_alias=True), "name": topic.name, "checks": checks})


def recreate(stream: Stream) -> None:
    """Delete the topic and create it again. Brokers finish a deletion some time after they answered."""
    for deleted in admin().delete_topics([stream.name]).values():
        deleted.result()
    for _ in range(50):
        try:
            return stream.create()
        except KafkaException as error:
            assert error.args[0].name() == "TOPIC_ALREADY_EXISTS"
            time.sleep(0.2)
    raise AssertionError(f"{stream.name} was not deleted within 10 s")


def metadata(message: Message) -> dict[str, Any]:
    """The metadata columns of a message's row."""
    return {
        "kafka_partition": message.partition,
        "kafka_offset": message.offset,
        "kafka_timestamp": message.timestamp_ms,
        "kafka_schema_id": struct.unpack(">I", (message.value or b"\0" * 5)[1:5])[0],
    }


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by partition and offset, with Kafka's timestamps as milliseconds."""
    for row in rows:
        if hasattr(row["kafka_timestamp"], "timestamp"):
            row["kafka_timestamp"] = round(row["kafka_timestamp"].timestamp() * 1000)
    return sorted(rows, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))


def consume(topic: str, partitions: int) -> list[Message]:
    """Every record a read_committed consumer gets from the start to the end of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": f"oracle-{uuid.uuid4()}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found, open_partitions = [], set(range(partitions))
    while open_partitions:
        message = consumer.poll(20)
        assert message is not None, f"no end of {topic} within 20 s"
        if message.error():
            open_partitions.discard(message.partition())
            continue
        found.append(
            Message(
                message.partition(),
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                message.headers() or [],
            )
        )
    consumer.close()
    return found
