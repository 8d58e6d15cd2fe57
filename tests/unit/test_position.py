"""Positions that operators write: exactly one offset for every partition."""

import pytest

from lakehouse.core.errors import LakehouseError
from lakehouse.core.offsets.batch import Log
from lakehouse.pipeline.batches.offsets import parse_position
from resources.kafka.kafka import Kafka

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
