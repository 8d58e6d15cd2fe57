"""Topics for tests of ingestion, and expected rows that are computed without the project's code."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastavro
import yaml
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.catalog import load_catalog

from lakehouse.config.model import Config, Topic
from lakehouse.core.polling import poll
from lakehouse.core.table_protocol import BOOKMARKS
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.staged_commit import OnPhase, Phase, no_report
from lakehouse.pipeline.ingestion import Published, ingest
from lakehouse.readers import reader_of
from lakehouse.readers.reader import Registration
from tests.support.declared import EMBEDDED_READERS
from tests.support.intercepted import InterceptedEngines, Interceptor, acting_once
from tests.support.processes import killed
from tests.support.processes.forked import Forked, fork
from tools.repository import PROJECT

TRADES = (PROJECT / "schemas/stock_trades.avsc").read_text()
METADATA = ("kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_schema_id")


def admin() -> AdminClient:
    """Return the Kafka admin client of the tests, which is cached because its futures end with it."""
    return _admin_of(os.environ["KAFKA_BOOTSTRAP_SERVERS"])


def registry() -> SchemaRegistryClient:
    """Return the registry client of the tests."""
    return _registry_of(os.environ["SCHEMA_REGISTRY_URL"])


@cache
def _admin_of(address: str) -> AdminClient:
    # It outlives the broker, and would report every second at the end of the tests that it cannot connect.
    return AdminClient({"bootstrap.servers": address, "log_level": 0})


@cache
def _registry_of(address: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": address, "timeout": 10})


def register(subject: str, schema: str) -> int:
    """Register an Avro schema under a subject, and return its id."""
    return registry().register_schema(subject, Schema(schema, "AVRO"))


def framed(schema_id: int, schema: str, record: dict[str, Any]) -> bytes:
    """Return a record in the Confluent wire format."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(schema)), record)
    return struct.pack(">bI", 0, schema_id) + body.getvalue()


def trade(number: int, **changes: Any) -> dict[str, Any]:
    """Return a stock trade that differs from its neighbours in as many columns as possible."""
    return {
        "side": ("BUY", "SELL")[number % 2],
        "quantity": 1 + number % 4999,
        "symbol": ("ZBZX", "ZJZZT", "ZTEST")[number % 3],
        "price": 5 + number % 995,
        "account": ("ABC123", "LMN456")[number % 2],
        "userid": f"User_{1 + number % 9}",
    } | changes


def with_types(schema: str, **types: str) -> str:
    """Return an Avro schema with other types of some fields."""
    parsed = json.loads(schema)
    for field_ in parsed["fields"]:
        field_["type"] = types.get(field_["name"], field_["type"])
    return json.dumps(parsed)


def s3_settings() -> dict[str, str]:
    """Return the settings of a pyiceberg catalog whose files are in the stack's S3."""
    return {"s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"], "s3.region": os.environ["AWS_REGION"]}


@dataclass
class Message:
    """A record of the broker, as the tests read it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass
class Stream:
    """A topic of one test with its configuration, and readers of its table that use no code of the project."""

    resources: Any
    partitions: int = 3
    settings: dict[str, Any] = field(default_factory=dict)
    namespace: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:10]}")
    interceptors: dict[str, Interceptor] = field(default_factory=dict)
    """Interceptors of operations of the engine, by name (intercepted.py)."""

    def __post_init__(self) -> None:
        self.settings = {"key": "userid", "errors": "log"} | self.settings
        self.topic = Topic.model_validate(self.settings | {"name": f"topic-{self.namespace}"})
        self.create()

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def config(self) -> Config:
        return Config(namespace=self.namespace, topics={self.name: self.topic}, environments=EMBEDDED_READERS)

    @property
    def systems(self) -> Clients:
        clients = Clients.of(self.resources)
        return replace(clients, engines=InterceptedEngines(clients.engines, self.interceptors))

    def before_first(self, operation: str, act: Callable[[], Any]) -> list[Any]:
        """Act before the first call of an operation of the engine; the result is in the list then."""
        self.interceptors[operation], done = acting_once(act)
        return done

    def show(self, reader: str, **clients: Any) -> Registration:
        """Publish the table in a reader, with the clients_of_run clients in place of the resources."""
        clients_of_run = SimpleNamespace(
            **{"catalog": self.resources.catalog, reader: getattr(self.resources, reader, None)} | clients
        )
        ref, table = clients_of_run.catalog.chain(self.topic.table_in(self.namespace)).require_published()
        return reader_of(reader).publish_tables(self.topic, ref, table, clients_of_run)

    def create(self) -> None:
        # Some tests choose timestamps, and brokers delete records with old ones.
        topic = NewTopic(self.name, self.partitions, config={"retention.ms": "-1"})
        for created in admin().create_topics([topic]).values():
            created.result()
        # Brokers learn of a topic some time after the response.
        assert poll(self._is_visible, pause=0.1, deadline_seconds=10)

    def _is_visible(self) -> bool:
        try:
            return bool(admin().describe_topics(TopicCollection([self.name]))[self.name].result().partitions)
        except KafkaException:
            return False

    def schema(self, schema: str = TRADES) -> int:
        """Register the value schema."""
        return register(f"{self.name}-value", schema)

    def produce(self, messages: list[dict[str, Any]], **config: Any) -> None:
        """Produce messages, each given by the arguments of confluent_kafka's produce."""
        producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], **config})
        for message in messages:
            producer.produce(self.name, **message)
            producer.poll(0)
        assert producer.flush(30) == 0

    def produce_trades(self, numbers: range, schema: str = TRADES) -> None:
        schema_id = self.schema(schema)
        trades = [trade(n) for n in numbers]
        self.produce([{"key": t["userid"].encode(), "value": framed(schema_id, schema, t)} for t in trades])

    def produce_with_types(self, numbers: range, types: dict[str, str], **changes: Any) -> None:
        """Produce trades with other types of some fields, which need not fit the table."""
        schema = with_types(TRADES, **types)
        registry().set_compatibility(subject_name=f"{self.name}-value", level="NONE")
        schema_id = self.schema(schema)
        self.produce([{"value": framed(schema_id, schema, trade(n, **changes))} for n in numbers])

    def die(self, point: str, folder: Path, extra: dict[str, Any] | None = None, topic: str | None = None) -> None:
        """Ingest or derive in another process, which is killed at a point of killed.py."""
        ended = self.start(point, folder, extra, topic).wait(120)
        assert ended == -signal.SIGKILL, f"it did not die {point} but ended with {ended}"

    def start(self, point: str, folder: Path, extra: dict[str, Any] | None = None, topic: str | None = None) -> Forked:
        """Start another process that ingests or derives up to a point."""
        return fork(killed.main, point, str(self.declare(folder, extra)), topic or self.name)

    def declare(self, folder: Path, extra: dict[str, Any] | None = None) -> Path:
        """Write a lakehouse.yaml with this topic and the topics `extra` to `folder`, for another process."""
        declared = {self.name: self.settings} | (extra or {})
        environments = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())["environments"]
        file = folder / "lakehouse.yaml"
        file.write_text(yaml.safe_dump({"namespace": self.namespace, "topics": declared, "environments": environments}))
        return file

    def ingest(self, on_phase: OnPhase = no_report) -> list[Published]:
        return list(ingest(self.namespace, self.topic, self.systems, on_phase=on_phase))

    def independent_catalog(self) -> PyIcebergCatalog:
        """Return a catalog of pyiceberg itself."""
        return load_catalog("lake", type="sql", uri=os.environ["ICEBERG_CATALOG_URI"], **s3_settings())

    def table(self, name: str | None = None) -> Any:
        """Load the table by the independent catalog, or return None if it does not exist."""
        catalog, identifier = self.independent_catalog(), (self.namespace, name or self.topic.table)
        return catalog.load_table(identifier) if catalog.table_exists(identifier) else None

    def rows(self) -> list[dict[str, Any]]:
        """Return the published rows in the order of the log."""
        table = self.table()
        return in_order(table.scan().to_arrow().to_pylist()) if table else []

    def dead_letters(self) -> list[dict[str, Any]]:
        """Return the dead letters, with the fields of their records as columns, in the order of the log."""
        table = self.table(f"{self.topic.table}__dead_letters")
        letters = table.scan().to_arrow().to_pylist() if table else []
        for letter in letters:
            record = letter.pop("source_record")
            letter |= {k if k in ("key", "value", "headers", "topic") else f"kafka_{k}": v for k, v in record.items()}
        return in_order(letters)

    def messages(self) -> list[Message]:
        """Return all committed records of the topic, read by a consumer of the tests."""
        return consume(self.name, self.partitions)

    def expected_rows(self) -> list[dict[str, Any]]:
        """Return the expected rows if every message becomes a row, decoded by Confluent's deserializer."""
        # The default strategy requests "associations", which only Confluent's registry has.
        decode = AvroDeserializer(registry(), conf={"subject.name.strategy": topic_subject_name_strategy})
        context = SerializationContext(self.name, MessageField.VALUE)
        return in_order([decode(m.value, context) | metadata(m) for m in self.messages()])


def once(phase: Phase, act: Callable[[], Any]) -> tuple[OnPhase, list[Any]]:
    """Return a callback that calls `act` when a phase begins for the first time, and a list for the result."""
    done: list[Any] = []

    def on_phase(begun: Phase) -> None:
        if begun == phase and not done:
            done.append(None)
            done[0] = act()

    return on_phase, done


CHEAP = {"cheap": {"type": "range", "column": "price", "max": 50, "severity": "quarantine"}}
"""A check that some trades pass and some fail."""


def with_checks(topic: Topic, checks: dict[str, Any]) -> Topic:
    """Return the topic with checks, declared as in lakehouse.yaml."""
    return Topic.model_validate({**topic.model_dump(by_alias=True), "name": topic.name, "checks": checks})


def recreate(stream: Stream) -> None:
    """Delete the topic and create it again. Brokers finish a deletion some time after the response."""
    for deleted in admin().delete_topics([stream.name]).values():
        deleted.result()
    for _ in range(50):
        try:
            return stream.create()
        except KafkaException as error:
            assert error.args[0].name() == "TOPIC_ALREADY_EXISTS"
            time.sleep(0.2)
    raise AssertionError(f"{stream.name} was not deleted within 10 s")


def delete_bookmark(name: str) -> None:
    """Delete a bookmark of a name from each partition of the topic of bookmarks."""
    producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
    for partition in admin().list_topics(BOOKMARKS).topics[BOOKMARKS].partitions:
        producer.produce(BOOKMARKS, key=name, value=None, partition=partition)
    assert producer.flush(30) == 0


def metadata(message: Message) -> dict[str, Any]:
    """Return the metadata columns of the row of a message."""
    return {
        "kafka_partition": message.partition,
        "kafka_offset": message.offset,
        "kafka_timestamp": message.timestamp_ms,
        "kafka_schema_id": struct.unpack(">I", (message.value or b"\0" * 5)[1:5])[0],
    }


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort rows by partition and offset, and convert Kafka's timestamps to milliseconds."""
    for row in rows:
        if hasattr(row["kafka_timestamp"], "timestamp"):
            row["kafka_timestamp"] = round(row["kafka_timestamp"].timestamp() * 1000)
    return sorted(rows, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))


def consume(topic: str, partitions: int) -> list[Message]:
    """Return all records of a topic that a read_committed consumer receives."""
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": f"oracle-{uuid.uuid4()}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            # At the end of a partition, the broker responds after half a second by default.
            "fetch.wait.max.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    messages, open_partitions = [], set(range(partitions))
    while open_partitions:
        message = consumer.poll(20)
        assert message is not None, f"no end of {topic} within 20 s"
        if message.error():
            open_partitions.discard(message.partition())
            continue
        messages.append(
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
    return messages
