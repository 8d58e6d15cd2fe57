"""Care of the embedded stack: a nightly job that deletes old runs, and a sensor that watches the disk.

The embedded Dagster has no retention for runs. A stack that ingests all day creates thousands of runs, each with its
own database and log files. Kafka stops when the disk is full.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg

from lakehouse.core.errors import LakehouseError

RETENTION_DAYS = {
    dg.DagsterRunStatus.SUCCESS: 7,
    dg.DagsterRunStatus.CANCELED: 7,
    dg.DagsterRunStatus.FAILURE: 30,
}
"""Days for which a finished run is kept, by status. Unfinished runs are always kept."""


def old_runs_definitions() -> dg.Definitions:
    """Return the job and its schedule."""

    @dg.op
    def delete_old_runs(context: dg.OpExecutionContext) -> None:
        deleted = purge(context.instance, datetime.now(UTC))
        context.log.info(f"Deleted {deleted:,} runs")

    @dg.job(description="Delete old runs with their logs, except runs that hold the state of an asset.")
    def old_runs() -> None:
        delete_old_runs()

    nightly = dg.ScheduleDefinition(
        job=old_runs,
        cron_schedule="47 4 * * *",
        description=old_runs.description,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    return dg.Definitions(schedules=[nightly])


def purge(instance: dg.DagsterInstance, now: datetime) -> int:
    """Delete the runs that finished more than RETENTION_DAYS ago, with their events and logs.

    Dagster derives the state of an asset from the events of its runs. Therefore the newest run of each asset and
    partition is kept regardless of its age. Results of checks outlive their runs.

    Args:
        instance: The Dagster instance.

    Returns:
        The number of deleted runs.
    """
    from dagster._core.storage.event_log import SqliteEventLogStorage

    old = [
        run_id
        for status, days in RETENTION_DAYS.items()
        for run_id in instance.get_run_ids(dg.RunsFilter(statuses=[status], updated_before=now - timedelta(days=days)))
    ]
    needed = set(_needed(instance))
    deleted = [run_id for run_id in old if run_id not in needed]
    for run_id in deleted:
        instance.compute_log_manager.delete_logs(prefix=[run_id])
        instance.delete_run(run_id)
        if isinstance(instance.event_log_storage, SqliteEventLogStorage):
            # Dagster leaves the empty database of the run behind.
            database = instance.event_log_storage.path_for_shard(run_id)
            for suffix in ("", "-wal", "-shm"):
                Path(database + suffix).unlink(missing_ok=True)
    return len(deleted)


def _needed(instance: dg.DagsterInstance) -> Iterator[str | None]:
    """Yield the runs from whose events the state of an asset or of a partition is derived."""
    keys = instance.get_asset_keys()
    for record in instance.get_asset_records(keys):
        yield record.asset_entry.last_run_id
        if record.asset_entry.last_materialization:
            yield record.asset_entry.last_materialization.run_id
    for key in keys:
        for observation in instance.fetch_observations(key, limit=1).records:
            yield observation.run_id
        materialized = dg.DagsterEventType.ASSET_MATERIALIZATION
        newest = instance.event_log_storage.get_latest_storage_id_by_partition(key, materialized)
        of_partitions = dg.AssetRecordsFilter(asset_key=key, storage_ids=list(newest.values()))
        for materialization in instance.fetch_materializations(of_partitions, limit=len(newest) or 1).records:
            yield materialization.run_id


@dg.sensor(
    name="disk_space",
    description="Fails while the disk of the embedded stack is almost full. Requests no runs.",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def disk_space(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Report the free space."""
    from lakehouse.local.home import Home

    home = Home.default()
    if warning := home.space_warning():
        raise LakehouseError(warning)
    return dg.SkipReason(f"{home.free_bytes() / 1024**3:.1f} GiB are free")
