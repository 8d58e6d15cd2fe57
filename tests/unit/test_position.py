"""A position that somebody writes down: every partition has one offset, or it is not clear."""

import pytest

from lakehouse.core.batch import Log
from lakehouse.core.errors import LakehouseError
from lakehouse.pipeline.position import at
from resources.kafka import Kafka

LOG = Log("c", "orders", "t", {0: 2, 1: 0, 2: 0}, {0: 9, 1: 5, 2: 0})
KAFKA = Kafka(bootstrap_servers="127.0.0.1:1")


def test_partitions_that_are_not_named_stay_where_they_are():
    position = at(LOG, KAFKA, "1:3", unnamed={0: 7, 1: 5, 2: 0})
    assert position.end == position.start == {0: 7, 1: 3, 2: 0}
    assert at(LOG, KAFKA, "1:3,0:2,2:0").end == {0: 2, 1: 3, 2: 0}


@pytest.mark.parametrize(("where", "end"), [("earliest", LOG.start), ("latest", LOG.end)])
def test_a_word_means_every_partition(where, end):
    assert at(LOG, KAFKA, where, unnamed={0: 7, 1: 5, 2: 0}).end == end


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("0:2", "'0:2' names no offset of partitions 1, 2, .* Name an offset of each partition of 'orders': 0, 1, 2"),
        ("0:2,1:0,2:0,9:1", "names partitions 9, which topic 'orders' does not have. .* Its partitions are 0, 1, 2"),
        ("0:2,1:0,0:3,2:0", "names a partition twice"),
        ("0:-1", "is no position"),
        ("yesterday", "is no position"),
    ],
)
def test_what_is_unclear_is_refused(where, said):
    with pytest.raises(LakehouseError, match=said):
        at(LOG, KAFKA, where)
