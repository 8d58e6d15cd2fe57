"""Positions that operators write: exactly one offset for every partition; and the offsets of a recreated topic."""

from itertools import count
from typing import ClassVar

import pytest

from lakehouse.core.errors import LakehouseError
from lakehouse.core.offsets.batch import Log
from lakehouse.pipeline.batches.offsets import parse_position
from lakehouse.pipeline.batches.positions import read_log
from resources.kafka.kafka import Kafka, Offsets, TopicDescription

LOG = Log("c", "orders", "t", {0: 2, 1: 0, 2: 0}, {0: 9, 1: 5, 2: 0})
KAFKA = Kafka(bootstrap_servers="127.0.0.1:1")


def test_parse_position_unnamed_partitions_keep_their_offset():
    position = parse_position(LOG, KAFKA, "1:3", unnamed={0: 7, 1: 5, 2: 0})
    assert position.end == position.start == {0: 7, 1: 3, 2: 0}
    assert parse_position(LOG, KAFKA, "1:3,0:2,2:0").end == {0: 2, 1: 3, 2: 0}


@pytest.mark.parametrize(("text", "end"), [("earliest", LOG.start), ("latest", LOG.end)])
def test_parse_position_word_applies_to_every_partition(text, end):
    assert parse_position(LOG, KAFKA, text, unnamed={0: 7, 1: 5, 2: 0}).end == end


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0:2", "'0:2' names no offset for partitions 1, 2, .* Name an offset for each partition of 'orders': 0, 1, 2"),
        ("0:2,1:0,2:0,9:1", "names partitions 9, which topic 'orders' does not have. .* Its partitions are 0, 1, 2"),
        ("0:2,1:0,0:3,2:0", "names a partition twice"),
        ("0:-1", "is not a valid position"),
        ("yesterday", "is not a valid position"),
    ],
)
def test_parse_position_ambiguous_is_refused(text, message):
    with pytest.raises(LakehouseError, match=message):
        parse_position(LOG, KAFKA, text)


def test_read_log_of_recreated_topic_has_the_older_id():
    class RecreatedTopic(Kafka):
        """Kafka whose topic is recreated before each request; its number is its id and its first offset."""

        numbers: ClassVar = count(1)

        def describe(self, topics):
            return {topic: TopicDescription(str(next(self.numbers)), 1) for topic in topics}

        def offsets(self, topics, *, committed=True):
            return {topic: {0: Offsets(number := next(self.numbers), number)} for topic in topics}

        def cluster_id(self):
            return "c"

    log = read_log(RecreatedTopic(bootstrap_servers="127.0.0.1:1"), "orders")
    assert int(log.topic_id) < log.start[0]
