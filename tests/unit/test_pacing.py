"""Whose turn it is, how much of a topic it takes, and how long one that failed waits."""

from collections import Counter

import pytest

from lakehouse.core.pacing import EVERY_SECONDS, LEAST_RECORDS, TARGET_SECONDS, Turns, next_bound, pause

MOST = 1_000_000


def test_a_batch_grows_while_it_is_quick_and_takes_all_it_may():
    bound, sizes = LEAST_RECORDS, []
    for _ in range(8):
        bound = next_bound(bound, taken=bound, seconds=TARGET_SECONDS / 2, most=MOST)
        sizes.append(bound)
    assert sizes == [min(LEAST_RECORDS * 2**n, MOST) for n in range(1, 9)] and sizes[-1] == MOST


def test_a_batch_that_did_not_take_all_it_may_says_nothing_of_a_larger_one():
    assert next_bound(50_000, taken=40_000, seconds=0.1, most=MOST) == 50_000


def test_a_slow_batch_shrinks_to_what_the_target_allows():
    assert next_bound(800_000, taken=400_000, seconds=4 * TARGET_SECONDS, most=MOST) == 100_000


def test_a_batch_whose_time_is_not_spent_on_records_does_not_shrink():
    assert next_bound(LEAST_RECORDS, taken=10, seconds=60, most=MOST) == LEAST_RECORDS
    assert next_bound(LEAST_RECORDS, taken=LEAST_RECORDS, seconds=600, most=MOST) == LEAST_RECORDS


def test_what_lakehouse_yaml_allows_is_never_exceeded():
    assert next_bound(300, taken=300, seconds=0.1, most=500) == 500


def test_the_bound_settles_where_a_batch_takes_the_target():
    bound, rate = LEAST_RECORDS, 100_000
    for _ in range(30):
        bound = next_bound(bound, taken=bound, seconds=0.5 + bound / rate, most=10 * MOST)
    assert TARGET_SECONDS / 3 < 0.5 + bound / rate < 2 * TARGET_SECONDS + 0.5


@pytest.mark.parametrize(("heals", "longest"), [(True, 30), (False, 600)])
def test_a_topic_that_fails_waits_longer_each_time_and_is_never_given_up(heals, longest):
    pauses = [pause(failures, heals) for failures in range(1, 40)]
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses == sorted(pauses) and pauses[-1] == longest


def test_topics_that_always_have_more_are_served_alike():
    turns, served = Turns("abc"), Counter()
    for now in range(30):
        topic = turns.take(now, lambda _: True)
        served[topic] += 1
        turns.give_back(topic, not_before=now)
    assert served == {"a": 10, "b": 10, "c": 10}


def test_a_busy_topic_keeps_no_other_waiting():
    turns = Turns(["busy", "calm"])
    assert turns.take(0, lambda _: True) == "busy"
    turns.give_back("busy", not_before=0)
    assert turns.take(1, lambda _: True) == "calm"


def test_a_topic_is_taken_by_one_worker_only():
    turns = Turns("ab")
    assert [turns.take(0, lambda _: True) for _ in range(3)] == ["a", "b", None]


def test_a_topic_with_nothing_new_is_passed_over_and_keeps_its_place():
    turns = Turns(["idle", "moved"])
    assert turns.take(0, lambda topic: topic == "moved") == "moved"
    turns.give_back("moved", not_before=0)
    assert turns.take(1, lambda _: True) == "idle"


def test_a_topic_that_was_set_aside_waits_for_its_time_while_others_go_on():
    turns = Turns(["bad", "good"])
    turns.take(0, lambda _: True)
    turns.give_back("bad", not_before=10 * EVERY_SECONDS)
    for now in range(5):
        assert turns.take(now, lambda _: True) == "good"
        turns.give_back("good", not_before=now)
    assert turns.take(10 * EVERY_SECONDS, lambda topic: topic == "bad") == "bad"
