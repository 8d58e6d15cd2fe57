"""Pacing of streams: turns of topics, sizes of batches, and pauses after failures."""

from collections import Counter

import pytest

from lakehouse.streaming.pacing import (
    EVERY_SECONDS,
    MIN_RECORDS,
    TARGET_SECONDS,
    RoundRobin,
    backoff_seconds,
    next_bound,
)

MAXIMUM = 1_000_000


def test_next_bound_quick_full_batch_doubles_up_to_maximum():
    bound, sizes = MIN_RECORDS, []
    for _ in range(8):
        bound = next_bound(bound, records=bound, seconds=TARGET_SECONDS / 2, most=MAXIMUM)
        sizes.append(bound)
    assert sizes == [min(MIN_RECORDS * 2**n, MAXIMUM) for n in range(1, 9)] and sizes[-1] == MAXIMUM


def test_next_bound_batch_below_bound_keeps_bound():
    assert next_bound(50_000, records=40_000, seconds=0.1, most=MAXIMUM) == 50_000


def test_next_bound_slow_batch_shrinks_to_target():
    assert next_bound(800_000, records=400_000, seconds=4 * TARGET_SECONDS, most=MAXIMUM) == 100_000


def test_next_bound_slow_batch_of_few_records_is_minimum():
    assert next_bound(MIN_RECORDS, records=10, seconds=60, most=MAXIMUM) == MIN_RECORDS
    assert next_bound(MIN_RECORDS, records=MIN_RECORDS, seconds=600, most=MAXIMUM) == MIN_RECORDS


def test_next_bound_never_exceeds_configured_maximum():
    assert next_bound(300, records=300, seconds=0.1, most=500) == 500


def test_next_bound_repeated_converges_to_target_seconds():
    bound, rate = MIN_RECORDS, 100_000
    for _ in range(30):
        bound = next_bound(bound, records=bound, seconds=0.5 + bound / rate, most=10 * MAXIMUM)
    assert TARGET_SECONDS / 3 < 0.5 + bound / rate < 2 * TARGET_SECONDS + 0.5


@pytest.mark.parametrize(("is_transient", "longest_pause"), [(True, 30), (False, 600)])
def test_backoff_doubles_up_to_longest_pause(is_transient, longest_pause):
    pauses = [backoff_seconds(failures, is_transient) for failures in range(1, 40)]
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses == sorted(pauses) and pauses[-1] == longest_pause


def test_round_robin_busy_topics_are_served_equally():
    turns, served = RoundRobin("abc"), Counter()
    for now in range(30):
        topic = turns.acquire(now, lambda _: True)
        served[topic] += 1
        turns.release(topic, not_before=now)
    assert served == {"a": 10, "b": 10, "c": 10}


def test_round_robin_busy_topic_does_not_delay_others():
    turns = RoundRobin(["busy", "calm"])
    assert turns.acquire(0, lambda _: True) == "busy"
    turns.release("busy", not_before=0)
    assert turns.acquire(1, lambda _: True) == "calm"


def test_round_robin_topic_has_one_worker():
    turns = RoundRobin("ab")
    assert [turns.acquire(0, lambda _: True) for _ in range(3)] == ["a", "b", None]


def test_round_robin_idle_topic_keeps_its_place():
    turns = RoundRobin(["idle", "moved"])
    assert turns.acquire(0, lambda topic: topic == "moved") == "moved"
    turns.release("moved", not_before=0)
    assert turns.acquire(1, lambda _: True) == "idle"


def test_round_robin_backed_off_topic_waits_while_others_continue():
    turns = RoundRobin(["bad", "good"])
    turns.acquire(0, lambda _: True)
    turns.release("bad", not_before=10 * EVERY_SECONDS)
    for now in range(5):
        assert turns.acquire(now, lambda _: True) == "good"
        turns.release("good", not_before=now)
    assert turns.acquire(10 * EVERY_SECONDS, lambda topic: topic == "bad") == "bad"
