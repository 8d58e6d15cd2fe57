"""Lineage for tools besides Dagster: each materialization of a run is sent as an event of OpenLineage."""

import time
from typing import Any

import dagster as dg

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import ConfigError, Unreachable, reason, trace
from lakehouse.readers import configured
from lakehouse.readers.freshness import NAMES
from lakehouse.readers.lineage import Materialized, completed

OFF = "No server is configured (`open_lineage` in lakehouse.yaml): no lineage is sent"
MOST_EVENTS = 500
"""Materializations that a tick looks at. The rest waits for the next one, as it does after `MOST_SECONDS`."""
MOST_SECONDS = 30


def lineage_sensor(config: Config) -> dg.SensorDefinition:
    """Sends what runs materialized. The cursor is the last event delivered; the first tick begins at the log's end."""

    @dg.sensor(
        name="open_lineage",
        description="Sends the lineage of each materialization to an OpenLineage server.",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"open_lineage", "kafka", "catalog", *(one.resource for one in configured(config))},
    )
    def open_lineage(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        log, server = context.instance.event_log_storage, context.resources.open_lineage
        if not (context.cursor and server.url):
            reason_to_skip = "Starts at the end of the event log" if server.url else OFF
            return dg.SensorResult(skip_reason=reason_to_skip, cursor=str(log.get_maximum_record_id() or 0))
        delivered, sent, until = int(context.cursor), 0, time.monotonic() + MOST_SECONDS
        events = log.get_logs_for_all_runs_by_log_id(delivered, dg.DagsterEventType.ASSET_MATERIALIZATION, MOST_EVENTS)
        for storage_id, entry in events.items():
            try:
                if found := _materialized(config, context.instance, entry):
                    server.emit(completed(config, *found, context.resources))
                    sent += 1
            except Unreachable as error:
                if not sent:
                    raise
                context.log.error(f"{sent} events were sent, the rest waits for the next tick. {error}")
                break
            except Exception as error:
                # Tried again, it would hold up the lineage of every other table.
                context.log.error(f"The lineage of event {storage_id} is left out: {reason(error)}\n{trace(error)}")
            delivered = storage_id
            if time.monotonic() > until:
                break
        return dg.SensorResult(skip_reason=f"Events sent: {sent}", cursor=str(delivered))

    return open_lineage


def _materialized(
    config: Config, instance: dg.DagsterInstance, entry: dg.EventLogEntry
) -> tuple[Topic, Materialized] | None:
    """The topic and what happened to it; None for what has no lineage: reports without a run, assets of others."""
    event = entry.get_dagster_event().step_materialization_data.materialization
    hop, *rest = event.asset_key.path
    if hop not in NAMES or not entry.run_id or (run := instance.get_run_by_id(entry.run_id)) is None:
        return None
    try:
        topic = config.topic(event.partition or rest[0])
    except ConfigError:
        return None
    said: dict[str, Any] = {name: value.value for name, value in event.metadata.items()}
    schema, lineage = said.get("dagster/column_schema"), said.get("dagster/column_lineage")
    return topic, Materialized(
        hop=hop,
        run_id=entry.run_id,
        job=run.job_name,
        seconds=entry.timestamp,
        columns={column.name: column.type for column in schema.columns} if schema else {},
        lineage={
            name: [(*dep.asset_key.path, dep.column_name) for dep in deps]
            for name, deps in (lineage.deps_by_column if lineage else {}).items()
        },
        rows=said.get("dagster/row_count"),
        bytes=said.get("bytes"),
    )
