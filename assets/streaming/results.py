"""What a stream reports of the tables that it serves: the check `streaming` of their assets in Dagster."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse.config.checks import CONSERVATION, KEY_NOT_NULL
from lakehouse.config.checks import STREAMING as CHECK
from lakehouse.config.loader import Config
from lakehouse.core.markdown import plain
from lakehouse.readers import configured

if TYPE_CHECKING:
    import dagster as dg


KAFKA = ("stream", "kafka")
"""The asset that stands for what all topics of a stream need."""


def failure(instance: dg.DagsterInstance, asset: Collection[str], check: str = CHECK) -> str:
    """Say why a check that a stream reports fails; nothing where it holds or was never reported.

    A run that materialized the asset since has shown that it can be done, and whoever reported may be long gone.
    """
    import dagster as dg
    from dagster._core.storage.asset_check_execution_record import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES

    key = dg.AssetKey(list(asset))
    # A run that is about to evaluate the check, or that died before it did, says nothing of it.
    records = instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(key, check), limit=1, status={*COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES}
    )
    if not records or records[0].status.value == "SUCCEEDED" or records[0].event is None:
        return ""
    if records[0].run_id and check != CHECK:
        # What a run reports of its own is the run's to tell.
        return ""
    made = instance.get_latest_materialization_event(key)
    if made is not None and made.run_id and made.timestamp > records[0].event.timestamp:
        return ""
    evaluation = records[0].event.get_dagster_event().asset_check_evaluation_data
    return plain(evaluation.description or "it failed")


def failures(config: Config, names: Collection[str]) -> dict[tuple[str, str], str]:
    """By asset and check, why streams fail to serve these entries; empty where there is no Dagster to ask.

    A stream that an audit keeps from publishing reports the checks of the audit, as a run does.
    """
    import dagster as dg

    home = os.environ.get("DAGSTER_HOME")
    if not home or not Path(home).is_dir():
        return {}
    with dg.DagsterInstance.get() as instance:
        asked = {(asset, check): failure(instance, asset, check) for asset, check in _reported(config, names)}
    return {("/".join(asset), check): reason for (asset, check), reason in asked.items() if reason}


def _reported(config: Config, names: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    for name in names:
        entry = config.topics.get(name) or config.routes.get(name)
        if entry is None or not (name in config.topics or entry.continuous):
            continue
        yield from (((hop, name), CHECK) for hop in ("iceberg", *(reader.name for reader in configured(config))))
        blocking = [check for check, one in entry.checks.items() if one.severity == "blocking"]
        yield from ((("iceberg", name), check) for check in (CONSERVATION, KEY_NOT_NULL, *blocking))
    if any(entry.continuous for entry in (*config.topics.values(), *config.routes.values())):
        yield KAFKA, CHECK
