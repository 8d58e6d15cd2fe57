"""Work of Spark that makes no progress is cancelled, and a stream goes on when the server does."""

import os
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from support import Stream
from test_stream import running, until

from lakehouse.core.errors import Stalled, Unreachable
from lakehouse.local import process
from lakehouse.streaming import stream as streams
from lakehouse.streaming.stream_events import Commit, SetAside
from resources.spark import Spark

pytestmark = pytest.mark.stack
STALL_SECONDS = 6
SLEEP = "SELECT reflect('java.lang.Thread', 'sleep', CAST({ms} AS BIGINT) + id - id) FROM range(0, {tasks}, 1, {tasks})"


@pytest.fixture
def spark(resources):
    """A session of its own, which gives up soon, on a server that is warm: its first query takes seconds."""
    resources.spark.session({}).sql(SLEEP.format(ms=1, tasks=4)).collect()
    impatient = Spark(remote=resources.spark.remote, stall_seconds=STALL_SECONDS).apart()
    yield impatient
    impatient.close()


@contextmanager
def hung(home):
    """Spark's server keeps its sockets open and answers nothing."""
    processes = process.running(home)["spark"].processes
    for each in processes:
        each.suspend()
    try:
        yield
    finally:
        for each in processes:
            each.resume()


def test_a_stage_without_progress_is_cancelled_and_frees_its_cores(spark):
    session = spark.session({})
    began = time.monotonic()
    with pytest.raises(Stalled, match="0 of 64 tasks done"):
        session.sql(SLEEP.format(ms=3_600_000, tasks=64)).collect()
    # As many tasks as would fill all cores, did the sleepers still have them.
    assert session.range(0, 64, 1, 64).count() == 64
    assert time.monotonic() - began < 10 * STALL_SECONDS


def test_work_that_makes_progress_may_take_longer_than_a_stall(spark):
    session = spark.session({})
    began = time.monotonic()
    assert len(session.sql(SLEEP.format(ms=1000, tasks=8 * os.cpu_count())).collect()) == 8 * os.cpu_count()
    assert time.monotonic() - began > STALL_SECONDS


def test_a_hung_server_stalls_every_call_in_bounded_time(stack, spark):
    session = spark.session({})
    for work in (
        lambda: session.range(10).count(),
        lambda: session.sql("SELECT 1 AS one").schema,
        lambda: session.conf.set("spark.sql.shuffle.partitions", "4"),
    ):
        with hung(stack), pytest.raises(Stalled, match=f"{STALL_SECONDS} s"):
            began = time.monotonic()
            work()
        assert time.monotonic() - began < 3 * STALL_SECONDS
    with hung(stack), pytest.raises(Unreachable, match="Spark Connect does not answer"):
        Spark(remote=spark.remote, stall_seconds=1).apart().session({})
    assert session.range(10).count() == 10


def test_a_stream_sets_topics_aside_while_spark_hangs_and_goes_on_after(stack, resources):
    stream = Stream(resources)
    stream.produce_trades(range(20))
    # More than the first batch may take on a busy machine.
    systems = replace(stream.systems, spark=Spark(remote=resources.spark.remote, stall_seconds=15))
    with running(streams.Stream(stream.config, [stream.topic], systems)) as events:
        until(lambda: any(isinstance(event, Commit) for event in events))
        with hung(stack):
            before = len(events)
            stream.produce_trades(range(20, 40))
            until(lambda: any(isinstance(event, SetAside) for event in events[before:]))
        until(lambda: len(stream.rows()) == 40)
    [aside, *_] = [event for event in events[before:] if isinstance(event, SetAside)]
    assert isinstance(aside.error, (Stalled, Unreachable))
    assert stream.rows() == stream.expected_rows()
