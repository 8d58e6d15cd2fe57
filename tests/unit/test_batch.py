"""Offset ranges of batches, and the states in which no batch is possible."""

import pytest

from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.batch import Batch, Log, clip, head, next_batch


def log(start, end, topic_id="id", cluster_id="c"):
    return Log(cluster_id, "topic", topic_id, start, end)


def batch(start, end):
    return Batch("c", "topic", "id", start, end)


LAST = batch({0: 0, 1: 0}, {0: 10, 1: 20})


def test_next_batch_without_token_is_whole_log():
    assert next_batch(None, log({0: 5, 1: 0}, {0: 9, 1: 3}), "t") == batch({0: 5, 1: 0}, {0: 9, 1: 3})


def test_next_batch_starts_at_stored_position():
    following = next_batch(LAST, log({0: 10, 1: 0}, {0: 15, 1: 20}), "t")
    assert following == batch({0: 10, 1: 20}, {0: 15, 1: 20})
    assert following.offsets == 5


def test_next_batch_new_partition_starts_at_its_start():
    assert next_batch(LAST, log({0: 0, 1: 0, 2: 0}, {0: 10, 1: 20, 2: 9}), "t").start == {0: 10, 1: 20, 2: 0}


def test_next_batch_without_new_records_is_empty():
    assert next_batch(LAST, log({0: 0, 1: 0}, {0: 10, 1: 20}), "t").offsets == 0


@pytest.mark.parametrize(
    ("current", "message"),
    [
        (log({0: 0, 1: 0}, {0: 30, 1: 30}, topic_id="other"), "is not the one table t was filled from"),
        (log({0: 0, 1: 0}, {0: 30, 1: 30}, cluster_id="other"), "is not the one table t was filled from"),
        (log({0: 12, 1: 0}, {0: 30, 1: 30}), "partition 0 lost offsets 10 to 11"),
        (log({0: 0, 1: 0, 2: 7}, {0: 10, 1: 20, 2: 9}), "partition 2 lost offsets 0 to 6 .*`lakehouse resume`"),
        (log({0: 0, 1: 0}, {0: 9, 1: 30}), "partition 0 ends at 9, but table t was filled up to offset 10"),
        (log({0: 0}, {0: 30}), "partition 1 ends at nothing"),
    ],
)
def test_next_batch_lost_records_or_other_topic_is_refused(current, message):
    with pytest.raises(UnclearState, match=message) as raised:
        next_batch(LAST, current, "t")
    assert "Nothing was changed" in str(raised.value)


@pytest.mark.parametrize(
    ("following", "is_before"),
    [
        (batch({0: 10, 1: 20}, {0: 15, 1: 20}), False),
        (batch({0: 10, 1: 20, 2: 0}, {0: 15, 1: 20, 2: 3}), False),
        (batch({0: 10, 1: 20}, {0: 10, 1: 5}), True),
        (Batch("c", "topic", "other", {0: 0, 1: 0}, {0: 5, 1: 5}), False),
    ],
    ids=["next batch", "new partition", "decision in a log that lost records", "recreated topic"],
)
def test_ends_before_only_in_same_topic(following, is_before):
    assert following.ends_before(LAST) == is_before


@pytest.mark.parametrize("limit", [1, 2, 7, 50, 99, 100, 1_000])
def test_head_repeated_covers_pending_in_bounded_parts(limit):
    pending = batch({0: 5, 1: 0, 2: 3}, {0: 95, 1: 1, 2: 12})
    rest, positions, parts = pending, dict(pending.start), 0
    while rest.offsets:
        part = head(rest, limit)
        assert part.start == positions and 0 < part.offsets <= limit
        positions = dict(part.end)
        rest = batch(positions, pending.end)
        parts += 1
    assert positions == pending.end
    assert parts >= pending.offsets / limit


def test_head_small_partition_is_included_beside_backlog():
    pending = batch({0: 0, 1: 0, 2: 5}, {0: 8_000_000, 1: 400, 2: 5})
    part = head(pending, 20_000)
    assert part.end[1] == 400 and part.offsets == 20_000
    both = head(batch({0: 0, 1: 0}, {0: 8_000_000, 1: 50_000}), 20_000)
    assert both.end[1] >= 10_000 and both.offsets == 20_000


def test_head_has_exactly_the_limit_if_partitions_differ():
    pending = batch(dict.fromkeys(range(6), 0), {**dict.fromkeys(range(5), 1_666_667), 5: 1_666_665})
    assert head(pending, 5_000_000).offsets == 5_000_000


def test_head_limit_below_partitions_prefers_longest_backlogs():
    part = head(batch({0: 0, 1: 0, 2: 0}, {0: 5, 1: 9, 2: 7}), 2)
    assert part.end == {0: 0, 1: 1, 2: 1}


def test_clip_ends_batch_at_given_offsets():
    pending = batch({0: 5, 1: 8, 2: 0}, {0: 95, 1: 9, 2: 7})
    assert clip(pending, {0: 50, 1: 20}) == batch({0: 5, 1: 8, 2: 0}, {0: 50, 1: 9, 2: 0})
    assert clip(pending, {0: 2, 1: 8, 2: 0}).offsets == 0


def test_token_round_trips_and_newer_version_is_refused():
    assert Batch.from_json(LAST.to_json()) == LAST
    with pytest.raises(UnclearState, match="newer release"):
        Batch.from_json(LAST.to_json().replace('"version":1', '"version":2'))
