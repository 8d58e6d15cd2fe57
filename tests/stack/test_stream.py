"""A stream takes many topics on and on: fairly, exactly once, whoever fails or kills it, and Dagster is told."""

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
import oracle
import pytest
import yaml
from confluent_kafka import ConsumerGroupState, KafkaException
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from proxied import ProxiedStream, proxied
from proxy import REGISTRY_ERROR, S3_SLOW_DOWN, Fault
from support import Stream, admin, consume

from assets.streaming.service import Streaming, chosen
from assets.topic import topic_definitions
from lakehouse.config.loader import PROJECT, Config, load
from lakehouse.config.topic import Route, Topic
from lakehouse.core import naming
from lakehouse.core.errors import BadRecords, TransientError, Unforeseen, is_transient
from lakehouse.pipeline.maintenance import keep_pace
from lakehouse.pipeline.position import resume
from lakehouse.streaming import stream as streams
from lakehouse.streaming.stream_events import Commit, Event, Healed, SetAside, Tidied
from resources.build import build_resources

HOPS = ("iceberg", "glue", "snowflake")
SECONDS = 300
"""How long anything may take on a busy machine."""


def config_of(*of: Stream) -> Config:
    topics = {stream.name: stream.topic for stream in of}
    return Config(namespace=of[0].namespace, topics=topics, environments={})


def together(resources, *settings) -> list[Stream]:
    """Topics of one namespace."""
    first = Stream(resources, settings=settings[0])
    rest = [Stream(resources, settings=one) for one in settings[1:]]
    for number, one in enumerate(rest):
        one.namespace = first.namespace
        assert one.name != first.name, number
    return [first, *rest]


def until(met) -> None:
    deadline = time.monotonic() + SECONDS
    while not met():
        assert time.monotonic() < deadline, f"not within {SECONDS} s"
        time.sleep(0.1)


@contextmanager
def running(stream: streams.Stream):
    """The events of a stream that runs meanwhile in another thread."""
    events: list[Event] = []
    thread = threading.Thread(target=lambda: events.extend(_noted(stream.run(), events)))
    thread.start()
    try:
        yield events
    finally:
        stream.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()


def snapshots(stream: Stream) -> set[int]:
    """All that was ever written to the table, published or not."""
    table = stream.table()
    return {snapshot.snapshot_id for snapshot in table.metadata.snapshots} if table else set()


def _noted(found, events):
    for event in found:
        events.append(event)
    return []


def test_topics_take_turns_and_a_bad_record_stops_only_its_own(resources):
    busy, calm, bad = together(resources, {"max_records_per_batch": 100}, {}, {"errors": "suspend"})
    busy.produce_trades(range(600))
    calm.produce_trades(range(20))
    bad.produce_trades(range(5))
    bad.produce([{"value": b"no Avro"}])
    stream = streams.Stream(config_of(busy, calm, bad), [s.topic for s in (busy, calm, bad)], busy.systems, once=True)

    events = list(stream.run())

    commits = [event.topic.name for event in events if isinstance(event, Commit)]
    assert commits.count(busy.name) >= 6 and commits.count(calm.name) == 1
    # Of two workers, one may have begun with the busy topic's second batch.
    assert commits.index(calm.name) <= 2
    assert [type(error).__name__ for error in stream.errors.values()] == ["BadRecords"] and bad.name in stream.errors
    aside = [event for event in events if isinstance(event, SetAside)]
    assert [event.topic for event in aside if isinstance(event.error, BadRecords)] == [bad.name]
    # Nothing else may stop a topic but a system that is waited for.
    assert all(isinstance(event.error, BadRecords | TransientError | Unforeseen) for event in aside), aside
    for one in (busy, calm):
        assert one.rows() == one.expected_rows()
        oracle.judge(one)
    assert bad.rows() == []


def test_what_comes_while_it_runs_is_taken_and_a_failed_topic_heals(resources):
    with proxied(ProxiedStream(resources)) as stream:
        stream.produce_trades(range(50))
        with running(streams.Stream(stream.config, [stream.topic], stream.systems)) as events:
            until(lambda: len(stream.rows()) == 50)
            faults = [
                stream.registry.inject(Fault("answer", times=10_000, status=500, body=REGISTRY_ERROR)),
                stream.s3.inject(Fault("answer", times=10_000, status=503, body=S3_SLOW_DOWN)),
            ]
            stream.produce_trades(range(50, 90))
            until(lambda: any(isinstance(event, SetAside) for event in events))
            stream.s3.heal()
            stream.registry.heal()
            until(lambda: any(isinstance(event, Healed) for event in events))
            until(lambda: sum(e.published.counts.rows for e in events if isinstance(e, Commit)) == 90)
        assert any(fault.fired for fault in faults)
        oracle.judge(stream)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_ended_or_killed_in_a_batch_the_next_stream_completes_the_table(resources, tmp_path, how):
    stream = Stream(resources, settings={"max_records_per_batch": 50})
    stream.produce_trades(range(2_000))
    command = [str(Path(sys.executable).with_name("lakehouse")), "stream"]
    file = stream.declare(tmp_path)
    process = subprocess.Popen(command, cwd=PROJECT, env={**os.environ, "LAKEHOUSE_CONFIG": str(file)})

    def in_a_batch():
        table = stream.table()
        return table and len(stream.rows()) > 0 and any(ref.startswith("ingest_") for ref in table.metadata.refs)

    try:
        until(in_a_batch)
        process.send_signal(how)
        assert process.wait(SECONDS) == (0 if how == signal.SIGTERM else -signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert 0 < len(stream.rows()) < 2_000

    stream.topic = stream.topic.model_copy(update={"max_records_per_batch": 5_000})
    # Kafka gives it the topics of the one that was killed once that has been silent for ten seconds.
    with running(streams.Stream(stream.config, [stream.topic], stream.systems)):
        until(lambda: len(stream.rows()) == 2_000)
    oracle.judge(stream)


def are_members(count: int, stream: Stream) -> bool:
    """Whether so many streams divide the topics of a namespace, as Kafka says."""
    group = f"lakehouse.stream.{stream.namespace}"
    try:
        found = admin().describe_consumer_groups([group])[group].result(20)
    except KafkaException:  # nobody coordinates a group that is just being made
        return False
    return found.state == ConsumerGroupState.STABLE and len(found.members) == count


def test_two_streams_and_a_run_of_the_same_topics_publish_each_record_once(resources, tmp_path):
    both = together(resources, {"max_records_per_batch": 100}, {"max_records_per_batch": 100})
    config, topics, systems = config_of(*both), [s.topic for s in both], both[0].systems
    with (
        running(streams.Stream(config, topics, systems, workers=1)) as first,
        running(streams.Stream(config, topics, systems, workers=1)) as second,
    ):
        until(lambda: are_members(2, both[0]))
        for one in both:
            one.produce_trades(range(300))
        # A run may lose so often that it gives up: what it leaves is the stream's.
        both[0].start("nowhere", tmp_path).wait(120)
        until(lambda: all(len(one.rows()) == 300 for one in both))
    for one in both:
        oracle.judge(one)
    # Only the run could take a batch from a stream: the streams take none from each other.
    aside = {event.topic for event in (*first, *second) if isinstance(event, SetAside)}
    assert aside <= {both[0].name}
    assert all(is_transient(event.error) for event in (*first, *second) if isinstance(event, SetAside))
    by_stream = [{event.topic.name for event in events if isinstance(event, Commit)} for events in (first, second)]
    assert not by_stream[0] & by_stream[1]


def test_each_commit_is_in_dagster_and_shown_in_glue_and_snowflake(resources):
    stream = Stream(resources)
    stream.produce_trades(range(70))
    said: list[str] = []
    with dg.instance_for_test() as instance:
        errors = Streaming(stream.config, [stream.topic], resources, said.append, instance, once=True).run()
        events = {hop: instance.get_latest_materialization_event(dg.AssetKey([hop, stream.name])) for hop in HOPS}

    assert errors == {} and any("70 records → 70 rows" in line for line in said)
    assert said[0].startswith(f"Taking {stream.name};")
    snapshot = stream.table().current_snapshot()
    found = {hop: event.asset_materialization for hop, event in events.items()}
    assert {m.tags["dagster/data_version"] for m in found.values()} == {str(snapshot.snapshot_id)}
    numbers = {name: value.value for name, value in found["iceberg"].metadata.items()}
    assert (numbers["rows"], numbers["records_behind"]) == (70, 0)
    assert numbers["bytes"] == int(snapshot.summary["added-files-size"])
    assert resources.glue.registration(stream.namespace, stream.topic.table).metadata_location == (
        stream.table().metadata_location
    )
    assert resources.snowflake.table_state(stream.namespace, stream.topic.table).row_count == 70


def test_what_stands_on_a_streamed_table_is_asked_for(resources):
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
        Streaming(config, [source.topic], resources, [].append, instance, once=True).run()
        after = dg.evaluate_automation_conditions(definitions, instance, cursor=before.cursor)

    key = dg.AssetKey(["kafka", derived.name])
    assert (before.get_num_requested(key), after.get_num_requested(key)) == (0, 1)
    checks = {
        result.key for result in after.results if isinstance(result.key, dg.AssetCheckKey) and result.true_subset.size
    }
    assert not [check for check in checks if check.asset_key == dg.AssetKey(["iceberg", source.name])]


def test_the_topics_of_a_route_are_partitions_in_dagster(resources):
    one, other = together(resources, {}, {})
    one.produce_trades(range(3))
    other.produce_trades(range(4))
    names = {stream.name: stream for stream in (one, other)}
    settings = {"name": "both", "pattern": f"(?P<of>{'|'.join(names)})", "table": "of_{of}", "key": "userid"}
    config = Config(
        namespace=one.namespace, topics={}, routes={"both": Route.model_validate(settings)}, environments={}
    )
    with dg.instance_for_test() as instance:
        there = [*names, "of_somebody_else"]
        Streaming(config, chosen(config, [], there), resources, [].append, instance, once=True).run()
        told = {hop: instance.get_materialized_partitions(dg.AssetKey([hop, "both"])) for hop in HOPS}

    assert told == dict.fromkeys(HOPS, set(names))
    tables = {name: one.table(f"of_{naming.table_name(name)}").scan().to_arrow() for name in names}
    assert {name: len(table) for name, table in tables.items()} == {one.name: 3, other.name: 4}


def test_dead_letters_are_in_their_topic_too(resources):
    stream = Stream(resources)
    letters = f"{stream.name}-letters"
    stream.topic = stream.topic.model_copy(update={"dead_letter_topic": letters})
    stream.produce_trades(range(3))
    stream.produce([{"value": b"no Avro"}, {"value": b"neither"}])

    list(streams.Stream(stream.config, [stream.topic], stream.systems, once=True).run())

    partitions = len(admin().list_topics(letters).topics[letters].partitions)
    assert sorted(message.value for message in consume(letters, partitions)) == [b"neither", b"no Avro"]
    assert len(stream.rows()) == 3


def test_a_check_that_blocks_is_told_when_it_fails_and_when_it_holds_again(resources):
    users, stream = together(resources, {"mode": "upsert"}, {})
    known = {"type": "references", "column": "userid", "table": users.topic.table}
    stream.topic = Topic.model_validate({**stream.settings, "name": stream.name, "checks": {"known": known}})
    users.produce_trades(range(3))
    users.ingest()
    stream.produce_trades(range(9))
    check = dg.AssetCheckKey(dg.AssetKey(["iceberg", stream.name]), "known")
    with dg.instance_for_test() as instance:

        def verdicts():
            records = instance.event_log_storage.get_asset_check_execution_history(check, limit=100)
            return [record.status == AssetCheckExecutionRecordStatus.SUCCEEDED for record in reversed(records)]

        said: list[str] = []
        streaming = Streaming(stream.config, [stream.topic], resources, said.append, instance)
        thread = threading.Thread(target=streaming.run)
        thread.start()
        try:
            until(lambda: False in verdicts())
            written = snapshots(stream)
            tried = len(said)
            until(lambda: len(said) >= tried + 2)
            # Nothing changed that decides about the batch: it was not written again.
            assert snapshots(stream) == written and stream.rows() == []
            users.produce_trades(range(9))
            users.ingest()
            until(lambda: True in verdicts())
        finally:
            streaming.stream.stop()
            thread.join(SECONDS)
        assert not thread.is_alive()
        assert verdicts() == [False, True]
        # What the audit that failed found to hold is known, too: whatever stands on the table waits for it.
        told = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(check.asset_key, "conservation"))
        assert told and told.status == AssetCheckExecutionRecordStatus.SUCCEEDED
    oracle.judge(stream)


def test_a_bad_record_is_looked_at_again_and_not_written_again_until_it_can_pass(resources):
    stream = Stream(resources, partitions=1, settings={"errors": "suspend"})
    stream.produce_trades(range(5))
    stream.produce([{"value": b"no Avro"}])
    with running(streams.Stream(stream.config, [stream.topic], stream.systems)) as events:
        until(lambda: len(events) == 1)
        written = snapshots(stream)
        until(lambda: len(events) == 3)
        assert snapshots(stream) == written
        resume(stream.systems, stream.namespace, stream.topic, "0:6", "the producer is corrected")
        stream.produce_trades(range(5, 9))
        until(lambda: len(stream.rows()) == 4)
    assert {type(event.error) for event in events if isinstance(event, SetAside)} == {BadRecords}


def test_small_files_are_merged_while_it_runs(resources, monkeypatch):
    monkeypatch.setattr("lakehouse.streaming.scheduler.MANY_FILES", 5)
    stream = Stream(resources, settings={"max_records_per_batch": 50})
    stream.produce_trades(range(250))

    events = list(streams.Stream(stream.config, [stream.topic], stream.systems, once=True).run())

    [tidied] = [event for event in events if isinstance(event, Tidied)]
    assert tidied.maintained.done[0].endswith(" data files into 1")
    assert tidied.maintained.before.data_files >= 5 > tidied.maintained.after.data_files
    oracle.judge(stream)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_while_small_files_are_merged_topics_are_served_but_one_whose_rows_are_replaced(resources, monkeypatch, mode):
    one, other = together(resources, {"mode": mode}, {})
    running = streams.Stream(config_of(one, other), [one.topic, other.topic], one.systems, workers=1)
    served, happened = threading.Event(), []

    def slow(*given):
        if not served.wait(SECONDS):
            running.stop()
        return keep_pace(*given)

    monkeypatch.setattr("lakehouse.streaming.scheduler.MANY_FILES", 1)
    monkeypatch.setattr("lakehouse.streaming.compactor.keep_pace", slow)
    commit, tidied = ("commit", one.name), ("tidied", one.name)
    one.produce_trades(range(10))
    for event in running.run():
        match event:
            case Commit(topic):
                happened.append(("commit", topic.name))
                if happened == [commit]:
                    one.produce_trades(range(10, 20))
                    other.produce_trades(range(5))
            case Tidied(name):
                happened.append(("tidied", name))
            case SetAside(_, error):
                raise error
        if ("commit", other.name) in happened and happened.count(commit) >= (2 if mode == "append" else 1):
            served.set()
        if tidied in happened and happened.count(commit) >= 2:
            running.stop()
    list(streams.Stream(config_of(one, other), [one.topic, other.topic], one.systems, once=True).run())

    both = [what for what in happened if what in (commit, tidied)]
    assert both[:3] == ([commit, commit, tidied] if mode == "append" else [commit, tidied, commit])
    oracle.judge(one)
    oracle.judge(other)


def test_a_derived_topic_follows_its_source(resources, tmp_path):
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
