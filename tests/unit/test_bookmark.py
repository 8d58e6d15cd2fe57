"""Bookmarks of derived topics."""

from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.table_protocol import BOOKMARKS
from resources.kafka import bookmark_topic
from resources.kafka.kafka import Kafka, Offsets, TopicDescription
from resources.kafka.messages import Received

BOOKMARK = Bookmark(
    "cluster", "source", "target", "identity", "lake.t", "totals", "uuid", 7, 2, {0: 10, 1: 0, 11: 3}, "by hand"
)


def test_bookmark_round_trips_and_newer_version_is_refused():
    derived = replace(BOOKMARK, settings={"transform": "a:b", "group_by": ["user"], "key_format": None})
    for bookmark in (BOOKMARK, derived):
        assert Bookmark.from_json(bookmark.to_json().encode()) == bookmark
    with pytest.raises(UnclearState, match="newer release"):
        Bookmark.from_json(BOOKMARK.to_json().replace('"version": 4', '"version": 5'))


def test_bookmark_of_further_snapshots_round_trips():
    bookmark = replace(BOOKMARK, further={5: {0: 3, 10: 4}, 6: {}})
    assert Bookmark.from_json(bookmark.to_json()) == bookmark


def test_is_of_other_topic_or_cluster_is_false():
    batch = Batch("cluster", "orders", "source", {}, {})
    assert BOOKMARK.is_of(batch)
    assert not BOOKMARK.is_of(replace(batch, topic_id="recreated"))
    assert not replace(BOOKMARK, cluster_id="other").is_of(batch)


@pytest.mark.parametrize(
    ("position", "is_past"),
    [({0: 10, 1: 0, 11: 3}, False), ({0: 11, 1: 5, 11: 3, 12: 1}, False), ({0: 50, 11: 2}, True), ({}, True)],
)
def test_is_past_compares_every_partition(position, is_past):
    assert BOOKMARK.is_past(position) == is_past


def polled(offset, value=None, error=None):
    """Return a message of a consumer."""
    fields = {"offset": offset, "error": error, "key": b"name", "value": value, "headers": None}
    return SimpleNamespace(**{name: lambda field=field: field for name, field in fields.items()})


class Broker(Kafka):
    """Kafka whose new leader for the bookmarks has not received the last one yet when a consumer begins to read."""

    def describe(self, topics):
        return {BOOKMARKS: TopicDescription("early-end", 1)}

    def offsets(self, topics, *, committed=True):
        return {BOOKMARKS: {0: Offsets(0, 2)}}

    def consumer(self, *arguments, **keywords):
        first, second = (replace(BOOKMARK, offsets={0: offset}).to_json().encode() for offset in (1, 2))
        early_end = polled(1, error=KafkaError(KafkaError._PARTITION_EOF))
        messages = deque([polled(0, first), early_end, polled(1, second)])
        return SimpleNamespace(assign=lambda _: None, close=lambda: None, poll=lambda _: messages.popleft())


class RestoredBroker(Kafka):
    """Kafka whose bookmarks another broker leads from now on: it lacked the last ones, and has received others."""

    bookmarks: list[int]
    term: int

    def describe(self, topics):
        return {BOOKMARKS: TopicDescription("restored", 1)}

    def offsets(self, topics, *, committed=True):
        return {BOOKMARKS: {0: Offsets(0, len(self.bookmarks), self.term)}}

    def messages(self, topic, partition, start, end):
        for number in self.bookmarks[start:end]:
            name, value = ("name", number) if number else ("other", 0)
            yield Received(name.encode(), replace(BOOKMARK, offsets={0: value}).to_json().encode(), [])


def test_bookmark_of_former_leader_is_forgotten():
    before = RestoredBroker(bootstrap_servers="127.0.0.1:1", bookmarks=[1, 2, 3], term=4)
    assert bookmark_topic.read(before, "name") == replace(BOOKMARK, offsets={0: 3})
    after = RestoredBroker(bootstrap_servers="127.0.0.1:1", bookmarks=[1, 2, 0, 0], term=5)
    assert bookmark_topic.read(after, "name") == replace(BOOKMARK, offsets={0: 2})


def test_bookmark_after_early_end_of_partition_is_read():
    assert bookmark_topic.read(Broker(bootstrap_servers="127.0.0.1:1"), "name") == replace(BOOKMARK, offsets={0: 2})
