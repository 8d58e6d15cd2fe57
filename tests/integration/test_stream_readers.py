"""Publication by streams to the readers: of their own batches, and of those whose writers have ended."""

from __future__ import annotations

import dagster as dg

from assets.streaming.service import StreamService
from lakehouse.core.log_entry import LogEntry
from tests.support.topics import Stream

STAGES = ("iceberg", "glue", "snowflake")


def test_stream_commit_is_in_dagster_glue_and_snowflake(resources):
    stream = Stream(resources)
    stream.produce_trades(range(70))
    lines: list[LogEntry] = []
    with dg.instance_for_test() as instance:
        errors = StreamService(stream.config, [stream.topic], resources, lines.append, instance, once=True).run()
        events = {
            stage: instance.get_latest_materialization_event(dg.AssetKey([stream.name, stage])) for stage in STAGES
        }

    assert errors == {} and any("70 records → 70 rows" in line.message for line in lines)
    assert lines[0].message.startswith(f"Ingesting {stream.name};")
    snapshot = stream.table().current_snapshot()
    materializations = {stage: event.asset_materialization for stage, event in events.items()}
    assert {m.tags["dagster/data_version"] for m in materializations.values()} == {str(snapshot.snapshot_id)}
    numbers = {name: value.value for name, value in materializations["iceberg"].metadata.items()}
    assert (numbers["rows"], numbers["records_behind"]) == (70, 0)
    assert numbers["bytes"] == int(snapshot.summary["added-files-size"])
    assert resources.glue.registration(stream.namespace, stream.topic.table).metadata_location == (
        stream.table().metadata_location
    )
    assert resources.snowflake.table_state(stream.namespace, stream.topic.table).row_count == 70


def test_stream_publishes_batch_whose_writer_ended_before(resources):
    stream = Stream(resources)
    stream.produce_trades(range(10))
    stream.ingest()

    errors = StreamService(stream.config, [stream.topic], resources, [].append, None, once=True).run()

    registration = resources.glue.registration(stream.namespace, stream.topic.table)
    assert errors == {} and registration.metadata_location == stream.table().metadata_location
    assert resources.snowflake.table_state(stream.namespace, stream.topic.table).row_count == 10
