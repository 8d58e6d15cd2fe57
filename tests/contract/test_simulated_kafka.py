"""Kafka in memory of tests/simulation behaves as the broker does: each test runs against both."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from confluent_kafka import Producer, TopicPartition

from lakehouse.core.errors import LakehouseError, TransientError
from resources.kafka import transactions
from resources.kafka.kafka import Kafka, Offsets
from resources.kafka.stream_group import SETTINGS
from resources.kafka.transactions import Outgoing, wait_until_visible
from tests.simulation.choices import Choices
from tests.simulation.systems.cluster import MemoryCluster
from tests.simulation.systems.kafka import MemoryKafka
from tests.simulation.systems.messages import MessageKafka
from tests.simulation.world import World
from tests.support.topics import Stream, admin

SITES = ("memory", "server")


def world() -> World:
    """Return a world in which nothing fails."""
    return World(Choices(None))


class Log(Protocol):
    """A topic with one partition, its client, and what producers and operators do to it."""

    client: Kafka | MemoryKafka
    topic: str

    def produce(self, count: int) -> None: ...
    def begin(self) -> None: ...
    def end(self, *, commits: bool) -> None: ...
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

    def end(self, *, commits: bool) -> None:
        self.client.end(0, commits=commits)

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

    def end(self, *, commits: bool) -> None:
        assert self._transaction is not None
        (self._transaction.commit_transaction if commits else self._transaction.abort_transaction)()
        self._transaction = None
        wait_until_visible(self.client, self.topic)

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


@pytest.mark.parametrize("commits", (False, True), ids=("aborted", "committed"))
def test_end_of_a_transaction_occupies_an_offset(log: Log, commits: bool) -> None:
    log.produce(1)
    log.begin()
    log.produce(2)
    log.end(commits=commits)
    assert ends(log) == (Offsets(0, 4), Offsets(0, 4))
    later = 4_000_000_000_000
    assert log.client.offsets_at(log.topic, later) == {0: 4}
    oldest = log.client.oldest_timestamp(log.topic, {0: 1}, {0: 4})[0]
    assert oldest is not None and oldest < later
    assert log.client.oldest_timestamp(log.topic, {0: 3}, {0: 4}) == {0: None}
    log.produce(1)
    assert ends(log) == (Offsets(0, 5), Offsets(0, 5))


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
    wait_until_visible(client, topic)
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
    with pytest.raises(TransientError), client.translate_errors():
        older.commit_transaction()
    assert visible(client, topic) == [b"2"]


# Consumer groups


def in_world(cluster: MemoryCluster, simulated: World, scenario: Callable[[Any, str], None]) -> None:
    """Run a scenario as a program of the simulation, whose time passes while it waits."""
    program = simulated.start("scenario", lambda: scenario(cluster, "orders"))
    while simulated.processes:
        simulated.step(simulated.ready()[0])
    if program.result is not None:
        raise program.result


@pytest.fixture(params=SITES)
def with_topic(request: Any) -> Callable[[Callable[[Any, str], None]], None]:
    """Call a scenario with a client and a topic with two partitions."""
    if request.param == "memory":
        simulated = world()
        return lambda scenario: in_world(MemoryCluster(simulated, {"orders": 2}), simulated, scenario)
    resources = request.getfixturevalue("resources")
    return lambda scenario: scenario(resources.kafka, Stream(resources, partitions=2).name)


def test_group_members_divide_partitions(
    with_topic: Callable[[Callable[[Any, str], None]], None],
) -> None:
    def scenario(client: Any, topic: str) -> None:
        shares: dict[str, set[int]] = {}
        revoked: list[str] = []
        members = {}

        def join(name: str) -> None:
            def assigned(consumer: Any, partitions: list[Any]) -> None:
                consumer.assign([])
                shares[name] = {one.partition for one in partitions}

            def was_revoked(consumer: Any, _: list[Any]) -> None:
                shares.pop(name, None)
                revoked.append(name)
                consumer.unassign()

            members[name] = client.consumer(f"group-{topic}", settings=SETTINGS)
            members[name].subscribe([topic], on_assign=assigned, on_revoke=was_revoked, on_lost=was_revoked)

        def poll_until(expected: Callable[[], bool]) -> None:
            for _ in range(300):
                if expected():
                    return
                for consumer in members.values():
                    consumer.poll(0.1)
            raise AssertionError(f"the shares are {shares}")

        join("first")
        poll_until(lambda: shares == {"first": {0, 1}})
        join("second")
        poll_until(lambda: sorted(map(sorted, shares.values())) == [[0], [1]])
        assert "first" in revoked
        members.pop("first").close()
        poll_until(lambda: shares == {"second": {0, 1}})
        members.pop("second").close()

    with_topic(scenario)


def test_wait_for_records_ends_at_a_committed_record(log: Log) -> None:
    def has_records(end: int, seconds: float) -> bool:
        results: list[bool] = []

        def scenario(client: Any, topic: str) -> None:
            results.append(client.wait_for_records({topic: {0: end}}, seconds, lambda: False))

        if isinstance(log, MemoryLog):
            cluster = MemoryCluster(log.world, {})
            cluster.topics[log.topic] = log.client
            in_world(cluster, log.world, scenario)
        else:
            scenario(log.client, log.topic)
        return results[0]

    log.produce(2)
    assert has_records(0, 30) and has_records(1, 30)
    assert not has_records(2, 1)
    for commits in (False, True):
        log.begin()
        log.produce(1)
        assert not has_records(2, 1)
        log.end(commits=commits)
        assert has_records(2, 30 if commits else 1) is commits


def test_missing_topic_error_names_the_topic(log: Log) -> None:
    error = log.client.missing_topic_error("absent")
    assert isinstance(error, LakehouseError)
    assert "'absent' does not exist" in str(error)
    assert log.client.describe(["absent"]) == {}
