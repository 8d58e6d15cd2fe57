"""Freshness in Dagster: each hop's check and the sensor say the same, name the hop that is behind, and mend it."""

import time

import dagster as dg
from confluent_kafka import TopicPartition
from support import TRADES, Stream, admin, framed, recreate, trade

from assets.sensors.freshness_sensor import freshness_sensor
from assets.topic import topic_definitions
from lakehouse.cli.status import status
from lakehouse.config.loader import PROJECT, load
from lakehouse.readers.hops import hops_of
from resources.build import build_resources
from resources.schema_registry import SchemaRegistry

AN_HOUR_MS = 3_600_000


def produce(stream, count, ago_ms=0):
    schema_id, stamp = stream.schema(), int(time.time() * 1000) - ago_ms
    trades = [trade(n) for n in range(count)]
    stream.produce([{"value": framed(schema_id, TRADES, t), "timestamp": stamp} for t in trades])


def test_what_is_behind_is_named_by_check_sensor_and_status_and_is_mended(resources):
    stream = Stream(resources, partitions=1, settings={"max_lag_seconds": 600, "when_stale": "run"})
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
        told = {event.asset_key.path[0]: (event.passed, event.description) for event in result.asset_events}
        asked = [[key.path[0] for key in request.asset_selection] for request in result.run_requests]
        return told, asked, result.cursor

    def checked():
        keys = [
            dg.AssetCheckKey(dg.AssetKey([hop, stream.name]), "fresh") for hop in hops_of(stream.config, stream.topic)
        ]
        job = dg.define_asset_job("checks", dg.AssetSelection.checks(*keys))
        found = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job])).resolve_job_def("checks")
        done = found.execute_in_process(instance=instance)
        return {e.asset_key.path[0]: e.passed for e in done.get_asset_check_evaluations()}

    with dg.DagsterInstance.ephemeral() as instance:
        produce(stream, 5, ago_ms=AN_HOUR_MS)
        told, asked, cursor = tick(None)
        assert {hop: passed for hop, (passed, _) in told.items()} == {
            "iceberg": False,
            "glue": True,
            "snowflake": True,
        }
        assert "topic → Iceberg: 5 records behind, for 3,6" in told["iceberg"][1]
        assert asked == [["iceberg", "glue", "snowflake"]]
        assert checked() == {hop: passed for hop, (passed, _) in told.items()}
        (found,) = status(stream.config, resources)
        assert {hop.asset: hop.fresh for hop in found.hops} == {hop: passed for hop, (passed, _) in told.items()}

        # The same verdicts are not told again, and the same run is not asked for again.
        assert tick(cursor)[:2] == ({}, [])

        # A run that fails leaves the checks it planned as failed: the verdicts are told again.
        assert not dg.materialize(
            [*declared.assets, *declared.asset_checks],
            resources=built | {"schema_registry": SchemaRegistry(url="http://127.0.0.1:1")},
            instance=instance,
            raise_on_error=False,
        ).success
        assert tick(cursor)[0].keys() == {"iceberg", "glue", "snowflake"}

        chain = [asset for asset in declared.assets if asset.key.path[0] in ("iceberg", "glue", "snowflake")]
        assert dg.materialize(chain, resources=built, instance=instance).success
        told, asked, cursor = tick(cursor)
        assert (told, asked) == ({"iceberg": (True, "topic → Iceberg: has every record")}, [])

        # What is idle is fresh; what only Glue and Snowflake lack is theirs to mend.
        produce(stream, 1)
        stream.ingest()
        late = stream.topic.model_copy(update={"max_lag_seconds": 0})
        stream.topic = late
        sensor = freshness_sensor(stream.config)
        told, asked, _ = tick(cursor)
        assert {hop: passed for hop, (passed, _) in told.items()} == {"glue": False, "snowflake": False}
        assert "Iceberg → Glue: 1 snapshot behind" in told["glue"][1]
        assert asked == [["glue", "snowflake"]]


def test_a_topic_that_lost_records_or_is_another_one_is_unknown(resources):
    stream = Stream(resources, partitions=1)
    produce(stream, 20)
    stream.ingest()

    def found():
        [one] = status(stream.config, resources)
        [hop] = [hop for hop in one.hops if hop.asset == "iceberg"]
        return hop.fresh, hop.said

    assert found() == (True, "topic → Iceberg: has every record")
    produce(stream, 5)
    fresh, said = found()
    assert fresh and "5 records behind" in said
    produce(stream, 1, ago_ms=-AN_HOUR_MS)
    assert found()[0]
    [done] = admin().delete_records([TopicPartition(stream.name, 0, 25)]).values()
    done.result()
    fresh, said = found()
    assert not fresh and "unknown: Topic" in said and "lost offsets 20 to 24" in said

    recreate(stream)
    fresh, said = found()
    assert not fresh and "is not the one table" in said
    [done] = admin().delete_topics([stream.name]).values()
    done.result()
    fresh, said = found()
    assert not fresh and "does not exist" in said


def test_a_producer_whose_clock_is_ahead_hides_nothing(resources):
    stream = Stream(resources, partitions=1)
    produce(stream, 2, ago_ms=-AN_HOUR_MS)
    [one] = status(stream.config, resources)
    [hop] = [hop for hop in one.hops if hop.asset == "iceberg"]
    assert not hop.fresh and "in the future" in hop.said
