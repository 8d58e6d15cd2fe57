"""Check results that streams have reported to Dagster, such as the check `streaming` of each table."""

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import dagster as dg
from dagster._core.storage.asset_check_execution_record import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES

from lakehouse.config.checks import KEY_NOT_NULL, RECORD_COUNT
from lakehouse.config.checks import STREAMING as CHECK
from lakehouse.config.loader import Config
from lakehouse.core.text.markdown import plain
from lakehouse.readers import configured

KAFKA = ("stream", "kafka")
"""The asset that represents Kafka, which all topics of a stream need."""


def failure(instance: dg.DagsterInstance, asset: Collection[str], check: str = CHECK) -> str:
    """Return the reason for which a check reported by a stream fails; empty if it passed or was never reported.

    A later materialization by a run clears the failure, because the stream that reported it may have ended.
    """
    key = dg.AssetKey(list(asset))
    # Planned evaluations are ignored: the run has not evaluated the check yet, or died before.
    records = instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(key, check), limit=1, status={*COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES}
    )
    if not records or records[0].status.value == "SUCCEEDED" or records[0].event is None:
        return ""
    if records[0].run_id and check != CHECK:
        # A failure that a run reported is the run's failure, not a stream's.
        return ""
    materialization = instance.get_latest_materialization_event(key)
    if materialization and materialization.run_id and materialization.timestamp > records[0].event.timestamp:
        return ""
    evaluation = records[0].event.get_dagster_event().asset_check_evaluation_data
    return plain(evaluation.description or "it failed")


def failures(config: Config, names: Collection[str]) -> dict[tuple[str, str], str]:
    """Return the reasons for which streams fail to serve these entries, by asset and check.

    If an audit blocks a batch, the stream reports the audit's checks, as a run does. A topic that a route matches has
    those failures of the route that may be its own. The result is empty without a Dagster instance in DAGSTER_HOME.
    """
    home = os.environ.get("DAGSTER_HOME")
    if not home or not Path(home).is_dir():
        return {}
    with dg.DagsterInstance.get() as instance:
        reasons = [
            (asset, check, failure(instance, asset, check), topic)
            for asset, check, topic in _stream_checks(config, names)
        ]
    return {
        ("/".join(asset), check): reason
        for asset, check, reason, topic in reasons
        # The verdict of a route names some of its failing topics, and the number of `more`.
        if reason and (not topic or reason.endswith(" more") or re.search(rf"(^|; ){re.escape(topic)}[:,] ", reason))
    }


def _stream_checks(config: Config, names: Collection[str]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield the asset and name of each check, and the topic that its reason must name; empty for any."""
    routes = {name: route for route, name, _ in config.match_routes(names)}
    for name in names:
        entry = config.topics.get(name) or config.routes.get(name) or routes.get(name)
        if entry is None or not (name in config.topics or entry.continuous):
            continue
        topic = "" if entry.name == name else name
        stages = "iceberg", *(reader.name for reader in configured(config))
        yield from (((stage, entry.name), CHECK, topic) for stage in stages)
        blocking = [check for check, one in entry.checks.items() if one.severity == "blocking"]
        yield from ((("iceberg", entry.name), check, topic) for check in (RECORD_COUNT, KEY_NOT_NULL, *blocking))
    if any(entry.continuous for entry in (*config.topics.values(), *config.routes.values())):
        yield KAFKA, CHECK, ""
