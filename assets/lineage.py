"""A sensor that sends each materialization of a run to an OpenLineage server."""

import time
from typing import Any

import dagster as dg

from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import ConfigError, Unreachable, reason, trace
from lakehouse.readers import configured
from lakehouse.readers.freshness import NAMES
from lakehouse.readers.lineage import Materialization, completed

OFF = "No server is configured (`open_lineage` in lakehouse.yaml): no lineage is sent"
MAX_EVENTS = 500
"""Maximum number of materializations per tick. The next tick processes the rest, as after MAX_TICK_SECONDS."""
MAX_TICK_SECONDS = 30
WRITTEN = ("rows", "replayed_rows", "redriven", "messages")
"""Metadata with the number of rows, or messages of a derived topic, that a materialization added."""


def lineage_sensor(config: Config) -> dg.SensorDefinition:
    """Return the sensor. Its cursor is the last delivered event; the first tick starts at the end of the event log."""

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
        delivered, sent, until = int(context.cursor), 0, time.monotonic() + MAX_TICK_SECONDS
        events = log.get_logs_for_all_runs_by_log_id(delivered, dg.DagsterEventType.ASSET_MATERIALIZATION, MAX_EVENTS)
        for storage_id, entry in events.items():
            try:
                if materialized := _materialized(config, context.instance, entry):
                    server.emit(completed(config, *materialized, context.resources))
                    sent += 1
            except Unreachable as error:
                if not sent:
                    raise
                context.log.error(f"{error}. {sent} events were sent; the next tick sends the rest")
                break
            except Exception as error:
                # A retry would block the lineage of all other tables.
                context.log.error(f"The lineage of event {storage_id} is skipped: {reason(error)}\n{trace(error)}")
            delivered = storage_id
            if time.monotonic() > until:
                break
        return dg.SensorResult(skip_reason=f"Events sent: {sent}", cursor=str(delivered))

    return open_lineage


def _materialized(
    config: Config, instance: dg.DagsterInstance, entry: dg.EventLogEntry
) -> tuple[Topic, Materialization] | None:
    """Return the topic and its materialization; None for reports without a run and assets of other projects."""
    event = entry.get_dagster_event().step_materialization_data.materialization
    name, *_, stage = event.asset_key.path
    if stage not in NAMES or not entry.run_id or (run := instance.get_run_by_id(entry.run_id)) is None:
        return None
    try:
        topic = config.topic(event.partition or name)
    except ConfigError:
        return None
    metadata: dict[str, Any] = {name: value.value for name, value in event.metadata.items()}
    schema, lineage = metadata.get("dagster/column_schema"), metadata.get("dagster/column_lineage")
    return topic, Materialization(
        stage=stage,
        run_id=entry.run_id,
        job=run.job_name,
        seconds=entry.timestamp,
        columns={column.name: column.type for column in schema.columns} if schema else {},
        lineage={
            name: [(*reversed(dep.asset_key.path), dep.column_name) for dep in deps]
            for name, deps in (lineage.deps_by_column if lineage else {}).items()
        },
        rows=sum(written) if (written := [metadata[name] for name in WRITTEN if name in metadata]) else None,
    )
