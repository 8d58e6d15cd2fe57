"""Division of topics among streams, by consumer groups of librdkafka's mock cluster."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from lakehouse.config.model import Config, Topic
from lakehouse.pipeline.clients import Clients
from lakehouse.streaming.stream import Stream
from lakehouse.streaming.stream_events import TopicServed
from resources.kafka import stream_group
from resources.kafka.kafka import Kafka, Offsets
from resources.kafka.stream_group import GroupUnavailable, is_assigned
from spark.engine import SparkEngines
from tests.support.lone_member import LoneMember
from tests.support.waiting import wait_until
from tests.unit.test_stream_without_kafka import Brokers, systems_with

SECONDS = 60
NAMES = [f"topic-{n}" for n in range(8)]


class Grouped(Brokers):
    """Topics as in `Brokers`, with consumer groups of a mock cluster."""

    def describe(self, topics):
        return {topic: replace(description, partitions=4) for topic, description in super().describe(topics).items()}

    def offsets(self, topics, *, committed=True):
        return {topic: dict.fromkeys(range(4), Offsets(0, 0)) for topic in topics}

    def consumer(self, group, isolation="read_committed", settings=None):
        return Kafka.consumer(self, group, isolation, settings)


@pytest.fixture(scope="module")
def cluster():
    """The address of a mock cluster whose topics have four partitions."""
    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    [broker] = host.list_topics(timeout=SECONDS).brokers.values()
    for name in NAMES:
        host.list_topics(name, timeout=SECONDS)
    yield f"{broker.host}:{broker.port}"
    host.flush(0)


@contextmanager
def running(folder, servers, namespace, names=NAMES, cluster=Grouped, settings=None):
    """Run a stream and yield its events.

    Args:
        folder: The folder of the catalog.
        servers: The address of the cluster.
        namespace: The namespace of the tables.
        names: The entries.
        cluster: The class of the client.
        settings: Returns further settings of an entry by its name.
    """
    further = settings or (lambda name: {})
    topics = [Topic.model_validate({"name": name, "key": "id", **further(name)}) for name in names]
    config = Config(namespace=namespace, topics={topic.name: topic for topic in topics}, environments={})
    clients, kafka = systems_with(folder), cluster(bootstrap_servers=servers)
    stream = Stream(
        config, topics, Clients(kafka, clients.schema_registry, SparkEngines(clients.spark), clients.catalog)
    )
    events = []

    def run():
        for event in stream.run():
            events.append(event)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield events
    finally:
        stream.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


def served(events):
    return {event.topic for event in events if isinstance(event, TopicServed)}


def test_topics_are_divided_and_taken_over_from_ended_stream(tmp_path, cluster):
    with running(tmp_path, cluster, "divided") as second:
        with running(tmp_path, cluster, "divided") as first:
            wait_until(lambda: served(first) and served(second) and served(first) | served(second) == {*NAMES})
            assert not served(first) & served(second)
        wait_until(lambda: served(second) == {*NAMES})


def test_streams_of_other_namespaces_serve_same_topics(tmp_path, cluster):
    with running(tmp_path, cluster, "one") as one, running(tmp_path, cluster, "other") as other:
        wait_until(lambda: served(one) == served(other) == {*NAMES})


def test_streams_of_environments_with_one_namespace_serve_all(tmp_path, cluster):
    for environment in ("prod", "staging"):
        (tmp_path / environment).mkdir()
    with (
        running(tmp_path / "prod", cluster, "shared") as prod,
        running(tmp_path / "staging", cluster, "shared") as staging,
    ):
        wait_until(lambda: served(prod) == served(staging) == {*NAMES})


def test_streams_that_fill_other_tables_serve_same_topics(tmp_path, cluster):
    with (
        running(tmp_path, cluster, "tables") as first,
        running(tmp_path, cluster, "tables", settings=lambda name: {"table": f"other_{name[-1]}"}) as second,
    ):
        wait_until(lambda: served(first) == served(second) == {*NAMES})


def test_stream_without_group_permission_serves_all_and_reports(tmp_path, cluster, monkeypatch):
    class Refused:
        def subscribe(self, *arguments, **keywords):
            pass

        def poll(self, seconds):
            return self

        def error(self):
            return KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)

        def close(self):
            pass

    monkeypatch.setattr(Grouped, "consumer", lambda *_, **__: Refused())
    with running(tmp_path, cluster, "refused") as events:
        wait_until(lambda: served(events) == {*NAMES})
    [undivided] = [event for event in events if isinstance(event, GroupUnavailable)]
    assert "Kafka refuses consumer group 'lakehouse.stream." in str(undivided.reason)


@pytest.mark.parametrize("fails", ["to connect", "to join"])
def test_stream_without_group_serves_all_after_timeout(tmp_path, cluster, monkeypatch, fails):
    def broken(*_, **__):
        raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    if fails == "to connect":
        monkeypatch.setattr(Grouped, "consumer", broken)
    else:
        monkeypatch.setattr(stream_group, "JOIN_SECONDS", 0.1)
        monkeypatch.setitem(stream_group.SETTINGS, "bootstrap.servers", "127.0.0.1:1")
    with running(tmp_path, cluster, "alone") as events:
        wait_until(lambda: served(events) == {*NAMES})
    assert len([event for event in events if isinstance(event, GroupUnavailable)]) == 1


def test_stream_that_lost_its_group_serves_all_after_timeout(tmp_path, monkeypatch):
    class Lost(LoneMember):
        """A member that joins a group, loses it, and never joins it again."""

        def subscribe(self, topics, on_assign, on_revoke, on_lost):
            self.steps = iter((on_assign, on_lost))

        def poll(self, seconds):
            time.sleep(0.05)
            if step := next(self.steps, None):
                step(self, [])

        unassign = LoneMember.close

    monkeypatch.setattr(Grouped, "consumer", lambda *_, **__: Lost())
    monkeypatch.setattr(stream_group, "JOIN_SECONDS", 1)
    with running(tmp_path, "127.0.0.1:1", "lost") as events:
        wait_until(lambda: served(events) == {*NAMES})
    assert len([event for event in events if isinstance(event, GroupUnavailable)]) == 1


def test_revoked_topics_are_released_after_batch_in_progress(tmp_path):
    members, started, may_end, batches = [], threading.Event(), threading.Event(), []

    class Member(LoneMember):
        def subscribe(self, topics, on_assign, on_revoke, on_lost):
            super().subscribe(topics, on_assign, on_revoke, on_lost)
            self.lose = lambda: on_revoke(self, [])
            members.append(self)

        unassign = LoneMember.close

    class Slow(Brokers):
        """Topics of a cluster that answers a batch only after a while."""

        def consumer(self, *_, **__):
            return Member()

        def cluster_id(self):
            batches.append(threading.current_thread())
            started.set()
            may_end.wait(SECONDS)
            return super().cluster_id()

    with running(tmp_path, "127.0.0.1:1", "slow", NAMES[:1], Slow) as events:
        wait_until(started.is_set)
        revocation = threading.Thread(target=members[0].lose)
        revocation.start()
        revocation.join(0.5)
        assert revocation.is_alive()
        may_end.set()
        revocation.join(SECONDS)
        assert not revocation.is_alive()
    assert len(batches) == 1 and served(events) == {NAMES[0]}


def test_falls_to_assigns_topic_to_exactly_one_stream():
    partitions = [(name, p) for name in NAMES for p in range(6)]
    one, other = frozenset(partitions[::2]), frozenset(partitions[1::2])
    for name in NAMES:
        assert is_assigned(one, name, 6) != is_assigned(other, name, 6)
    assert not is_assigned(one, NAMES[0], 0)
