"""Several streams of the same topics divide them, by a consumer group of librdkafka's own mock cluster."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from lone_member import LoneMember
from test_stream_without_kafka import Brokers, connected

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.pipeline.clients import Clients
from lakehouse.streaming.stream import Stream
from lakehouse.streaming.stream_events import Served
from resources import stream_group
from resources.kafka import Kafka, Offsets
from resources.stream_group import Undivided, falls_to

SECONDS = 60
NAMES = [f"topic-{n}" for n in range(8)]


class Grouped(Brokers):
    """Topics as `Brokers` has them, and groups as a mock cluster does."""

    def describe(self, topics):
        return {topic: replace(found, partitions=4) for topic, found in super().describe(topics).items()}

    def offsets(self, topics, *, committed=True):
        return {topic: dict.fromkeys(range(4), Offsets(0, 0)) for topic in topics}

    def member(self, group, settings):
        return Kafka.member(self, group, settings)


@pytest.fixture(scope="module")
def cluster():
    """Where a mock cluster listens; its topics have four partitions."""
    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    [broker] = host.list_topics(timeout=SECONDS).brokers.values()
    for name in NAMES:
        host.list_topics(name, timeout=SECONDS)
    yield f"{broker.host}:{broker.port}"
    host.flush(0)


@contextmanager
def running(folder, servers, namespace, names=NAMES):
    """The entries that a stream serves, as it serves each for the first time."""
    topics = [Topic.model_validate({"name": name, "key": "id"}) for name in names]
    config = Config(namespace=namespace, topics={topic.name: topic for topic in topics}, environments={})
    made = connected(folder)
    kafka = Grouped(bootstrap_servers=servers)
    stream = Stream(config, topics, Clients(kafka, made.schema_registry, made.spark, made.catalog))
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
    return {event.topic for event in events if isinstance(event, Served)}


def until(met):
    deadline = time.monotonic() + SECONDS
    while not met():
        assert time.monotonic() < deadline, f"not within {SECONDS} s"
        time.sleep(0.05)


def test_each_topic_falls_to_one_stream_and_to_the_other_when_that_ends(tmp_path, cluster):
    with running(tmp_path, cluster, "divided") as rest:
        with running(tmp_path, cluster, "divided") as first:
            until(lambda: served(first) | served(rest) == {*NAMES})
            assert not served(first) & served(rest)
            assert served(first) and served(rest)
        until(lambda: served(rest) == {*NAMES})


def test_streams_of_other_namespaces_take_the_same_topics(tmp_path, cluster):
    with running(tmp_path, cluster, "one") as one, running(tmp_path, cluster, "other") as other:
        until(lambda: served(one) == served(other) == {*NAMES})


def test_a_stream_that_may_not_join_takes_everything_and_says_so(tmp_path, cluster, monkeypatch):
    class Refused:
        def subscribe(self, *given, **more):
            pass

        def poll(self, seconds):
            return self

        def error(self):
            return KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)

        def close(self):
            pass

    monkeypatch.setattr(Grouped, "member", lambda *_: Refused())
    with running(tmp_path, cluster, "refused") as events:
        until(lambda: served(events) == {*NAMES})
    [undivided] = [event for event in events if isinstance(event, Undivided)]
    assert "Kafka refuses consumer group 'lakehouse.stream.refused'" in str(undivided.reason)


@pytest.mark.parametrize("fails", ["to connect", "to join"])
def test_a_stream_without_a_group_takes_everything_after_a_while(tmp_path, cluster, monkeypatch, fails):
    def broken(*_):
        raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    if fails == "to connect":
        monkeypatch.setattr(Grouped, "member", broken)
    else:
        monkeypatch.setattr(stream_group, "JOIN_SECONDS", 0.1)
        monkeypatch.setitem(stream_group.SETTINGS, "bootstrap.servers", "127.0.0.1:1")
    with running(tmp_path, cluster, "alone") as events:
        until(lambda: served(events) == {*NAMES})
    assert len([event for event in events if isinstance(event, Undivided)]) == 1


def test_topics_pass_on_only_after_the_batch_in_progress(tmp_path, monkeypatch):
    members, begun, may_end, batches = [], threading.Event(), threading.Event(), []

    class Member(LoneMember):
        def subscribe(self, topics, on_assign, on_revoke, on_lost):
            super().subscribe(topics, on_assign, on_revoke, on_lost)
            self.lose = lambda: on_revoke(self, [])
            members.append(self)

        unassign = LoneMember.close

    def slow(namespace, topic, systems, refusals):
        batches.append(topic.name)
        begun.set()
        may_end.wait(SECONDS)
        yield from ()

    monkeypatch.setattr(Grouped, "member", lambda *_: Member())
    monkeypatch.setattr(Grouped, "describe", Brokers.describe)
    monkeypatch.setattr(Grouped, "offsets", Brokers.offsets)
    monkeypatch.setattr("lakehouse.streaming.worker.ingest", slow)
    with running(tmp_path, "127.0.0.1:1", "slow", NAMES[:1]) as events:
        until(begun.is_set)
        passing = threading.Thread(target=members[0].lose)
        passing.start()
        passing.join(0.5)
        assert passing.is_alive()
        may_end.set()
        passing.join(SECONDS)
        assert not passing.is_alive()
    assert batches == NAMES[:1] and served(events) == {NAMES[0]}


def test_one_partition_decides_whose_a_topic_is():
    partitions = [(name, p) for name in NAMES for p in range(6)]
    one, other = frozenset(partitions[::2]), frozenset(partitions[1::2])
    for name in NAMES:
        assert falls_to(one, name, 6) != falls_to(other, name, 6)
    assert not falls_to(one, NAMES[0], 0)
