"""Reasons for which the last runs of tables failed, which explain lag that would otherwise look like slowness."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from lakehouse.core.tables import naming


def failures(topics: list[str]) -> dict[str, str]:
    """Return the reason of each failed last run by topic; empty without a Dagster instance in DAGSTER_HOME."""
    home = os.environ.get("DAGSTER_HOME")
    if not home or not Path(home).is_dir():
        return {}
    with dg.DagsterInstance.get() as instance:
        reasons = {topic: failure(instance, topic) for topic in topics}
    return {topic: reason for topic, reason in reasons.items() if reason}


def failure(instance: dg.DagsterInstance, topic: str) -> str:
    """Return the reason for which the last run of `iceberg/<topic>` failed; empty if it succeeded."""
    key = dg.AssetKey(["iceberg", topic])
    for record in instance.get_asset_records([key]):
        run = instance.get_run_by_id(record.asset_entry.last_run_id or "")
        if run is None or run.status != dg.DagsterRunStatus.FAILURE:
            continue
        ends = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.STEP_SUCCESS}
        events = (entry.get_dagster_event() for entry in instance.all_logs(run.run_id, of_type=ends))
        event = next((event for event in events if event.step_key == naming.node_name(*key.path)), None)
        if event is None:  # The process of the run was killed, or an asset upstream failed.
            return f"it ended before the table's step did, see run {run.run_id}"
        if event.is_step_failure:
            failure_data = event.step_failure_data.user_failure_data
            return (failure_data.description if failure_data else "") or f"an error, see run {run.run_id}"
    return ""
