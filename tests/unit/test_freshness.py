"""One judgement of how fresh a hop is."""

import pytest

from lakehouse.core.lag import Behind, Lag
from lakehouse.readers.freshness import Hop, first_stale, summary


@pytest.mark.parametrize(
    ("behind", "failure", "fresh", "said"),
    [
        (Lag(0, 0), "", True, "topic → Iceberg: has every record"),
        (Lag(7, 60), "", True, "topic → Iceberg: 7 records behind, for 60 s"),
        (Lag(7, 61), "", False, "topic → Iceberg: 7 records behind, for 61 s, and may be 60 s"),
        (Behind(2, 61), "", False, "topic → Iceberg: 2 snapshots behind, for 61 s, and may be 60 s"),
        (None, "", False, "topic → Iceberg: snapshot 5 was never published"),
        (None, "Kafka does not answer", False, "topic → Iceberg: unknown: Kafka does not answer"),
    ],
)
def test_fresh_is_what_is_known_not_to_lag(behind, failure, fresh, said):
    hop = Hop("trades", "iceberg", 60, behind, 5, failure)
    assert (hop.fresh, hop.said) == (fresh, said)


def test_the_hop_to_mend_is_the_first_that_is_behind():
    fresh, late = Lag(0, 0), Lag(1, 100)
    chain = [Hop("t", "snowflake", 60, late), Hop("t", "glue", 60, late), Hop("t", "iceberg", 60, fresh)]
    assert first_stale(chain).asset == "glue"
    assert first_stale(chain[2:]) is None


def test_of_a_route_the_stale_topics_are_named():
    hops = [Hop(name, "iceberg", 60, Lag(1, seconds)) for name, seconds in (("a", 1), ("b", 100), ("c", 2))]
    assert summary(hops) == f"1 of 3 topics are stale: b: {hops[1].said}"
    assert summary(hops[::2]) == "all 2 topics are fresh"
    assert summary(hops[:1]) == hops[0].said
