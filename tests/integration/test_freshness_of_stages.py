"""Freshness in Dagster: the checks, the sensor and the status agree, name the stale stage and start its runs."""

import re
import time

import dagster as dg
from click.testing import CliRunner
from confluent_kafka import TopicPartition

from assets.freshness import freshness_sensor
from assets.topics.topic_chain import topic_definitions
from lakehouse.cli.main import main
from lakehouse.cli.status import status
from lakehouse.config.loader import load
from lakehouse.readers.reader_lag import stages_of
from resources.build import build_resources
from resources.schema_registry import SchemaRegistry
from tests.support.topics import TRADES, Stream, admin, framed, recreate, trade
from tools.repository import PROJECT

AN_HOUR_MS = 3_600_000


def produce(stream, count, ago_ms=0):
    schema_id, stamp = stream.schema(), int(time.time() * 1000) - ago_ms
    trades = [trade(n) for n in range(count)]
    stream.produce([{"value": framed(schema_id, TRADES, t), "timestamp": stamp} for t in trades])


def test_freshness_stale_stage_is_reported_and_run_requested(resources):
    stream = Stream(resources, partitions=1, settings={"max_lag_seconds": 600, "on_stale": "run"})
    built = build_resources(load(PROJECT / "lakehouse.yaml"), "local")
    declared = topic_definitions(stream.config, stream.topic)
    definitions = dg.Definitions.merge(declared, dg.Definitions(resources=built))
    sensor = freshness_sensor(stream.config)

    def tick(cursor):
        with dg.build_sensor_context(
            instance=instance, cursor=cursor, resources=built, definitions=definitions
        ) as context:
            result = sensor.evaluate_tick(context)
        for event in result.asset_events:
            instance.report_runless_asset_event(event)
        verdicts = {event.asset_key.path[1]: (event.passed, event.description) for event in result.asset_events}
        requested = [[key.path[1] for key in request.asset_selection] for request in result.run_requests]
        return verdicts, requested, result.cursor

    def checked():
        keys = [
            dg.AssetCheckKey(dg.AssetKey([stream.name, stage]), "fresh")
            for stage in stages_of(stream.config, stream.topic)
        ]
        job = dg.define_asset_job("checks", dg.AssetSelection.checks(*keys))
        job_checks = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job])).resolve_job_def("checks")
        result = job_checks.execute_in_process(instance=instance)
        return {e.asset_key.path[1]: e.passed for e in result.get_asset_check_evaluations()}

    with dg.DagsterInstance.ephemeral() as instance:
        produce(stream, 5, ago_ms=AN_HOUR_MS)
        verdicts, requested, cursor = tick(None)
        assert {stage: passed for stage, (passed, _) in verdicts.items()} == {
            "iceberg": False,
            "glue": True,
            "snowflake": True,
        }
        assert "topic → Iceberg: 5 records behind, for 3,6" in verdicts["iceberg"][1]
        assert requested == [["iceberg", "glue", "snowflake"]]
        assert checked() == {stage: passed for stage, (passed, _) in verdicts.items()}
        (topic_status,) = status(stream.config, resources)
        assert {stage.stage: stage.is_fresh for stage in topic_status.stages} == {
            stage: passed for stage, (passed, _) in verdicts.items()
        }

        # The sensor reports neither the same verdicts nor the same run again.
        assert tick(cursor)[:2] == ({}, [])

        # A run that fails records the checks that it planned as failed, so the sensor reports the verdicts again.
        assert not dg.materialize(
            [*declared.assets, *declared.asset_checks],
            resources=built | {"schema_registry": SchemaRegistry(url="http://127.0.0.1:1")},
            instance=instance,
            raise_on_error=False,
        ).success
        assert tick(cursor)[0].keys() == {"iceberg", "glue", "snowflake"}

        chain = [asset for asset in declared.assets if asset.key.path[1] in ("iceberg", "glue", "snowflake")]
        assert dg.materialize(chain, resources=built, instance=instance).success
        verdicts, requested, cursor = tick(cursor)
        assert (verdicts, requested) == ({"iceberg": (True, "topic → Iceberg: up to date")}, [])

        # The idle stage is fresh, and only Glue and Snowflake, which lack the snapshot, run.
        produce(stream, 1)
        stream.ingest()
        late = stream.topic.model_copy(update={"max_lag_seconds": 0})
        stream.topic = late
        sensor = freshness_sensor(stream.config)
        verdicts, requested, _ = tick(cursor)
        assert {stage: passed for stage, (passed, _) in verdicts.items()} == {"glue": False, "snowflake": False}
        assert "Iceberg → Glue: 1 snapshot behind" in verdicts["glue"][1]
        assert requested == [["glue", "snowflake"]]


def test_status_lost_records_or_other_topic_is_unknown(resources):
    stream = Stream(resources, partitions=1)
    produce(stream, 20)
    stream.ingest()

    def iceberg_stage():
        [topic_status] = status(stream.config, resources)
        [stage] = [stage for stage in topic_status.stages if stage.stage == "iceberg"]
        return stage.is_fresh, stage.description

    assert iceberg_stage() == (True, "topic → Iceberg: up to date")
    produce(stream, 5)
    fresh, description = iceberg_stage()
    assert fresh and "5 records behind" in description
    produce(stream, 1, ago_ms=-AN_HOUR_MS)
    assert iceberg_stage()[0]
    [deletion] = admin().delete_records([TopicPartition(stream.name, 0, 25)]).values()
    deletion.result()
    fresh, description = iceberg_stage()
    assert not fresh and "unknown: Topic" in description and "lost offsets 20 to 24" in description

    recreate(stream)
    fresh, description = iceberg_stage()
    assert not fresh and "is not the one table" in description
    [deletion] = admin().delete_topics([stream.name]).values()
    deletion.result()
    fresh, description = iceberg_stage()
    assert not fresh and "does not exist" in description


def test_status_record_in_future_is_not_fresh(resources):
    stream = Stream(resources, partitions=1)
    produce(stream, 2, ago_ms=-AN_HOUR_MS)
    [topic_status] = status(stream.config, resources)
    [stage] = [stage for stage in topic_status.stages if stage.stage == "iceberg"]
    assert not stage.is_fresh and "in the future" in stage.description


def test_status_topic_that_does_not_ingest_names_reason_and_command(resources, tmp_path, monkeypatch):
    stream = Stream(resources, partitions=1, settings={"max_lag_seconds": 600, "errors": "suspend"})
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(stream.declare(tmp_path)))

    def command(*arguments):
        # The lines are wrapped to the width of the terminal.
        return " ".join(CliRunner().invoke(main, [*arguments]).output.split())

    produce(stream, 3)
    assert "are not ingested" not in command("status")
    stream.ingest()
    remedy = f"`lakehouse stream {stream.name} --once`"
    produce(stream, 1, ago_ms=AN_HOUR_MS)
    shown = command("status")
    assert f"{stream.name}: records are not ingested. No run or stream has reported why" in shown and remedy in shown

    incomplete = framed(stream.schema(), TRADES, trade(1))[:-5]
    stream.produce([{"value": b"no Avro"}, {"value": incomplete}])
    reasons = "partition 0 offset 4: .*Confluent wire format.*; partition 0 offset 5: .*'userid'"
    for shown in (command("status"), command("stream", stream.name, "--once")):
        assert re.search(f"cannot be decoded \\({reasons}", shown), shown
    assert f"{stream.name}: records are not ingested. Records cannot be decoded" in command("status")
    assert remedy in command("status")

    stream.produce_with_types(range(1), {"price": "string"}, price="a")
    shown = command("status")
    assert "The newest schema does not fit the table" in shown and f"`lakehouse plan {stream.name}`" in shown

    command("pause", stream.name, "--reason", "maintenance")
    shown = command("status")
    assert "(maintenance)" in shown and f"`lakehouse unpause {stream.name}`" in shown
