"""Why the last run of a table failed, if it did: what waits is not only late then."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import dagster as dg


def failures(topics: list[str]) -> dict[str, str]:
    """By topic, the reason for which the last run of its table failed; empty where there is no Dagster to ask."""
    import dagster as dg

    home = os.environ.get("DAGSTER_HOME")
    if not home or not Path(home).is_dir():
        return {}
    with dg.DagsterInstance.get() as instance:
        found = {topic: failure(instance, topic) for topic in topics}
    return {topic: reason for topic, reason in found.items() if reason}


def failure(instance: dg.DagsterInstance, topic: str) -> str:
    """The reason for which the last run of `iceberg/<topic>` failed; empty when it did not."""
    import dagster as dg

    key = dg.AssetKey(["iceberg", topic])
    for record in instance.get_asset_records([key]):
        run = instance.get_run_by_id(record.asset_entry.last_run_id or "")
        if run is None or run.status != dg.DagsterRunStatus.FAILURE:
            continue
        for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
            event = entry.get_dagster_event()
            if event.step_key == key.to_python_identifier():
                told = event.step_failure_data.user_failure_data
                return (told.description if told else "") or f"an error, see run {run.run_id}"
    return ""
