"""The stream scheduler: which topic is served next, from given times and offsets."""

from types import SimpleNamespace

import pytest

from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError, Paused, Unreachable
from lakehouse.core.offsets.batch import Batch
from lakehouse.streaming.pacing import EVERY_SECONDS, MIN_RECORDS
from lakehouse.streaming.scheduler import ATTEMPTS, FILES_PER_COMPACTION, PAUSED_SECONDS, REVIEW_SECONDS, Scheduler

DOWN = Unreachable("Kafka", "127.0.0.1:1", "the address")
WRONG = LakehouseError("The table is of another topic")


def topic(name, **settings):
    return Topic.model_validate({"name": name, **settings})


def derived(name, source):
    from_source = {"type": "derived", "from": source, "transform": "spark.flags:flagged"}
    return topic(name, source=from_source)


def scheduler(*topics, once=False, owns=lambda topic, partitions: True):
    return Scheduler({topic_.name: topic_ for topic_ in topics}, once=once, owns=owns)


def published(start, end, data_files=1):
    return SimpleNamespace(batch=Batch("c", "t", "id", start, end), data_files=data_files)


def serve(stream, name, ends, now, batch=None, limit=MIN_RECORDS):
    """Take the turn of a topic, which must be the next one, and end it."""
    assert stream.acquire(now) == name
    end = stream.finish_batch(name, batch, ends, limit, now, now)
    stream.release(name, end.not_before)
    return end


def test_acquire_topics_with_new_records_in_turn():
    stream = scheduler(topic("a"), topic("b"), topic("c"))
    for name in "abc":
        stream.set_ends(name, "id", {0: 5}, 0.0)
    for name in "abc":
        serve(stream, name, {0: 5}, 0.0)
    assert stream.acquire(10.0) is None
    stream.set_ends("b", "id", {0: 6}, 10.0)
    assert stream.acquire(10.0) == "b"


def test_take_topic_with_unknown_ends_is_none():
    assert scheduler(topic("a")).acquire(0.0) is None


def test_take_topic_in_progress_is_none():
    stream = scheduler(topic("a"))
    stream.set_ends("a", "id", {0: 5}, 0.0)
    assert (stream.acquire(0.0), stream.acquire(100.0), stream.is_idle) == ("a", None, False)


def test_note_batch_wait_starts_at_first_noticed_record():
    stream = scheduler(topic("a"))
    stream.set_ends("a", "id", {0: 5}, 1.0)
    stream.set_ends("a", "id", {0: 7}, 2.0)
    end = serve(stream, "a", {0: 7}, 4.0, published({0: 0}, {0: 7}))
    assert (end.behind, end.waited, end.is_first, end.is_recovered) == (0, 3.0, True, False)


def test_take_topic_one_batch_behind_is_served_immediately():
    stream = scheduler(topic("a"))
    ends = {0: 3 * MIN_RECORDS}
    stream.set_ends("a", "id", ends, 0.0)
    assert serve(stream, "a", ends, 0.0, published({0: 0}, {0: MIN_RECORDS})).behind == 2 * MIN_RECORDS
    assert stream.batch_limit("a") == 2 * MIN_RECORDS
    almost_all = published({0: MIN_RECORDS}, {0: 3 * MIN_RECORDS - 1})
    assert serve(stream, "a", ends, 0.0, almost_all, 2 * MIN_RECORDS).behind == 1
    assert stream.acquire(EVERY_SECONDS / 2) is None
    assert stream.acquire(EVERY_SECONDS) == "a"


def test_back_off_failed_topic_waits_longer_each_time():
    stream = scheduler(topic("a"), topic("b"))
    for name in "ab":
        stream.set_ends(name, "id", {0: 5}, 0.0)
    assert stream.acquire(0.0) == "a"
    first = stream.back_off("a", DOWN, 0.0)
    serve(stream, "b", {0: 5}, 0.0)
    assert stream.acquire(first / 2) is None
    assert stream.acquire(first) == "a"
    second = stream.back_off("a", DOWN, first)
    assert second == 2 * first
    end = serve(stream, "a", {0: 5}, first + second)
    assert (end.is_recovered, end.failures) == (True, 2)


def test_back_off_paused_topic_is_reported_once_and_retried():
    stream = scheduler(topic("a"))
    stream.set_ends("a", "id", {0: 5}, 0.0)
    stream.acquire(0.0)
    assert stream.back_off("a", Paused("a", "paused"), 0.0) == PAUSED_SECONDS
    assert stream.acquire(PAUSED_SECONDS) == "a"
    assert stream.back_off("a", Paused("a", "paused"), PAUSED_SECONDS) is None
    assert serve(stream, "a", {0: 5}, 2 * PAUSED_SECONDS).is_recovered


@pytest.mark.parametrize(("error", "attempts"), [(WRONG, 1), (DOWN, ATTEMPTS)])
def test_once_failed_topic_is_given_up_after_its_attempts(error, attempts):
    stream, now = scheduler(topic("a"), once=True), 0.0
    stream.set_ends("a", "id", {0: 5}, now)
    stream.polled_at = now
    for _ in range(attempts):
        assert not stream.is_done
        assert stream.acquire(now) == "a"
        now += stream.back_off("a", error, now)
    assert stream.is_done and stream.states["a"].error is error and stream.acquire(now) is None


def test_once_reads_ends_only_once():
    for once in (True, False):
        stream = scheduler(topic("a"), once=once)
        assert stream.is_poll_due(5.0) and not stream.is_done
        stream.polled_at = 5.0
        assert not stream.is_poll_due(5.1)
        assert stream.is_poll_due(6.0) is not once


def test_watch_waits_until_tables_have_the_ends():
    stream = scheduler(topic("a"), topic("b"))
    assert stream.begin_watch(0.0) is None
    for name in "ab":
        stream.set_ends(name, "id", {0: 5}, 0.0)
    stream.polled_at = 0.0
    assert stream.begin_watch(0.0) is None
    for name in "ab":
        serve(stream, name, {0: 5}, 0.0)
    assert stream.begin_watch(10.0) is None  # the ends are outdated
    stream.polled_at = 10.0
    assert stream.begin_watch(10.0) == {"a": {0: 5}, "b": {0: 5}}
    assert stream.begin_watch(10.0) is None  # one thread waits
    assert not stream.is_poll_due(99.0)
    stream.end_watch(has_records=False)
    assert not stream.is_poll_due(10.1) and stream.is_poll_due(11.0)
    assert stream.begin_watch(10.1)
    stream.end_watch(has_records=True)
    assert stream.is_poll_due(10.1)


def test_watch_needs_no_fault_and_topics_of_this_stream():
    stream = scheduler(topic("a"), topic("b"), owns=lambda topic, partitions: topic == "a")
    for name in "ab":
        stream.set_ends(name, "id", {0: 0}, 0.0)
    serve(stream, "a", {0: 0}, 0.0)
    stream.polled_at = 10.0
    assert stream.begin_watch(10.0) == {"a": {0: 0}}
    stream.end_watch(has_records=False)
    stream.set_fault("b", WRONG)
    assert stream.begin_watch(10.0) is None


def test_take_unreadable_topic_is_served_once_readable():
    stream = scheduler(topic("a"))
    stream.set_fault("a", WRONG)
    assert stream.acquire(0.0) == "a"
    stream.back_off("a", WRONG, 0.0)
    assert stream.acquire(0.5) is None
    stream.set_ends("a", "id", {0: 5}, 0.5)
    assert stream.acquire(0.5) == "a"


def test_take_ends_moved_back_make_position_unknown():
    stream = scheduler(topic("a"))
    stream.set_ends("a", "id", {0: 5}, 0.0)
    serve(stream, "a", {0: 5}, 0.0, published({0: 0}, {0: 5}))
    stream.set_ends("a", "id", {0: 3}, 10.0)
    assert stream.acquire(10.0) == "a"


@pytest.mark.parametrize(("topic_id", "end"), [("id", 3), ("other", 3), ("other", 5), ("other", 7)])
@pytest.mark.parametrize("batch", [None, published({0: 0}, {0: 5})])
def test_log_replaced_during_turn_makes_position_unknown(topic_id, end, batch):
    stream = scheduler(topic("a"))
    stream.set_ends("a", "id", {0: 5}, 0.0)
    assert stream.acquire(0.0) == "a"
    stream.set_ends("a", topic_id, {0: end}, 0.0)
    stream.release("a", stream.finish_batch("a", batch, {0: 5}, MIN_RECORDS, 0.0, 0.0).not_before)
    assert stream.acquire(10.0) == "a"
    stream.release("a", stream.finish_batch("a", None, {0: end}, MIN_RECORDS, 10.0, 10.0).not_before)
    assert stream.acquire(20.0) is None


def test_topic_recreated_with_as_many_records_makes_position_unknown():
    stream = scheduler(topic("a"))
    stream.set_ends("a", "id", {0: 5}, 0.0)
    serve(stream, "a", {0: 5}, 0.0, published({0: 0}, {0: 5}))
    stream.set_ends("a", "other", {0: 5}, 10.0)
    assert stream.acquire(10.0) == "a"


def test_take_topic_of_other_stream_only_when_unreadable():
    stream = scheduler(topic("a"), owns=lambda topic, partitions: False)
    stream.set_ends("a", "id", {0: 5}, 0.0)
    assert stream.acquire(0.0) is None
    stream.set_fault("a", WRONG)
    assert stream.acquire(0.0) == "a"


def test_topic_of_other_stream_that_can_be_read_again_has_recovered():
    stream = scheduler(topic("a"), owns=lambda topic, partitions: False)
    stream.set_fault("a", WRONG)
    assert stream.acquire(0.0) == "a"
    stream.back_off("a", WRONG, 0.0)
    stream.set_ends("a", "id", {0: 5}, 1.0)
    assert stream.acquire(1.0) == "a"
    assert stream.end_idle("a", 1.0) == 1
    assert stream.acquire(100.0) is None


def test_derived_topic_of_other_stream_recovers_after_a_pause():
    stream = scheduler(topic("a"), derived("d", "a"))
    assert stream.acquire(0.0) == "d"
    assert stream.back_off("d", Paused("d", "by ann"), 0.0) == PAUSED_SECONDS
    assert stream.acquire(PAUSED_SECONDS) == "d"
    assert stream.end_idle("d", PAUSED_SECONDS) == 0
    assert stream.acquire(100.0) == "d"
    assert stream.back_off("d", Paused("d", "by ann"), 100.0) == PAUSED_SECONDS


@pytest.mark.parametrize("batch", [published({0: 0}, {0: 5}), None], ids=["own batch", "batch of another writer"])
def test_computable_derived_topic_follows_turns_of_source(batch):
    stream = scheduler(topic("a"), derived("d", "a"))
    assert stream.is_computable("d")
    stream.set_computed("d", 0, 0.0)
    assert not stream.is_computable("d")
    stream.set_ends("a", "id", {0: 5}, 0.0)
    serve(stream, "a", {0: 5}, 0.0, batch)
    assert stream.acquire(0.0) == "d"
    stream.set_computed("d", 1, 0.0)
    assert stream.end_idle("d", 0.0) is None
    assert stream.acquire(100.0) is None


def test_derived_topic_is_derived_again_after_a_minute():
    stream = scheduler(topic("a"), derived("d", "a"))
    stream.set_computed("d", 0, 0.0)
    stream.set_ends("d", "id", {}, REVIEW_SECONDS - 1)
    assert not stream.is_computable("d")
    stream.set_ends("d", "id", {}, REVIEW_SECONDS)
    assert stream.is_computable("d")


def test_deleted_derived_topic_is_derived_again_and_others_are_missing():
    stream = scheduler(topic("a"), derived("d", "a"))
    for name in "ad":
        stream.set_ends(name, "id", {0: 5}, 0.0)
    stream.set_computed("d", 0, 0.0)
    assert (stream.is_expected("a"), stream.is_expected("d"), stream.is_computable("d")) == (True, False, False)
    stream.set_missing("d")
    assert stream.is_computable("d")


def test_derived_topic_recreated_during_its_turn_is_derived_again():
    stream = scheduler(topic("a"), derived("d", "a"))
    stream.set_ends("d", "id", {0: 5}, 0.0)
    assert stream.acquire(0.0) == "d"
    stream.set_ends("d", "other", {0: 0}, 0.0)
    stream.set_computed("d", 0, 0.0)
    assert stream.is_computable("d")


@pytest.mark.parametrize(("settings", "turns"), [({}, ["a", "b"]), ({"mode": "upsert", "key": "id"}, ["b"])])
def test_compaction_blocks_turns_only_of_upsert_topic(settings, turns):
    stream = scheduler(topic("a", **settings), topic("b"))
    for name in "ab":
        stream.set_ends(name, "id", {0: 5}, 0.0)
    many = published({0: 0}, {0: 5}, data_files=FILES_PER_COMPACTION)
    assert stream.next_compaction() is None
    serve(stream, "a", {0: 5}, 0.0, many)
    for name in "ab":
        stream.set_ends(name, "id", {0: 9}, 10.0)
    assert stream.next_compaction() == "a"
    assert sorted(filter(None, [stream.acquire(10.0), stream.acquire(10.0)])) == turns
    for name in turns:
        stream.release(name, 0.0)
    stream.end_compaction("a", data_files=1)
    assert stream.is_idle and stream.states["a"].data_files == 1
    assert {stream.acquire(20.0), stream.acquire(20.0)} == {"a", "b"}


def test_compaction_of_external_maintenance_is_never_due():
    stream = scheduler(topic("a", maintenance="external"))
    stream.set_ends("a", "id", {0: 5}, 0.0)
    serve(stream, "a", {0: 5}, 0.0, published({0: 0}, {0: 5}, data_files=FILES_PER_COMPACTION))
    assert stream.next_compaction() is None


def test_compaction_waits_for_turn_of_upsert_topic():
    stream = scheduler(topic("a", mode="upsert", key="id"))
    stream.set_ends("a", "id", {0: 5}, 0.0)
    assert stream.acquire(0.0) == "a"
    end = stream.finish_batch(
        "a", published({0: 0}, {0: 5}, data_files=FILES_PER_COMPACTION), {0: 5}, MIN_RECORDS, 0.0, 0.0
    )
    assert stream.next_compaction() is None
    stream.release("a", end.not_before)
    assert stream.next_compaction() == "a"
    stream.end_compaction("a", data_files=None)
    assert stream.states["a"].data_files == 0


def test_compaction_counts_files_since_maintenance_or_recreation():
    """Both leave fewer files than the stream's last compaction did."""
    stream = scheduler(topic("a"))
    for end, data_files in enumerate((900, 3, 3 + FILES_PER_COMPACTION), start=1):
        stream.set_ends("a", "id", {0: end}, 100.0 * end)
        serve(stream, "a", {0: end}, 100.0 * end, published({0: end - 1}, {0: end}, data_files))
        is_due = stream.next_compaction() == "a"
        assert is_due == (data_files != 3)
        if is_due:
            stream.end_compaction("a", data_files)
