"""Streams of many topics: fairness, exactly-once publication despite failures and kills, and events in Dagster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
import yaml
from confluent_kafka import ConsumerGroupState, KafkaException
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from assets.streaming.service import StreamService, select_topics
from assets.topics.topic_chain import topic_definitions
from lakehouse.config.loader import load
from lakehouse.config.model import Config, Route, Topic
from lakehouse.core.errors import BadRecords, TransientError, UnexpectedError, is_transient
from lakehouse.core.log_entry import LogEntry
from lakehouse.core.tables import naming
from lakehouse.streaming import stream as streams
from lakehouse.streaming.stream_events import Commit, Event, TableCompacted, TopicBackedOff, TopicRecovered
from resources.build import build_resources
from resources.iceberg.namespace_identity import namespace_identity
from tests.support.declared import EMBEDDED_READERS
from tests.support.faults import oracle
from tests.support.faults.proxied import ProxiedStream, proxied
from tests.support.servers.proxy import REGISTRY_ERROR, S3_SLOW_DOWN, Fault
from tests.support.topics import Stream, admin, consume
from tools.repository import PROJECT

STAGES = ("iceberg", "glue", "snowflake")
SECONDS = 300
"""The longest that a condition may take on a busy machine."""


def config_of(*of: Stream) -> Config:
    topics = {stream.name: stream.topic for stream in of}
    return Config(namespace=of[0].namespace, topics=topics, environments=EMBEDDED_READERS)


def create_streams(resources, *settings) -> list[Stream]:
    """Return streams with these settings, in one namespace."""
    first = Stream(resources, settings=settings[0])
    rest = [Stream(resources, settings=created) for created in settings[1:]]
    for number, created in enumerate(rest):
        created.namespace = first.namespace
        assert created.name != first.name, number
    return [first, *rest]


def until(condition) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS} s"
        time.sleep(0.1)


@contextmanager
def running(stream: streams.Stream):
    """Run a stream in another thread, and yield its events."""
    events: list[Event] = []
    thread = threading.Thread(target=lambda: events.extend(_append_all(stream.run(), events)))
    thread.start()
    try:
        yield events
    finally:
        stream.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()


def snapshots(stream: Stream) -> set[int]:
    """Return the ids of all snapshots of the table, whether published or not."""
    table = stream.table()
    return {snapshot.snapshot_id for snapshot in table.metadata.snapshots} if table else set()


def _append_all(produced, events):
    for event in produced:
        events.append(event)
    return []


def test_stream_alternates_topics_and_bad_record_stops_one(resources):
    busy, calm, bad = create_streams(resources, {"max_records_per_batch": 100}, {}, {"errors": "suspend"})
    busy.produce_trades(range(600))
    calm.produce_trades(range(20))
    bad.produce_trades(range(5))
    bad.produce([{"value": b"no Avro"}])
    stream = streams.Stream(config_of(busy, calm, bad), [s.topic for s in (busy, calm, bad)], busy.systems, once=True)

    events = list(stream.run())

    commits = [event.topic.name for event in events if isinstance(event, Commit)]
    assert commits.count(busy.name) >= 6 and commits.count(calm.name) == 1
    # One of the two workers may have started the second batch of the busy topic.
    assert commits.index(calm.name) <= 2
    assert [type(error).__name__ for error in stream.errors.values()] == ["BadRecords"] and bad.name in stream.errors
    backed_off = [event for event in events if isinstance(event, TopicBackedOff)]
    assert [event.topic for event in backed_off if isinstance(event.error, BadRecords)] == [bad.name]
    # Otherwise, only temporary failures of systems make a topic back off.
    assert all(isinstance(event.error, BadRecords | TransientError | UnexpectedError) for event in backed_off), (
        backed_off
    )
    for one in (busy, calm):
        assert one.rows() == one.expected_rows()
        oracle.judge(one)
    assert bad.rows() == []


def test_stream_ingests_new_records_and_recovers_from_faults(resources):
    with proxied(ProxiedStream(resources)) as stream:
        stream.produce_trades(range(50))
        with running(streams.Stream(stream.config, [stream.topic], stream.systems)) as events:
            until(lambda: len(stream.rows()) == 50)
            faults = [
                stream.registry.inject(Fault("response", times=10_000, status=500, body=REGISTRY_ERROR)),
                stream.s3.inject(Fault("response", times=10_000, status=503, body=S3_SLOW_DOWN)),
            ]
            stream.produce_trades(range(50, 90))
            until(lambda: any(isinstance(event, TopicBackedOff) for event in events))
            stream.s3.heal()
            stream.registry.heal()
            until(lambda: any(isinstance(event, TopicRecovered) for event in events))
            until(lambda: sum(e.published.counts.rows for e in events if isinstance(e, Commit)) == 90)
        assert any(fault.fired for fault in faults)
        oracle.judge(stream)


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGKILL])
def test_stream_after_termination_completes_table(resources, tmp_path, signal_):
    stream = Stream(resources, settings={"max_records_per_batch": 50})
    stream.produce_trades(range(2_000))
    command = [str(Path(sys.executable).with_name("lakehouse")), "stream"]
    file = stream.declare(tmp_path)
    process = subprocess.Popen(command, cwd=PROJECT, env={**os.environ, "LAKEHOUSE_CONFIG": str(file)})

    def is_in_batch():
        table = stream.table()
        return table and len(stream.rows()) > 0 and any(ref.startswith("ingest_") for ref in table.metadata.refs)

    try:
        until(is_in_batch)
        process.send_signal(signal_)
        assert process.wait(SECONDS) == (0 if signal_ == signal.SIGTERM else -signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert 0 < len(stream.rows()) < 2_000

    stream.topic = stream.topic.model_copy(update={"max_records_per_batch": 5_000})
    # Kafka assigns the topics of a killed stream to this one after ten seconds without a heartbeat.
    with running(streams.Stream(stream.config, [stream.topic], stream.systems)):
        until(lambda: len(stream.rows()) == 2_000)
    oracle.judge(stream)


def group_is_stable(count: int, stream: Stream) -> bool:
    """Return true if the consumer group of the namespace is stable with `count` streams."""
    identity = namespace_identity(stream.systems.catalog, stream.namespace)
    group = f"lakehouse.stream.{identity}"
    try:
        description = admin().describe_consumer_groups([group])[group].result(20)
    except KafkaException:  # a new consumer group has no coordinator yet
        return False
    return description.state == ConsumerGroupState.STABLE and len(description.members) == count


def test_concurrent_streams_and_run_publish_each_record_once(resources, tmp_path):
    both = create_streams(resources, {"max_records_per_batch": 100}, {"max_records_per_batch": 100})
    config, topics, systems = config_of(*both), [s.topic for s in both], both[0].systems
    with (
        running(streams.Stream(config, topics, systems, workers=1)) as first,
        running(streams.Stream(config, topics, systems, workers=1)) as second,
    ):
        until(lambda: group_is_stable(2, both[0]))
        for one in both:
            one.produce_trades(range(300))
        # A run may lose so often that it gives up; then the streams ingest the remaining records.
        both[0].start("nowhere", tmp_path).wait(120)
        until(lambda: all(len(one.rows()) == 300 for one in both))
    for one in both:
        oracle.judge(one)
    # A stream loses a batch only to the run, since two streams never ingest the same topic.
    backed_off = {event.topic for event in (*first, *second) if isinstance(event, TopicBackedOff)}
    assert backed_off <= {both[0].name}
    assert all(is_transient(event.error) for event in (*first, *second) if isinstance(event, TopicBackedOff))
    by_stream = [{event.topic.name for event in events if isinstance(event, Commit)} for events in (first, second)]
    assert not by_stream[0] & by_stream[1]


def test_stream_commit_requests_derived_topic(resources):
    source = Stream(resources, settings={"continuous": True})
    source.produce_trades(range(3))
    flagged = {"source": {"type": "derived", "from": source.name, "transform": "spark.flags:flagged"}}
    derived = Topic.model_validate({**flagged, "name": f"{source.name}-flagged"})
    config = config_of(source).model_copy(update={"topics": {one.name: one for one in (source.topic, derived)}})
    built = build_resources(load(PROJECT / "lakehouse.yaml"), "local")
    chains = (topic_definitions(config, topic) for topic in config.topics.values())
    definitions = dg.Definitions.merge(*chains, dg.Definitions(resources=built))
    with dg.instance_for_test() as instance:
        before = dg.evaluate_automation_conditions(definitions, instance)
        StreamService(config, [source.topic], resources, [].append, instance, once=True).run()
        after = dg.evaluate_automation_conditions(definitions, instance, cursor=before.cursor)

    key = dg.AssetKey([derived.name, "kafka"])
    assert (before.get_num_requested(key), after.get_num_requested(key)) == (0, 1)
    checks = {
        result.key for result in after.results if isinstance(result.key, dg.AssetCheckKey) and result.true_subset.size
    }
    assert not [check for check in checks if check.asset_key == dg.AssetKey([source.name, "iceberg"])]


def test_stream_route_topics_are_partitions_in_dagster(resources):
    one, other = create_streams(resources, {}, {})
    one.produce_trades(range(3))
    other.produce_trades(range(4))
    names = {stream.name: stream for stream in (one, other)}
    settings = {"name": "both", "pattern": f"(?P<of>{'|'.join(names)})", "table": "of_{of}", "key": "userid"}
    routes = {"both": Route.model_validate(settings)}
    config = Config(namespace=one.namespace, topics={}, routes=routes, environments=EMBEDDED_READERS)
    with dg.instance_for_test() as instance:
        existing = [*names, "of_somebody_else"]
        StreamService(config, select_topics(config, [], existing), resources, [].append, instance, once=True).run()
        partitions = {stage: instance.get_materialized_partitions(dg.AssetKey(["both", stage])) for stage in STAGES}

    assert partitions == dict.fromkeys(STAGES, set(names))
    tables = {name: one.table(f"of_{naming.table_name(name)}").scan().to_arrow() for name in names}
    assert {name: len(table) for name, table in tables.items()} == {one.name: 3, other.name: 4}


def test_stream_publishes_dead_letters_to_their_topic(resources):
    stream = Stream(resources)
    letters = f"{stream.name}-letters"
    stream.topic = stream.topic.model_copy(update={"dead_letter_topic": letters})
    stream.produce_trades(range(3))
    stream.produce([{"value": b"no Avro"}, {"value": b"neither"}])

    list(streams.Stream(stream.config, [stream.topic], stream.systems, once=True).run())

    partitions = len(admin().list_topics(letters).topics[letters].partitions)
    assert sorted(message.value for message in consume(letters, partitions)) == [b"neither", b"no Avro"]
    assert len(stream.rows()) == 3


def test_stream_blocking_check_is_reported_failed_and_passed(resources):
    users, stream = create_streams(resources, {"mode": "upsert"}, {})
    known = {"type": "references", "column": "userid", "table": users.topic.table}
    stream.topic = Topic.model_validate({**stream.settings, "name": stream.name, "checks": {"known": known}})
    users.produce_trades(range(3))
    users.ingest()
    stream.produce_trades(range(9))
    check = dg.AssetCheckKey(dg.AssetKey([stream.name, "iceberg"]), "known")
    with dg.instance_for_test() as instance:

        def verdicts():
            records = instance.event_log_storage.get_asset_check_execution_history(check, limit=100)
            return [record.status == AssetCheckExecutionRecordStatus.SUCCEEDED for record in reversed(records)]

        lines: list[LogEntry] = []
        streaming = StreamService(stream.config, [stream.topic], resources, lines.append, instance)
        thread = threading.Thread(target=streaming.run)
        thread.start()
        try:
            until(lambda: False in verdicts())
            written = snapshots(stream)
            line_count = len(lines)
            until(lambda: len(lines) >= line_count + 2)
            # The batch is not written again while nothing changes that affects the check.
            assert snapshots(stream) == written and stream.rows() == []
            users.produce_trades(range(9))
            users.ingest()
            until(lambda: True in verdicts())
        finally:
            streaming.stream.stop()
            thread.join(SECONDS)
        assert not thread.is_alive()
        assert verdicts() == [False, True]
        # Checks that passed in the failed audit are reported too, since automation of later assets depends on them.
        record = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(check.asset_key, "record_count"))
        assert record and record.status == AssetCheckExecutionRecordStatus.SUCCEEDED
    oracle.judge(stream)


def test_stream_compacts_small_files(resources, monkeypatch):
    monkeypatch.setattr("lakehouse.streaming.scheduler.FILES_PER_COMPACTION", 5)
    stream = Stream(resources, settings={"max_records_per_batch": 50})
    stream.produce_trades(range(250))

    events = list(streams.Stream(stream.config, [stream.topic], stream.systems, once=True).run())

    [compacted] = [event for event in events if isinstance(event, TableCompacted)]
    assert compacted.maintained.actions[0].endswith(" data files into 1")
    assert compacted.maintained.before.data_files >= 5 > compacted.maintained.after.data_files
    oracle.judge(stream)


def test_stream_ingests_derived_topic_after_source(resources, tmp_path):
    source = Stream(resources)
    source.produce_trades(range(30))
    flagged = {"source": {"type": "derived", "from": source.name, "transform": "spark.flags:flagged"}}
    file = source.declare(tmp_path, {f"{source.name}-flagged": flagged})
    declared = yaml.safe_load(file.read_text())
    config = Config.model_validate(
        {
            **declared,
            "environments": {},
            "topics": {name: {**topic, "name": name} for name, topic in declared["topics"].items()},
        }
    )

    list(streams.Stream(config, config.topics.values(), source.systems, once=True).run())

    table = source.table(f"{source.topic.table}_flagged")
    assert table.scan().to_arrow().num_rows == 30
