"""Cancellation of Spark operations without progress, and streams that continue once the server responds again."""

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from urllib.parse import urlsplit

import grpc
import pytest
from psutil import NoSuchProcess
from pyspark.sql.connect.client import DefaultChannelBuilder

from lakehouse.core.errors import Stalled, TransientError, Unreachable
from lakehouse.local import stack as local_stack
from lakehouse.local.processes import process
from lakehouse.pipeline.ingestion import ingest
from lakehouse.streaming import stream as streams
from lakehouse.streaming.stream_events import Commit, TopicBackedOff
from resources.spark.servers import Connect
from spark.engine import SparkEngines
from tests.integration.test_stream import running, until
from tests.support.topics import Stream

pytestmark = pytest.mark.stack
STALL_SECONDS = 6
SLEEP = "SELECT reflect('java.lang.Thread', 'sleep', CAST({ms} AS BIGINT) + id - id) FROM range(0, {tasks}, 1, {tasks})"


@pytest.fixture
def spark(resources):
    """Return an own session with a short time limit. The server has run a query, since the first takes seconds."""
    resources.spark.session({}).sql(SLEEP.format(ms=1, tasks=4)).collect()
    own_spark = Connect(remote=resources.spark.remote, stall_seconds=STALL_SECONDS).with_own_session()
    yield own_spark
    own_spark.close()


@contextmanager
def suspended(home):
    """Suspend Spark's server, which then keeps its sockets open and never responds."""
    processes = process.running(home)["spark"].processes
    try:
        for running_process in processes:
            # Python workers of Spark end by themselves.
            with suppress(NoSuchProcess):
                running_process.suspend()
        yield
    finally:
        for running_process in processes:
            with suppress(NoSuchProcess):
                running_process.resume()


@contextmanager
def forwarded(port):
    """Yield a port whose connections are forwarded to another port of this machine, until the end."""
    connections = []

    def copy(source, target):
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)

    def accept():
        with suppress(OSError):
            while True:
                pair = listener.accept()[0], socket.create_connection(("127.0.0.1", port))
                connections.extend(pair)
                threads.submit(copy, *pair)
                threads.submit(copy, *reversed(pair))

    with ThreadPoolExecutor(16) as threads, socket.create_server(("127.0.0.1", 0)) as listener:
        threads.submit(accept)
        try:
            yield listener.getsockname()[1]
        finally:
            for connection in (listener, *connections):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def test_lost_server_is_an_error_of_the_project(resources, monkeypatch):
    """Not PySpark's error: a command would print its traceback, and a batch would be searched for a bad record."""
    monkeypatch.setattr("resources.spark.connection.RETRIES", 2)
    address = urlsplit(resources.spark.remote)
    sessions = []
    with forwarded(address.port) as port:
        for _ in range(3):
            spark = Connect(remote=resources.spark.remote.replace(f":{address.port}", f":{port}")).with_own_session()
            sessions.append(spark.session({}))
            assert sessions[-1].range(10).count() == 10
    counted, analyzed, configured = sessions
    for work in (
        lambda: counted.range(10).count(),
        lambda: analyzed.sql("SELECT 1 AS one").schema,
        lambda: configured.conf.set("spark.sql.shuffle.partitions", "4"),
    ):
        with pytest.raises(Stalled, match=f"localhost:{port} closed the connection"):
            work()
    for session in sessions:
        session.client.close()


def test_session_closed_by_server_is_opened_again(spark):
    session = spark.session({})
    session.client.release_session()
    # The resource may have opened another session already: PySpark ends queries in a thread, which notices it, too.
    with pytest.raises(TransientError, match="has ended this session"):
        session.range(10).count()
    assert spark.session({}).range(10).count() == 10


def test_restarted_server_is_an_error_of_the_project(stack, resources, monkeypatch):
    """Not PySpark's error: a command would print its traceback, and a batch would be searched for a bad record."""
    # The server starts again within the retries of the query that runs, even on a busy machine.
    monkeypatch.setattr("resources.spark.connection.RETRIES", 20)
    connections = [Connect(remote=resources.spark.remote).with_own_session() for _ in range(4)]
    counted, analyzed, configured, running_query = [spark.session({}) for spark in connections]
    progress = []
    running_query.registerProgressHandler(lambda **stages: progress.append(stages))
    with ThreadPoolExecutor(1) as thread:
        query = thread.submit(running_query.sql(SLEEP.format(ms=60_000, tasks=4)).collect)
        until(lambda: progress)
        server = process.running(stack)["spark"].leader
        server.kill()
        server.wait(20)
        local_stack.up(stack, ["spark"])
        for work in (
            lambda: counted.range(10).count(),
            lambda: analyzed.sql("SELECT 1 AS one").schema,
            lambda: configured.conf.set("spark.sql.shuffle.partitions", "4"),
            query.result,
        ):
            with pytest.raises(TransientError, match="has ended this session"):
                work()
    for spark in connections:
        assert spark.session({}).range(10).count() == 10
        spark.close()
    resources.spark.close()


class WithoutCounts(grpc.UnaryStreamClientInterceptor):
    """Drops the counts of a write, which a busy server omits if it does not have them within 100 ms."""

    def __init__(self, most):
        self.remaining = most

    def intercept_unary_stream(self, continuation, details, request):
        for response in continuation(details, request):
            if response.observed_metrics and self.remaining:
                self.remaining -= 1
                del response.observed_metrics[:]
            yield response


@contextmanager
def spark_without_counts(resources, monkeypatch, most):
    """A client of Spark that does not get the counts of writes `most` times."""

    def create(channel, *arguments, create=DefaultChannelBuilder.__init__, **settings):
        create(channel, *arguments, **settings)
        channel.add_interceptor(WithoutCounts(most))

    with monkeypatch.context() as patch:
        patch.setattr(DefaultChannelBuilder, "__init__", create)
        spark = Connect(remote=resources.spark.remote).with_own_session()
        spark.session({})
    try:
        yield spark
    finally:
        spark.close()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_batch_without_counts_is_written_again(resources, monkeypatch, mode):
    stream = Stream(resources, settings={"mode": mode})
    stream.produce_trades(range(3))
    with spark_without_counts(resources, monkeypatch, 1) as spark:
        list(ingest(stream.namespace, stream.topic, replace(stream.systems, engines=SparkEngines(spark))))
    assert stream.rows() == stream.expected_rows()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_batch_without_counts_is_not_published(resources, monkeypatch, mode):
    stream = Stream(resources, settings={"mode": mode})
    stream.produce_trades(range(3))
    with (
        spark_without_counts(resources, monkeypatch, 1000) as spark,
        pytest.raises(Unreachable, match="counts of a write did not arrive"),
    ):
        list(ingest(stream.namespace, stream.topic, replace(stream.systems, engines=SparkEngines(spark))))
    assert not stream.rows()
    stream.ingest()
    assert stream.rows() == stream.expected_rows()


def test_stage_without_progress_is_cancelled_and_frees_cores(spark):
    session = spark.session({})
    began = time.monotonic()
    with pytest.raises(Stalled, match="0 of 64 tasks done"):
        session.sql(SLEEP.format(ms=3_600_000, tasks=64)).collect()
    # These tasks would wait if the cancelled tasks still occupied the cores.
    assert session.range(0, 64, 1, 64).count() == 64
    assert time.monotonic() - began < 10 * STALL_SECONDS


def test_stage_with_progress_may_exceed_the_limit(spark):
    session = spark.session({})
    began = time.monotonic()
    assert len(session.sql(SLEEP.format(ms=1000, tasks=8 * os.cpu_count())).collect()) == 8 * os.cpu_count()
    assert time.monotonic() - began > STALL_SECONDS


def test_suspended_server_stalls_each_call_in_bounded_time(stack, spark):
    calls = (
        lambda session: session.range(10).count(),
        lambda session: session.sql("SELECT 1 AS one").schema,
        lambda session: session.conf.set("spark.sql.shuffle.partitions", "4"),
    )
    connections = [Connect(remote=spark.remote, stall_seconds=STALL_SECONDS).with_own_session() for _ in calls]
    sessions = [connection.session({}) for connection in connections]
    with suspended(stack), ThreadPoolExecutor(len(calls)) as threads:
        began = time.monotonic()
        for work in [threads.submit(call, session) for call, session in zip(calls, sessions, strict=True)]:
            with pytest.raises(Stalled, match=f"{STALL_SECONDS} s"):
                work.result()
        assert time.monotonic() - began < 3 * STALL_SECONDS
        with pytest.raises(Unreachable, match="Spark Connect does not answer"):
            Connect(remote=spark.remote, stall_seconds=1).with_own_session().session({})
    for connection, session in zip(connections, sessions, strict=True):
        assert session.range(10).count() == 10
        connection.close()


def test_stream_backs_off_while_spark_is_suspended_and_continues(stack, resources):
    stream = Stream(resources)
    stream.produce_trades(range(20))
    # The first batch may take longer than STALL_SECONDS on a busy machine.
    systems = replace(stream.systems, engines=SparkEngines(Connect(remote=resources.spark.remote, stall_seconds=15)))
    with running(streams.Stream(stream.config, [stream.topic], systems)) as events:
        until(lambda: any(isinstance(event, Commit) for event in events))
        with suspended(stack):
            before = len(events)
            stream.produce_trades(range(20, 40))
            until(lambda: any(isinstance(event, TopicBackedOff) for event in events[before:]))
        until(lambda: len(stream.rows()) == 40)
    [backed_off, *_] = [event for event in events[before:] if isinstance(event, TopicBackedOff)]
    assert isinstance(backed_off.error, (Stalled, Unreachable))
    assert stream.rows() == stream.expected_rows()
