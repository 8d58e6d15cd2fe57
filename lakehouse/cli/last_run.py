"""Reasons for which the last runs of tables failed, which explain lag that would otherwise look like slowness."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

import dagster as dg

from lakehouse.config.model import Config
from lakehouse.core.tables import naming


def failures(config: Config, names: Collection[str]) -> dict[str, str]:
    """Return the reason of each failed last run by topic; empty without a Dagster instance in DAGSTER_HOME.

    Args:
        config: The configuration.
        names: Names of topics, including those that routes match.
    """
    home = os.environ.get("DAGSTER_HOME")
    if not home or not Path(home).is_dir():
        return {}
    with dg.DagsterInstance.get() as instance:
        runs = _last_runs(instance, config, names)
        reasons = {topic: _failure(instance, key, run_id) for topic, key, run_id in runs}
    return {topic: reason for topic, reason in reasons.items() if reason}


def _last_runs(
    instance: dg.DagsterInstance, config: Config, names: Collection[str]
) -> Iterator[tuple[str, dg.AssetKey, str]]:
    """Yield each topic with its asset and the id of its last run, without routed topics whose last run succeeded."""
    keys = {dg.AssetKey(["iceberg", name]): name for name in names if name in config.topics}
    for record in instance.get_asset_records([*keys]):
        key = record.asset_entry.asset_key
        yield keys[key], key, record.asset_entry.last_run_id or ""
    attempts = instance.event_log_storage.get_latest_asset_partition_materialization_attempts_without_materializations
    routes = {name: route.name for route, name, _ in config.match_routes(names)}
    for route in dict.fromkeys(routes.values()):
        key = dg.AssetKey(["iceberg", route])
        yield from ((name, key, run_id) for name, (run_id, _) in attempts(key).items() if routes.get(name) == route)


def _failure(instance: dg.DagsterInstance, key: dg.AssetKey, run_id: str) -> str:
    """Return the reason for which a run of an asset failed; empty if it did not fail, or not because of this asset."""
    run = instance.get_run_by_id(run_id)
    if run is None or run.status != dg.DagsterRunStatus.FAILURE:
        return ""
    ends = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.STEP_SUCCESS}
    events = (entry.get_dagster_event() for entry in instance.all_logs(run.run_id, of_type=ends))
    event = next((event for event in events if event.step_key == naming.node_name(*key.path)), None)
    if event is None:  # The process of the run was killed, or an asset upstream failed.
        return f"it ended before the table's step did, see run {run.run_id}"
    if event.is_step_failure:
        failure_data = event.step_failure_data.user_failure_data
        return (failure_data.description if failure_data else "") or f"an error, see run {run.run_id}"
    return ""
