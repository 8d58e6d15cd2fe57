"""The systems in memory of tests/simulation behave as the servers do: each test runs against both."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from typing import Any, Protocol

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from confluent_kafka import Producer, TopicPartition
from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from lakehouse.core.errors import LakehouseError, UnclearState
from resources.kafka import transactions
from resources.kafka.kafka import Kafka, Offsets
from resources.kafka.transactions import Outgoing
from tests.simulation.catalog import MemoryIcebergCatalog
from tests.simulation.choices import Choices
from tests.simulation.kafka import MemoryKafka
from tests.simulation.memory_files import empty_store
from tests.simulation.messages import MessageKafka
from tests.simulation.readers import MemoryGlueClient
from tests.simulation.registry import SCHEMA, MemoryRegistry
from tests.simulation.world import World
from tests.support.faults.proxied import refuse_stale
from tests.support.servers.proxy import Proxy
from tests.support.topics import Stream, admin, register

SITES = ("memory", "server")
SCHEMA_OF_ROWS = IcebergSchema(NestedField(1, "n", LongType(), required=False))
ROWS = pa.table({"n": pa.array([1], pa.int64())})


def world() -> World:
    """Return a world in which nothing fails."""
    return World(Choices(None))


# Glue


@pytest.fixture(params=SITES)
def glue(request: Any) -> Iterator[Any]:
    if request.param == "memory":
        yield MemoryGlueClient(world(), lambda *_: None)
        return
    request.getfixturevalue("stack")
    with Proxy(os.environ["AWS_ENDPOINT_URL"], guard=refuse_stale) as proxy:
        yield boto3.client("glue", endpoint_url=proxy.address)


@pytest.fixture
def database(glue: Any) -> str:
    name = f"d{uuid.uuid4().hex[:10]}"
    glue.create_database(DatabaseInput={"Name": name})
    return name


def entry(location: str) -> dict[str, Any]:
    return {"Name": "t", "Parameters": {"table_type": "ICEBERG", "metadata_location": location}}


def code_of(call: Any, **arguments: Any) -> str:
    """Return the code of the error with which Glue refuses a call."""
    with pytest.raises(ClientError) as refusal:
        call(**arguments)
    return refusal.value.response["Error"]["Code"]


def test_glue_refuses_existing_and_missing_objects(glue: Any, database: str) -> None:
    table = {"DatabaseName": database, "Name": "t"}
    assert code_of(glue.create_database, DatabaseInput={"Name": database}) == "AlreadyExistsException"
    assert code_of(glue.get_table, **table) == "EntityNotFoundException"
    assert code_of(glue.delete_table, **table) == "EntityNotFoundException"
    assert code_of(glue.create_table, DatabaseName="none", TableInput=entry("a")) == "EntityNotFoundException"
    glue.create_table(DatabaseName=database, TableInput=entry("a"))
    assert code_of(glue.create_table, DatabaseName=database, TableInput=entry("b")) == "AlreadyExistsException"
    with pytest.raises(glue.exceptions.AlreadyExistsException):
        glue.create_database(DatabaseInput={"Name": database})
    glue.delete_table(**table)
    with pytest.raises(glue.exceptions.EntityNotFoundException):
        glue.get_table(**table)


def test_glue_update_of_a_stale_version_is_refused(glue: Any, database: str) -> None:
    def current() -> tuple[str, str]:
        table = glue.get_table(DatabaseName=database, Name="t")["Table"]
        return table["VersionId"], table["Parameters"]["metadata_location"]

    glue.create_table(DatabaseName=database, TableInput=entry("a"))
    first, _ = current()
    glue.update_table(DatabaseName=database, TableInput=entry("b"), VersionId=first, SkipArchive=True)
    second, location = current()
    assert location == "b" and second != first
    stale = {"DatabaseName": database, "TableInput": entry("c"), "VersionId": first}
    assert code_of(glue.update_table, **stale) == "ConcurrentModificationException"
    assert current() == (second, "b")
    glue.update_table(DatabaseName=database, TableInput=entry("d"))
    assert current()[1] == "d"


# Kafka


class Log(Protocol):
    """A topic with one partition, its client, and what producers and operators do to it."""

    client: Kafka | MemoryKafka
    topic: str

    def produce(self, count: int) -> None: ...
    def begin(self) -> None: ...
    def retain(self, start: int) -> None: ...


class MemoryLog:
    """The topic of the simulation."""

    def __init__(self) -> None:
        self.topic, self.world = "orders", world()
        self.client = MemoryKafka(self.world, self.topic, partitions=1)

    def produce(self, count: int) -> None:
        fields = {"key": 1, "value": 1, "schema_id": 1, "is_garbage": False, "is_poison": False}
        self.client.produce(0, [fields] * count)

    def begin(self) -> None:
        self.client.begin(0)

    def retain(self, start: int) -> None:
        self.client.retain(0, start)


class ServerLog:
    """A topic of the stack."""

    def __init__(self, resources: Any) -> None:
        self.stream, self.client = Stream(resources, partitions=1), resources.kafka
        self.topic = self.stream.name
        self._transaction: Producer | None = None

    def produce(self, count: int) -> None:
        if self._transaction is None:
            self.stream.produce([{"value": b"v"}] * count)
            return
        for _ in range(count):
            self._transaction.produce(self.topic, value=b"v")
        self._transaction.flush()

    def begin(self) -> None:
        settings = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "transactional.id": self.topic}
        self._transaction = Producer(settings)
        self._transaction.init_transactions()
        self._transaction.begin_transaction()

    def retain(self, start: int) -> None:
        for deleted in admin().delete_records([TopicPartition(self.topic, 0, start)]).values():
            deleted.result()


@pytest.fixture(params=SITES)
def log(request: Any) -> Log:
    return MemoryLog() if request.param == "memory" else ServerLog(request.getfixturevalue("resources"))


def ends(log: Log) -> tuple[Offsets, Offsets]:
    """Return the offsets as consumers that read committed and uncommitted records see them."""
    return tuple(log.client.offsets([log.topic], committed=committed)[log.topic][0] for committed in (True, False))  # type: ignore[return-value]


def test_offsets_of_an_open_transaction_end_at_its_first_record(log: Log) -> None:
    log.produce(2)
    log.begin()
    log.produce(3)
    assert ends(log) == (Offsets(0, 2), Offsets(0, 5))


def test_offsets_after_retention_start_later(log: Log) -> None:
    log.produce(5)
    log.retain(3)
    assert ends(log) == (Offsets(3, 5), Offsets(3, 5))


def test_offsets_at_a_later_time_are_the_end(log: Log) -> None:
    log.produce(2)
    assert log.client.offsets_at(log.topic, 0) == {0: 0}
    assert log.client.offsets_at(log.topic, 4_000_000_000_000) == {0: 2}


@pytest.fixture(params=SITES)
def messages(request: Any) -> tuple[Any, str]:
    """A client, and the name of a topic that does not exist."""
    if request.param == "memory":
        return MessageKafka(world(), "orders", partitions=1), "derived"
    return request.getfixturevalue("resources").kafka, f"derived-{uuid.uuid4().hex[:8]}"


def visible(client: Any, topic: str) -> list[bytes | None]:
    """Return the values that consumers of committed messages read."""
    end = client.offsets([topic])[topic][0].end
    return [message.value for message in client.messages(topic, 0, 0, end)]


def test_topic_is_created_once_with_its_settings(messages: tuple[Any, str]) -> None:
    client, topic = messages
    assert (client.describe([topic]), client.topic_setting(topic, "cleanup.policy")) == ({}, None)
    with pytest.raises(LakehouseError, match=topic):
        client.offsets([topic])
    client.ensure_topic(topic, 2, settings={"cleanup.policy": "compact"})
    before = client.describe([topic])[topic]
    client.ensure_topic(topic, 2, settings={"cleanup.policy": "delete"})
    assert client.describe([topic])[topic] == before and before.partitions == 2
    assert client.topic_setting(topic, "cleanup.policy") == "compact"


def test_messages_of_committed_transactions_are_read(messages: tuple[Any, str]) -> None:
    def interrupted() -> Iterator[Outgoing]:
        yield Outgoing(topic, b"k", b"2")
        raise RuntimeError("the source failed")

    client, topic = messages
    client.ensure_topic(topic, 1)
    producer = transactions.begin(client, topic)
    transactions.commit(client, producer, [Outgoing(topic, b"k", b"1")])
    with pytest.raises(RuntimeError):
        transactions.commit(client, producer, interrupted())
    assert visible(client, topic) == [b"1"]
    transactions.commit(client, producer, [Outgoing(topic, b"k", b"3"), Outgoing(topic, None, None)])
    assert visible(client, topic) == [b"1", b"3", None]


def test_newer_producer_aborts_the_transaction_of_an_older_one(messages: tuple[Any, str]) -> None:
    client, topic = messages
    client.ensure_topic(topic, 1)
    older = transactions.begin(client, topic)
    older.begin_transaction()
    client.enqueue(older, topic, b"k", b"1")
    if isinstance(older, Producer):
        older.flush()
    assert client.offsets([topic], committed=False)[topic][0].end > client.offsets([topic])[topic][0].end == 0
    newer = transactions.begin(client, topic)
    transactions.commit(client, newer, [Outgoing(topic, b"k", b"2")])
    with pytest.raises(UnclearState), client.translate_errors():
        older.commit_transaction()
    assert visible(client, topic) == [b"2"]


# The schema registry


@pytest.fixture(params=SITES)
def registry(request: Any) -> tuple[Any, str, int]:
    """The client, a topic, and the id of the topic's only schema."""
    if request.param == "memory":
        return MemoryRegistry(world(), "orders"), "orders", 1
    resources, topic = request.getfixturevalue("resources"), f"orders-{uuid.uuid4().hex[:8]}"
    id_ = register(f"{topic}-value", SCHEMA)
    return resources.schema_registry, topic, id_


def test_registry_returns_versions_subjects_and_schemas_by_id(registry: tuple[Any, str, int]) -> None:
    client, topic, id_ = registry
    [version] = client.versions(f"{topic}-value")
    assert version.id == id_
    assert f"{topic}-value" in client.subjects(id_)
    schema = client.by_id(id_)
    assert schema == version
    assert json.loads(schema.text) == json.loads(SCHEMA)
    assert client.by_id(1_000_000) is None


# The Iceberg catalog


@pytest.fixture(params=SITES)
def iceberg(request: Any) -> Iterator[IcebergCatalog]:
    if request.param == "memory":
        with empty_store():
            yield MemoryIcebergCatalog(world())
    else:
        yield request.getfixturevalue("resources").catalog.iceberg()


@pytest.fixture
def namespace() -> str:
    return f"n{uuid.uuid4().hex[:10]}"


def test_catalog_refuses_existing_and_missing_objects(iceberg: IcebergCatalog, namespace: str) -> None:
    name = namespace, "t"
    with pytest.raises(NoSuchNamespaceError):
        iceberg.create_table(name, SCHEMA_OF_ROWS)
    iceberg.create_namespace(namespace)
    with pytest.raises(NamespaceAlreadyExistsError):
        iceberg.create_namespace(namespace)
    with pytest.raises(NoSuchTableError):
        iceberg.load_table(name)
    iceberg.create_table(name, SCHEMA_OF_ROWS)
    with pytest.raises(TableAlreadyExistsError):
        iceberg.create_table(name, SCHEMA_OF_ROWS)


def test_catalog_commit_to_a_moved_reference_is_refused(iceberg: IcebergCatalog, namespace: str) -> None:
    iceberg.create_namespace(namespace)
    table = iceberg.create_table((namespace, "t"), SCHEMA_OF_ROWS)
    table.append(ROWS)
    first = table.metadata.current_snapshot_id
    stale = iceberg.load_table((namespace, "t"))
    table.append(ROWS)
    change = (SetPropertiesUpdate(updates={"a": "b"}),)
    with pytest.raises(CommitFailedException):
        iceberg.commit_table(stale, (AssertRefSnapshotId(ref="main", snapshot_id=first),), change)
    newest = iceberg.load_table((namespace, "t"))
    assert newest.metadata_location == table.metadata_location
    assert "a" not in newest.properties
    current = AssertRefSnapshotId(ref="main", snapshot_id=newest.metadata.current_snapshot_id)
    iceberg.commit_table(newest, (current,), change)
    assert iceberg.load_table((namespace, "t")).properties["a"] == "b"


def test_catalog_keeps_branches_and_tags(iceberg: IcebergCatalog, namespace: str) -> None:
    iceberg.create_namespace(namespace)
    table = iceberg.create_table((namespace, "t"), SCHEMA_OF_ROWS)
    table.append(ROWS)
    first = table.metadata.current_snapshot_id
    table.manage_snapshots().create_branch(first, "staged").create_tag(first, "kept").commit()
    table.append(ROWS, branch="staged")
    refs = iceberg.load_table((namespace, "t")).metadata.refs
    assert refs["main"].snapshot_id == refs["kept"].snapshot_id == first != refs["staged"].snapshot_id
    table.manage_snapshots().remove_branch("staged").remove_tag("kept").commit()
    assert set(iceberg.load_table((namespace, "t")).metadata.refs) == {"main"}


def test_missing_topic_error_names_the_topic(log: Log) -> None:
    error = log.client.missing_topic_error("absent")
    assert isinstance(error, LakehouseError)
    assert "'absent' does not exist" in str(error)
    assert log.client.describe(["absent"]) == {}
