"""A topic and its table in memory, by tests/simulation, and on the stack: the contract of the two compares them."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from lakehouse.config.model import Topic
from lakehouse.core.polling import poll
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.clients import Clients
from resources.kafka.transactions import wait_until_visible
from resources.spark.servers import Connect
from spark.engine import SparkEngines
from tests.simulation.immutable import parsed_once
from tests.simulation.schedules.schedule import NAMESPACE, Schedule, simulation
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.systems.registry import LATE, OWN
from tests.simulation.world import simulated_time
from tests.support.compaction import compact_with, set_compaction
from tests.support.topics import Stream, admin, framed, recreate, register

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": ["null", "string"]}, {"name": "amount", "type": ["null", "long"]}],
    }
)
GARBAGE = "garbage"
"""The value of a record that does not decode."""

FILLER = "filler"
"""The key of records that brokers need to compact others."""


@dataclass(frozen=True)
class Sent:
    """A record to produce.

    Attributes:
        key: Its key.
        amount: Its value; None for a null value.
        is_late: Whether its schema is not registered yet.
        partition: Its partition.
        at: Its timestamp in seconds since the epoch; None for the present.
    """

    key: str
    amount: int | str | None
    is_late: bool = False
    partition: int = 0
    at: int | None = None


class Site(Protocol):
    """A topic, which has one partition at first, its table, and what producers and operators do."""

    clients: Clients
    namespace: str
    topic: Topic

    def produce(self, *records: Sent) -> None: ...
    def register_late(self) -> None: ...
    def add_partition(self) -> None: ...
    def use_compiled_decoder(self) -> None: ...
    def begin(self) -> None: ...
    def end(self, *, commits: bool) -> None: ...
    def retain(self, start: int) -> None: ...
    def compact(self) -> None: ...
    def recreate(self) -> None: ...
    def drop_table(self) -> None: ...
    def roll_back(self) -> None: ...
    def rows(self, branch: str = "main") -> list[tuple[str, int]]: ...
    def letters(self) -> list[tuple[int, str, int, bool]]: ...


class MemorySite:
    """The world of one schedule of the simulation, in which nothing fails."""

    def __init__(self, stack: ExitStack, schedule: Schedule) -> None:
        """Simulate the engine, files and time until the stack of contexts ends."""
        for context in (simulation(), empty_store(), parsed_once(), simulated_time(schedule.world)):
            stack.enter_context(context)
        self.schedule, self.namespace = schedule, NAMESPACE
        self.clients, self.topic = schedule.clients, schedule.topic

    def produce(self, *records: Sent) -> None:
        for record in records:
            fields = {
                "key": record.key,
                "value": record.amount,
                "schema_id": LATE if record.is_late else OWN,
                "is_garbage": record.amount == GARBAGE,
                "is_poison": False,
            }
            self.schedule.kafka.produce(record.partition, [fields | ({} if record.at is None else {"at": record.at})])

    def register_late(self) -> None:
        self.schedule.register()

    def add_partition(self) -> None:
        self.schedule.source.add_partition()

    def use_compiled_decoder(self) -> None:
        self.schedule.engine.is_compiled = True

    def begin(self) -> None:
        self.schedule.kafka.begin(0)

    def end(self, *, commits: bool) -> None:
        self.schedule.kafka.end(0, commits=commits)

    def retain(self, start: int) -> None:
        self.schedule.kafka.retain(0, start)

    def compact(self) -> None:
        """Delete each record that has a newer one for its key."""
        self.schedule.source.compact_log()

    def recreate(self) -> None:
        self.schedule.kafka.recreate(1)

    def drop_table(self) -> None:
        self.schedule.events()["drop table"]()

    def roll_back(self) -> None:
        self.schedule.events()["roll back"]()

    def rows(self, branch: str = "main") -> list[tuple[str, int]]:
        rows = self.schedule.engine.rows(TableRef(self.namespace, self.topic.table), branch)
        return sorted((row.record.key, row.record.value) for row in rows)

    def letters(self) -> list[tuple[int, str, int, bool]]:
        ref = TableRef(self.namespace, self.topic.table).dead_letters
        if self.schedule.iceberg.find(ref.name) is None:
            return []
        letters = self.schedule.engine.rows(ref)
        return sorted((letter.record.offset, letter.reason, letter.attempts, letter.recovered) for letter in letters)


class ServerSite:
    """A topic and table of the stack."""

    def __init__(self, resources: Any, mode: str) -> None:
        settings = {"mode": mode, "key": ["id"] if mode != "append" else [], "max_records_per_batch": 4}
        self.stream = Stream(resources, partitions=1, settings=settings)
        self.topic, self.namespace, self.clients = self.stream.topic, self.stream.namespace, self.stream.systems
        self.own_id, self.late_id = self.stream.schema(SCHEMA), 0
        self._transaction: Producer | None = None

    def produce(self, *records: Sent) -> None:
        messages = [
            {
                "key": record.key.encode(),
                "value": self._value(record),
                "partition": record.partition,
                "timestamp": 0 if record.at is None else record.at * 1000,
            }
            for record in records
        ]
        if self._transaction is None:
            self.stream.produce(messages)
            return
        for message in messages:
            self._transaction.produce(self.topic.name, **message)
        self._transaction.flush()

    def add_partition(self) -> None:
        [added] = admin().create_partitions([NewPartitions(self.topic.name, self.stream.partitions + 1)]).values()
        added.result()
        self.stream.partitions += 1
        described = lambda: self.clients.kafka.describe([self.topic.name])[self.topic.name]  # noqa: E731 (one line)
        assert poll(lambda: described().partitions == self.stream.partitions, pause=0.1, deadline_seconds=10)

    def use_compiled_decoder(self) -> None:
        """Require the compiled decoder; skip the test if it is not installed."""
        pytest.importorskip("lakehouse_native")
        spark = Connect(remote=self.stream.resources.spark.remote, native="require")
        self.clients = replace(self.clients, engines=SparkEngines(spark))

    def begin(self) -> None:
        settings = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "transactional.id": self.topic.name}
        self._transaction = Producer(settings)
        self._transaction.init_transactions()
        self._transaction.begin_transaction()

    def end(self, *, commits: bool) -> None:
        assert self._transaction is not None
        (self._transaction.commit_transaction if commits else self._transaction.abort_transaction)()
        self._transaction = None
        wait_until_visible(self.clients.kafka, self.topic.name)

    def _value(self, record: Sent) -> bytes | None:
        if record.amount is None:
            return None
        if record.amount == GARBAGE:
            return self.own_id.to_bytes(5) + b"\xff\xff"
        if record.is_late and not self.late_id:
            # Ids are given in turn, and nothing else registers schemas meanwhile.
            self.late_id = register(f"{self.topic.name}-other", _unregistered()) + 1
        value = {"id": record.key, "amount": record.amount}
        return framed(self.late_id if record.is_late else self.own_id, SCHEMA, value)

    def register_late(self) -> None:
        assert register(f"{self.topic.name}-late", _unregistered()) == self.late_id

    def retain(self, start: int) -> None:
        for deleted in admin().delete_records([TopicPartition(self.topic.name, 0, start)]).values():
            deleted.result()

    def compact(self) -> None:
        """Produce records with the key FILLER until the broker has deleted each record with a newer one for its key."""
        messages = self.stream.messages()
        newest = {message.key: message.offset for message in messages}
        older = {message.offset for message in messages} - {*newest.values()}
        set_compaction(self.stream)
        filler = {"key": FILLER.encode(), "value": self._value(Sent(FILLER, 0))}
        compact_with(self.stream, filler, lambda: not older & {message.offset for message in self.stream.messages()})

    def recreate(self) -> None:
        recreate(self.stream)

    def drop_table(self) -> None:
        """Drop the table, and keep that of its dead letters."""
        self.clients.catalog.iceberg().drop_table((self.namespace, self.topic.table))

    def roll_back(self) -> None:
        table = self.stream.table()
        parent = table.current_snapshot().parent_snapshot_id
        table.manage_snapshots().rollback_to_snapshot(parent).commit()

    def rows(self, branch: str = "main") -> list[tuple[str, int]]:
        table = self.stream.table()
        rows = table.scan(snapshot_id=table.refs()[branch].snapshot_id).to_arrow().to_pylist()
        return sorted((row["id"], row["amount"]) for row in rows)

    def letters(self) -> list[tuple[int, str, int, bool]]:
        return sorted(
            (
                letter["kafka_offset"],
                letter["error_reason"],
                letter["attempts"],
                letter["redriven_timestamp"] is not None,
            )
            for letter in self.stream.dead_letters()
        )


def _unregistered() -> str:
    """Return the schema with a text that nothing else has, so that it gets an id of its own."""
    return json.dumps({**json.loads(SCHEMA), "doc": uuid.uuid4().hex})
