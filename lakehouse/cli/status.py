"""The status of topics: offsets and lag, and the failures that runs and streams have reported to Dagster."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from assets.streaming.check import KAFKA, failure
from lakehouse.cli.instance import dagster_instance
from lakehouse.cli.schema_plan import plan_registered
from lakehouse.config.checks import KEY_NOT_NULL, RECORD_COUNT, STREAMING
from lakehouse.config.model import Config, Topic
from lakehouse.config.sensitive import hide_values
from lakehouse.core.errors import by_reason, logged_reason
from lakehouse.core.tables import naming
from lakehouse.pipeline.batches.undecodable import next_faults
from lakehouse.pipeline.clients import Clients
from lakehouse.readers import configured
from lakehouse.readers.freshness import StageLag
from lakehouse.readers.reader_lag import measure_lag, stages_of
from resources.iceberg.snapshots import decoder_of_last_batch
from resources.kafka.kafka import Kafka
from resources.protocols import Resources, resource_of

MAX_EXAMINED = 20
"""Maximum number of topics that are behind whose schemas are examined; those that have been behind longest."""

MAX_DECODED, MAX_RECORDS = 5, 100_000
"""Maximum number of topics whose next records are decoded to find why they stop, and of offsets of one of them."""


@dataclass(frozen=True)
class TopicStatus:
    """The status of one topic. Offsets are sums over partitions, or None before the topic or table exists."""

    topic: str
    """The name of the topic's entry."""
    end_offset: int | None = None
    """The end of the topic in Kafka."""
    ingested_offset: int | None = None
    """The next offset to be ingested; None if Tableflow ingests, which does not report it."""
    stages: tuple[StageLag, ...] = ()
    """The lag of each stage."""
    decoder: str = ""
    """`compiled`, or why the reference decoder read the newest batch; empty without one."""
    failure: str = ""
    """The reason why the offsets are unknown, or ''."""

    @property
    def is_behind(self) -> bool:
        """True if records are not ingested yet."""
        return (self.ingested_offset or 0) < (self.end_offset or 0) and self.ingested_offset is not None


@dataclass(frozen=True)
class Report:
    """The status of all topics, and why some of them stop."""

    topics: list[TopicStatus]
    problems: list[tuple[str, str]]
    """Names of topics or assets with the sentences about them."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "topics": [
                {
                    "topic": status.topic,
                    "end_offset": status.end_offset,
                    "ingested_offset": status.ingested_offset,
                    "decoder": status.decoder or None,
                    "failure": status.failure or None,
                    "stages": [
                        {
                            "stage": stage.stage,
                            "fresh": stage.is_fresh,
                            "description": stage.description,
                            "missing": stage.behind.missing if stage.behind else None,
                            "seconds": round(stage.behind.seconds, 1) if stage.behind else None,
                            "snapshot_id": str(stage.shows) if stage.shows else None,
                            "paused": stage.paused or None,
                        }
                        for stage in status.stages
                    ],
                }
                for status in self.topics
            ],
            "problems": [{"subject": subject, "problem": problem} for subject, problem in self.problems],
        }


def report(config: Config, resources: Resources) -> Report:
    """Return the status of all topics, with failed runs, failing checks of streams and reasons of other stops."""
    statuses = status(config, resources)
    failed = failed_runs(config, [status.topic for status in statuses])
    problems = [(topic, f"the last run failed. {reason}") for topic, reason in failed.items()]
    failing = failing_checks(config, [*config.topics, *config.routes])
    for (asset, check), reason in failing.items():
        problems.append((asset, f"a stream reports that '{check}' fails. {reason}"))
    reported = {*failed, *(asset.partition("/")[0] for asset, _ in failing)}
    for topic, reason in stop_reasons(config, resources, statuses, reported).items():
        if topic not in reported:
            problems.append((topic, f"records are not ingested. {reason}"))
    return Report(statuses, problems)


def status(config: Config, resources: Resources) -> list[TopicStatus]:
    """Return the status of every declared topic, and of every topic in Kafka that matches a route.

    A topic that cannot be read has a status with a failure.
    """
    # One request covers all topics; otherwise each topic would wait for the timeout of a Kafka that does not answer.
    names = resource_of(resources, "kafka", Kafka).topics()
    statuses = [_of(config, topic, resources) for topic in [*config.topics.values(), *config.routed_topics(names)]]
    errors = ((name, error) for _, name, error in config.match_routes(names) if not isinstance(error, Topic))
    return [*statuses, *(TopicStatus(name, failure=str(error)) for name, error in errors)]


def _of(config: Config, topic: Topic, resources: Resources) -> TopicStatus:
    def stages() -> tuple[StageLag, ...]:
        return tuple(measure_lag(stage, config, topic, resources) for stage in stages_of(config, topic))

    try:
        chain = resources.catalog.chain(topic.table_in(config.namespace)) if topic.is_ingested else None
        last = chain.last_batch if chain else None
        is_created_here = not topic.source.is_external
        if last is None and is_created_here and topic.topic not in resources.kafka.describe([topic.topic]):
            return TopicStatus(topic.name)
        end_offset = sum(offsets.end for offsets in resources.kafka.offsets([topic.topic])[topic.topic].values())
    except Exception as error:
        failure = logged_reason(f"The status of {topic.name} is unknown", error)
        return TopicStatus(topic.name, stages=stages(), failure=failure)
    ingested_offset = sum(last.end.values()) if last else 0
    decoder = decoder_of_last_batch(chain.newest[1]) if chain else ""
    return TopicStatus(topic.name, end_offset, ingested_offset if topic.is_ingested else None, stages(), decoder)


def stop_reasons(
    config: Config, resources: Resources, statuses: Sequence[TopicStatus], reported: Collection[str]
) -> dict[str, str]:
    """Return why topics have records that are not ingested, and the command that resolves it, by topic.

    Args:
        config: The configuration.
        resources: The systems.
        statuses: The status of each topic.
        reported: The topics for which Dagster has a failure.
    """
    longest = sorted((status for status in statuses if status.is_behind), key=_seconds_behind, reverse=True)
    reasons = {status.topic: _stop_reason(config, resources, status) for status in longest[:MAX_EXAMINED]}
    unexplained = []
    for status in longest:
        is_stale = any(stage.stage == "iceberg" and not stage.is_fresh for stage in status.stages)
        if is_stale and not reasons.get(status.topic) and status.topic not in reported:
            unexplained.append(status.topic)
            reasons[status.topic] = (
                f"No run or stream has reported why. Ingest it with `{_ingestion(status.topic)}`, which prints errors"
            )
    for topic, faults in _bad_records(config, resources, unexplained[:MAX_DECODED]):
        reasons[topic] = (
            f"Records cannot be decoded ({by_reason(faults)}). Correct the cause, and ingest them with "
            f"`{_ingestion(topic)}`"
        )
    return {topic: reason for topic, reason in reasons.items() if reason}


def _ingestion(topic: str) -> str:
    return f"lakehouse stream {topic} --once"


def _bad_records(
    config: Config, resources: Resources, topics: Sequence[str]
) -> Iterator[tuple[str, list[tuple[int, int, str]]]]:
    """Yield the topics whose next batch stops because of records that do not decode, and the first of these."""
    for topic in map(config.topic, topics):
        if topic.errors != "suspend":
            continue
        try:
            with hide_values(topic):
                faults = next_faults(config.namespace, topic, Clients.of(resources), MAX_RECORDS)
        except Exception as error:
            logged_reason(f"Whether the next records of {topic.name} decode is unknown", error)
            return
        if faults:
            yield topic.name, faults


def _seconds_behind(status: TopicStatus) -> float:
    return max((stage.behind.seconds for stage in status.stages if stage.behind), default=0)


def _stop_reason(config: Config, resources: Resources, status: TopicStatus) -> str:
    """Return why no record of a topic can be ingested, as far as its pause and its schemas show; empty if they do
    not."""
    topic = config.topic(status.topic)
    if pause := next((stage.paused for stage in status.stages if stage.paused), ""):
        return f"{pause}. Resume it with `lakehouse unpause {topic.name}`"
    try:
        plan = plan_registered(config, topic, resources)
    except Exception as error:
        return logged_reason(f"Whether the schema of {topic.name} is accepted is unknown", error)
    if plan.invalid:
        return plan.invalid
    refused = [str(change) for change in plan.changes if not change.accepted]
    if not refused or topic.on_incompatible != "stop":
        return ""
    return f"The newest schema does not fit the table: {'; '.join(refused)}. See `lakehouse plan {topic.name}`"


def failed_runs(config: Config, names: Collection[str]) -> dict[str, str]:
    """Return the reason of each failed last run by topic. Topics that routes match may be named, too."""
    with dagster_instance() as instance:
        runs = _last_runs(instance, config, names) if instance else ()
        reasons = {topic: _failure(instance, key, run_id) for topic, key, run_id in runs if instance}
    return {topic: reason for topic, reason in reasons.items() if reason}


def failing_checks(config: Config, names: Collection[str]) -> dict[tuple[str, str], str]:
    """Return the reasons for which streams fail to serve these entries, by asset and check.

    If an audit blocks a batch, the stream reports the audit's checks, as a run does. A topic that a route matches has
    those failures of the route that may be its own.
    """
    with dagster_instance() as instance:
        checks = _stream_checks(config, names) if instance else ()
        reasons = [(asset, check, failure(instance, asset, check), topic) for asset, check, topic in checks if instance]
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
        yield from (((entry.name, stage), STREAMING, topic) for stage in stages)
        blocking = [check for check, one in entry.checks.items() if one.severity == "blocking"]
        yield from (((entry.name, "iceberg"), check, topic) for check in (RECORD_COUNT, KEY_NOT_NULL, *blocking))
    if any(entry.continuous for entry in (*config.topics.values(), *config.routes.values())):
        yield KAFKA, STREAMING, ""


def _last_runs(
    instance: dg.DagsterInstance, config: Config, names: Collection[str]
) -> Iterator[tuple[str, dg.AssetKey, str]]:
    """Yield each topic with its asset and the id of its last run, without routed topics whose last run succeeded."""
    keys = {dg.AssetKey([name, "iceberg"]): name for name in names if name in config.topics}
    for record in instance.get_asset_records([*keys]):
        key = record.asset_entry.asset_key
        yield keys[key], key, record.asset_entry.last_run_id or ""
    attempts = instance.event_log_storage.get_latest_asset_partition_materialization_attempts_without_materializations
    routes = {name: route.name for route, name, _ in config.match_routes(names)}
    for route in dict.fromkeys(routes.values()):
        key = dg.AssetKey([route, "iceberg"])
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
