"""The chain of assets of a topic as Dagster runs it."""

import dagster as dg
import pytest

from assets.topics.kafka_asset import topic_offsets_sensor
from assets.topics.topic_chain import topic_definitions
from lakehouse.config.loader import load
from resources.build import build_resources
from resources.spark.servers import Connect
from resources.spark.spark import Spark
from spark.engine import SparkEngines
from tests.support.intercepted import InterceptedEngines, miscounted
from tests.support.topics import Stream
from tools.repository import PROJECT


def materialize(stream, instance, **kwargs):
    """Run every asset and check of the stream's topic in this process."""
    defs = dg.Definitions.merge(
        topic_definitions(stream.config, stream.topic),
        dg.Definitions(
            resources=build_resources(load(PROJECT / "lakehouse.yaml"), "local"),
            jobs=[dg.define_asset_job("all", dg.AssetSelection.all())],
        ),
    )
    return defs.resolve_job_def("all").execute_in_process(instance=instance, raise_on_error=False, **kwargs)


def evaluations(result):
    return {
        (e.asset_key.to_user_string(), e.check_name): (e.passed, e.blocking)
        for e in result.get_asset_check_evaluations()
    }


def miscounting(server):
    """Return the client of an engine that counts more rows than it writes."""
    return InterceptedEngines(SparkEngines(Connect(remote=server.remote, native="off")), {"write": miscounted})


@pytest.fixture
def stream(resources):
    """Return a topic with trades; its table has a unique name, since tests share Snowflake and Glue."""
    stream = Stream(resources)
    stream.produce_trades(range(300))
    return stream


def test_materialize_chain_passes_all_checks(resources, stream):
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(stream, instance)

    assert result.success
    name = stream.name
    assert evaluations(result) == {
        (f"{name}/iceberg", "record_count"): (True, True),
        (f"{name}/iceberg", "key_not_null"): (True, True),
        (f"{name}/iceberg", "fresh"): (True, False),
        (f"{name}/iceberg", "ledger"): (True, False),
        (f"{name}/ledger", "reconciled"): (True, False),
        (f"{name}/glue", "registration_current"): (True, True),
        (f"{name}/glue", "fresh"): (True, False),
        (f"{name}/snowflake", "fresh"): (True, False),
        (f"{name}/snowflake", "engines_agree"): (True, False),
        (f"{name}/snowflake", "matches_iceberg"): (True, False),
    }
    [event] = [
        e.step_materialization_data.materialization
        for e in result.all_events
        if e.is_step_materialization and e.asset_key.path[1] == "iceberg"
    ]
    assert event.metadata["dagster/row_count"].value == 300
    sql = f'SELECT COUNT(*), SUM(PRICE * QUANTITY) FROM {stream.namespace}."{stream.topic.table.upper()}"'
    _, [(count, total)] = resources.snowflake.query(sql)
    assert (count, total) == (300, sum(row["price"] * row["quantity"] for row in stream.expected_rows()))


def test_materialize_reports_check_that_fails_in_either_batch(resources):
    """The quantities of the first batch are 1 to 20, those of the second one 21 to 40."""
    checks = {"fails_first": "quantity > 20", "fails_second": "quantity <= 20", "passes": "quantity <= 40"}
    declared = {name: {"type": "expression", "sql": sql, "severity": "warn"} for name, sql in checks.items()}
    stream = Stream(resources, partitions=1, settings={"max_records_per_batch": 20, "checks": declared})
    stream.produce_trades(range(40))
    table = dg.AssetKey([stream.name, "iceberg"])
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(stream, instance, asset_selection=[table])

    passed = {check: passed for (_, check), (passed, _) in evaluations(result).items() if check in checks}
    assert result.success and passed == {"fails_first": False, "fails_second": False, "passes": True}
    assert stream.rows() == stream.expected_rows()


def test_materialize_reports_batch_before_a_refused_one(resources):
    stream = Stream(resources, partitions=1, settings={"max_records_per_batch": 10, "errors": "suspend"})
    stream.produce_trades(range(10))
    stream.produce([{"value": b"bad"}])
    table = dg.AssetKey([stream.name, "iceberg"])
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(stream, instance, asset_selection=[table])
        event = instance.get_latest_materialization_event(table)

    assert not result.success
    assert event is not None and event.asset_materialization.metadata["dagster/row_count"].value == 10
    assert evaluations(result)[f"{stream.name}/iceberg", "record_count"] == (True, True)
    assert [row["kafka_offset"] for row in stream.rows()] == [*range(10)]


def test_materialize_failed_audit_publishes_nothing(resources, stream, monkeypatch):
    monkeypatch.setattr(Spark, "engine", f"{__name__}:miscounting")
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(stream, instance)

    assert not result.success
    assert evaluations(result) == {
        (f"{stream.name}/iceberg", "record_count"): (False, True),
        (f"{stream.name}/iceberg", "key_not_null"): (True, True),
    }
    materialized = {e.asset_key.path[1] for e in result.all_events if e.is_step_materialization}
    assert not materialized
    table = stream.table()
    assert table.current_snapshot() is None
    [branch] = [ref for ref in table.metadata.refs if ref.startswith("ingest_")]
    assert len(table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).to_arrow()) == 300

    monkeypatch.undo()
    with dg.DagsterInstance.ephemeral() as instance:
        assert materialize(stream, instance).success
    assert stream.rows() == stream.expected_rows()


def test_materialize_missing_topic_fails_with_its_name(resources, stream):
    from tests.support.topics import admin

    for deleted in admin().delete_topics([stream.name]).values():
        deleted.result()
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(stream, instance)

    [failure] = [e for e in result.all_events if e.is_step_failure]
    assert f"Topic '{stream.name}' does not exist" in str(failure.step_failure_data.user_failure_data.description)


def test_sensor_reports_only_topics_with_new_offsets(resources, stream):
    sensor, cursor, reported = topic_offsets_sensor(stream.config), None, []
    for count in (0, 5, 0, 3):
        stream.produce_trades(range(count))
        tick = sensor(dg.build_sensor_context(cursor=cursor), kafka=resources.kafka, catalog=resources.catalog)
        cursor = tick.cursor
        reported.append([(event.asset_key.path, event.metadata["offsets"].value) for event in tick.asset_events])

    key = [stream.name, "kafka"]
    assert reported == [[(key, 300)], [(key, 305)], [], [(key, 308)]]
