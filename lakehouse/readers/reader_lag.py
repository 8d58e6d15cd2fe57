"""Measure the lag of each stage of a topic's pipeline; lakehouse/readers/freshness.py decides whether it is fresh."""

import time
from dataclasses import replace

from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import LakehouseError, logged_reason
from lakehouse.core.offsets.batch import next_batch
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.offsets.lag import Lag, lag, pending, snapshots_behind
from lakehouse.pipeline.batches.positions import read_log
from lakehouse.pipeline.bookmark_owners import require_own
from lakehouse.pipeline.table_location import catalog_of, is_stored_by_confluent, table_of
from lakehouse.readers import configured, reader_of
from lakehouse.readers.freshness import StageLag
from lakehouse.readers.reader import Reader
from resources.iceberg.bookmarked_table import replays
from resources.iceberg.pauses import pauses
from resources.iceberg.snapshots import commits, is_rolled_back, summary_of
from resources.iceberg.table_chain import TableChain, has_rows_of
from resources.kafka import bookmark_topic
from resources.kafka.bookmark_topic import derived_bookmark_name
from resources.kafka.offsets import leaderless_error
from resources.protocols import KafkaClient, Resources


def required_resources(stage: str) -> frozenset[str]:
    """Return the keys of the resources that are needed to measure a stage."""
    reader = reader_of(stage)
    return frozenset({"catalog", reader.resource} if reader else {"catalog", "kafka"})


def stages_of(config: Config, topic: Topic) -> list[str]:
    """Return the stages of a topic in order, by the first part of their assets' keys.

    Topics that are not derived have no stage `kafka`. Topics that Tableflow materializes have only those of readers:
    Confluent reports whether Tableflow follows the topic. No reader has the tables in Confluent's storage.
    """
    if is_stored_by_confluent(config, topic):
        return []
    readers = [reader.name for reader in configured(config)]
    if not topic.is_ingested:
        return readers
    derived = ["kafka"] if topic.source.upstream else []
    return [*derived, "iceberg", *readers]


def measure_lag(stage: str, config: Config, topic: Topic, resources: Resources) -> StageLag:
    """Measure one stage of one topic. A failure is part of the result, so one broken topic does not hide the others."""
    reader = reader_of(stage)
    stage_lag = StageLag(topic.name, stage, topic.max_lag_seconds)
    try:
        # A pause stops ingestion only; readers still expose what is published.
        if reader is None and (topic_pause := pauses(resources.catalog, config.namespace).get(topic.table)):
            stage_lag = replace(stage_lag, paused=topic_pause.describe())
        now_ms = int(time.time() * 1000)
        behind: Lag | None
        if reader:
            behind, shows = _in_reader(reader, config, topic, resources, now_ms)
        elif stage == "kafka":
            behind, shows = _derived(config, topic, resources, now_ms)
        else:
            behind, shows = _iceberg(config, topic, resources, now_ms)
    except Exception as error:
        return replace(stage_lag, failure=logged_reason(f"{topic.name}/{stage} could not be measured", error))
    return replace(stage_lag, behind=behind, shows=shows)


def _derived(config: Config, topic: Topic, resources: Resources, now_ms: int) -> tuple[Lag, None]:
    """Return the lag of a derived topic behind the table of its source."""
    source = config.topic(topic.source.upstream)
    if not source.is_ingested:
        return _derived_from_tableflow(config, topic, source, resources, now_ms), None
    chain = resources.catalog.chain(source.table_in(config.namespace))
    last = chain.last_batch
    if last is None:
        return Lag(0, 0.0), None
    log = read_log(resources.kafka, source.topic)
    bookmark = _bookmark(topic, resources.kafka, chain)
    # The rule of derivation: otherwise, all rows are derived, or it stops.
    bookmark = bookmark if bookmark and bookmark.is_of(last) and has_rows_of(chain, bookmark) else None
    since = bookmark.offsets if bookmark else {}
    pending_offsets = pending({p: since.get(p, 0) for p in last.end}, last.end)
    for partition, position in pending_offsets.items():
        if position < log.start.get(partition, 0):
            raise LakehouseError(
                f"'{topic.name}' is not yet derived from rows of '{source.name}' (partition {partition}, from offset "
                f"{position}) whose records Kafka no longer has. How long they have waited is unknown. "
                f"Materialize {topic.name}/kafka"
            )
    if not pending_offsets and bookmark is None and _has_rows(chain):
        raise LakehouseError(
            f"'{source.name}' has rows of a topic that was recreated, and nothing records that '{topic.name}' was "
            f"derived from them. How long they have waited is unknown. Materialize {topic.name}/kafka"
        )
    if bookmark and _may_lack_replayed_rows(chain, bookmark):
        raise LakehouseError(
            f"'{topic.name}' is not yet derived from rows that a redrive, a replay or ingestion after a rollback added "
            f"to '{source.name}' behind its position. How long their records have waited is unknown. Materialize "
            f"{topic.name}/kafka"
        )
    oldest = resources.kafka.oldest_timestamp(source.topic, pending_offsets, last.end) if pending_offsets else {}
    return lag(pending_offsets, last.end, oldest, now_ms), None


def _has_rows(chain: TableChain) -> bool:
    """Return whether a table of a chain may have rows."""
    current = filter(None, (table.current_snapshot() for _, table in chain.existing))
    return any(summary_of(snapshot).get("total-records") != "0" for snapshot in current)


def _may_lack_replayed_rows(chain: TableChain, bookmark: Bookmark) -> bool:
    """Return whether rows behind a bookmark may have been added to its table, or to one that continues it, since, or
    main was rolled back behind the snapshot that was read."""
    derived = chain.with_uuid(bookmark.table_uuid)
    tables = [table for _, table in chain.existing if table.current_snapshot()]
    if derived in tables:
        tables = tables[tables.index(derived) :]
    if derived and is_rolled_back(derived, bookmark.snapshot_id):
        return True
    return any(replays(table) != bookmark.replays_of(str(table.metadata.table_uuid)) for table in tables)


def _derived_from_tableflow(config: Config, topic: Topic, source: Topic, resources: Resources, now_ms: int) -> Lag:
    """Return the lag of a derived topic behind the snapshots of Tableflow."""
    chain = catalog_of(source, resources).chain(table_of(config, source, resources))
    table, bookmark = chain.newest[1], _bookmark(topic, resources.kafka, chain)
    derived_from = bookmark.snapshot_id if bookmark else None
    behind = snapshots_behind(commits(table) if table else [], derived_from, now_ms)
    if behind is None:
        raise LakehouseError(
            f"'{topic.name}' was derived from snapshot {derived_from} of '{source.name}', which is expired. How long "
            f"newer rows have waited is unknown. Materialize {topic.name}/kafka"
        )
    return behind


def _bookmark(topic: Topic, kafka: KafkaClient, chain: TableChain) -> Bookmark | None:
    """Return the bookmark of a derived topic; None if there is none since the topic was created.

    Raises:
        IncompatibleSettings: The topic has messages that were derived with other settings.
        UnclearState: The topic has messages of another table than that of its source.
    """
    target = kafka.describe([topic.topic]).get(topic.topic)
    bookmark = bookmark_topic.read(kafka, derived_bookmark_name(topic), settled=False) if target else None
    if not (bookmark and target and bookmark.target_id == target.topic_id):
        return None
    require_own(bookmark, topic, topic.topic, target.topic_id, chain)
    return bookmark


def _iceberg(config: Config, topic: Topic, resources: Resources, now_ms: int) -> tuple[Lag, int | None]:
    """Return the lag of a table behind its topic, by the same rule as ingestion, and the table's snapshot."""
    chain = resources.catalog.chain(topic.table_in(config.namespace))
    (ref, table), last = chain.newest, chain.last_batch
    snapshot_id = table.metadata.current_snapshot_id if table else None
    topic_state = resources.kafka.describe([topic.topic]).get(topic.topic)
    if topic_state is None:
        if last is None and not topic.source.is_external:
            return Lag(0, 0.0, absent="the topic does not exist yet"), snapshot_id
        raise resources.kafka.missing_topic_error(topic.topic)
    if topic_state.leaderless:
        raise leaderless_error(resources.kafka, topic.topic, topic_state.leaderless)
    # Count records of open transactions as well, so that a hanging transaction shows up as lag.
    remaining = next_batch(last, read_log(resources.kafka, topic.topic, committed=False), ref.name)
    pending_offsets = pending(remaining.start, remaining.end)
    oldest = resources.kafka.oldest_timestamp(topic.topic, pending_offsets, remaining.end) if pending_offsets else {}
    return lag(pending_offsets, remaining.end, oldest, now_ms), snapshot_id


def _in_reader(
    reader: Reader, config: Config, topic: Topic, resources: Resources, now_ms: int
) -> tuple[Lag | None, int | None]:
    first = table_of(config, topic, resources)
    ref, _ = resources.catalog.chain(first).published or (first, None)
    registration = reader.current(ref, resources)
    snapshot_id = registration.snapshot_id if registration else None
    table = resources.catalog.load(ref)
    return snapshots_behind(commits(table) if table else [], snapshot_id, now_ms), snapshot_id
