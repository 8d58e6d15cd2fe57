"""Where a batch starts and ends, and when it must not."""

import pytest

from lakehouse.core.batch import Batch, Log, next_batch, split, until
from lakehouse.core.errors import UnclearState


def log(start, end, topic_id="id", cluster_id="c"):
    return Log(cluster_id, "topic", topic_id, start, end)


def batch(start, end):
    return Batch("c", "topic", "id", start, end)


LAST = batch({0: 0, 1: 0}, {0: 10, 1: 20})


def test_the_first_batch_takes_the_whole_log():
    assert next_batch(None, log({0: 5, 1: 0}, {0: 9, 1: 3}), "t") == batch({0: 5, 1: 0}, {0: 9, 1: 3})


def test_a_later_batch_goes_on_where_the_table_ends():
    found = next_batch(LAST, log({0: 10, 1: 0}, {0: 15, 1: 20}), "t")
    assert found == batch({0: 10, 1: 20}, {0: 15, 1: 20})
    assert found.offsets == 5


def test_a_new_partition_is_read_from_its_start():
    assert next_batch(LAST, log({0: 0, 1: 0, 2: 7}, {0: 10, 1: 20, 2: 9}), "t").start == {0: 10, 1: 20, 2: 7}


def test_nothing_new_is_an_empty_batch():
    assert next_batch(LAST, log({0: 0, 1: 0}, {0: 10, 1: 20}), "t").offsets == 0


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (log({0: 0, 1: 0}, {0: 30, 1: 30}, topic_id="other"), "is not the one table t was filled from"),
        (log({0: 0, 1: 0}, {0: 30, 1: 30}, cluster_id="other"), "is not the one table t was filled from"),
        (log({0: 12, 1: 0}, {0: 30, 1: 30}), "partition 0 lost offsets 10 to 11"),
        (log({0: 0, 1: 0}, {0: 9, 1: 30}), "partition 0 ends at 9, but table t was filled up to offset 10"),
        (log({0: 0}, {0: 30}), "partition 1 ends at nothing"),
    ],
)
def test_what_could_lose_or_duplicate_stops(found, said):
    with pytest.raises(UnclearState, match=said) as raised:
        next_batch(LAST, found, "t")
    assert "Nothing was changed" in str(raised.value)


@pytest.mark.parametrize("limit", [1, 2, 7, 50, 99, 100, 1_000])
def test_the_parts_of_a_batch_are_bounded_and_together_the_whole(limit):
    whole = batch({0: 5, 1: 0, 2: 3}, {0: 95, 1: 1, 2: 12})
    rest, positions, parts = whole, dict(whole.start), 0
    while rest.offsets:
        part = split(rest, limit)
        assert part.start == positions and 0 < part.offsets <= limit
        positions = dict(part.end)
        rest = batch(positions, whole.end)
        parts += 1
    assert positions == whole.end
    assert parts >= whole.offsets / limit


def test_a_small_partition_beside_a_large_backlog_is_in_every_batch():
    whole = batch({0: 0, 1: 0, 2: 5}, {0: 8_000_000, 1: 400, 2: 5})
    part = split(whole, 20_000)
    assert part.end[1] == 400 and part.offsets == 20_000
    both = split(batch({0: 0, 1: 0}, {0: 8_000_000, 1: 50_000}), 20_000)
    assert both.end[1] >= 10_000 and both.offsets <= 20_000


def test_of_a_bound_below_the_partitions_the_longest_backlogs_go_first():
    part = split(batch({0: 0, 1: 0, 2: 0}, {0: 5, 1: 9, 2: 7}), 2)
    assert part.end == {0: 0, 1: 1, 2: 1}


def test_a_batch_ends_where_the_run_began_to_look():
    whole = batch({0: 5, 1: 8, 2: 0}, {0: 95, 1: 9, 2: 7})
    assert until(whole, {0: 50, 1: 20}) == batch({0: 5, 1: 8, 2: 0}, {0: 50, 1: 9, 2: 0})
    assert until(whole, {0: 2, 1: 8, 2: 0}).offsets == 0


def test_a_token_survives_and_a_newer_one_is_refused():
    assert Batch.from_json(LAST.to_json()) == LAST
    with pytest.raises(UnclearState, match="newer release"):
        Batch.from_json(LAST.to_json().replace('"version":1', '"version":2'))
