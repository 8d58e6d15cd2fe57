"""One topic into its table, exactly once: stored offsets → branch → audit → atomic publication.

Nothing here knows of Dagster; the asset in assets/iceberg.py reports what happens here. docs/exactly-once.md has the
reasons.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lakehouse.config import sensitive
from lakehouse.config.topic import Topic
from lakehouse.core.batch import TOKEN, Batch, Log, Positions, next_batch, split, until
from lakehouse.core.errors import BadRecords, CommitConflict, DoesNotFit, Paused, UnclearState
from lakehouse.formats.columns import table_schema
from lakehouse.pipeline import fingerprints, letters, quality
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.position import begin, continue_beside
from lakehouse.pipeline.refusals import Refusals, publish_unless_refused
from lakehouse.pipeline.staging import Staging
from resources.catalog import CONTINUED, Catalog
from resources.kafka import Kafka
from resources.pauses import pauses
from resources.snapshots import last_batch

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

    from lakehouse.core.counts import Counts
    from lakehouse.pipeline.audit import Finding
    from lakehouse.pipeline.codecs import Formats
    from spark.write import Written

ATTEMPTS = 3
"""How often a batch is tried when another writer publishes first."""


@dataclass(frozen=True)
class Published:
    """A batch that readers can see now. `seconds` is the batch's duration; `data_bytes` are what it added to the table,
    which has so many `data_files` now."""

    batch: Batch
    counts: Counts
    findings: list[Finding]
    snapshot_id: int
    seconds: float
    data_bytes: int
    data_files: int


def ingest(namespace: str, topic: Topic, systems: Clients, refusals: Refusals | None = None) -> Iterator[Published]:
    """Publish everything up to the end of the topic as it is now, batch by batch.

    Parameters: `refusals` remembers batches that could not be published, for who tries again and again.
    Yields: each batch after it was published; nothing when there was nothing new. A pause ends it after the batch.
    Raises: Paused; AuditFailed, BadRecords, UnclearState, SchemaError, Unreachable; CommitConflict when another writer
    keeps winning.
    """
    end: Positions = {}
    conflicts, is_begun = 0, False
    while True:
        if (held := pauses(systems.catalog, namespace).get(topic.name)) and is_begun:
            return
        if held:
            raise Paused(topic.name, held.describe())
        # In this order: another writer may have taken records that are newer than an end read before.
        topic, table, last = stored(systems.catalog, namespace, topic)
        log = read_log(systems.kafka, topic.topic)
        end = end or log.end
        try:
            if last is None and topic.start != "earliest":
                begin(systems, namespace, topic, log)
                continue
            whole = until(next_batch(last, log, topic.table), end)
            if not whole.offsets:
                return
            batch = split(whole, topic.max_records_per_batch)
            published = _published(namespace, topic, systems, batch, table, refusals)
        except DoesNotFit as error:
            if topic.on_incompatible != "new_table" or last is None:
                raise
            continue_beside(systems, namespace, topic, last, str(error))
        except CommitConflict:
            conflicts += 1
            if conflicts == ATTEMPTS:
                raise
        else:
            conflicts, is_begun = 0, True
            yield published


def _published(
    namespace: str,
    topic: Topic,
    systems: Clients,
    batch: Batch,
    table: Table | None,
    refusals: Refusals | None,
) -> Published:
    """Publish the batch; or, where a record in it ends the work that decodes it, the part before that record, or that
    record alone as a dead letter."""
    from pyspark.errors import PySparkException

    from lakehouse.pipeline.poison import before_poison

    run = _Run(namespace, topic, systems, batch, table)
    try:
        return run.publish() if refusals is None else publish_unless_refused(run, refusals)
    except PySparkException:
        part, poison = before_poison(run.decodable, batch)
        if part == batch and not poison:
            # Whatever it was, it was not a record.
            raise
        return _Run(namespace, topic, systems, part, table, poison).publish()


def stored(catalog: Catalog, namespace: str, topic: Topic) -> tuple[Topic, Table | None, Batch | None]:
    """The topic with the table that its records go to now, that table, and the newest batch it holds.

    A table that goes on where another ended begins at that one's last batch.

    Raises: UnclearState; Unreachable.
    """
    last: Batch | None = None
    while True:
        table = catalog.load(namespace, topic.table)
        last = last_batch(table) or last
        name = table.properties.get(CONTINUED) if table else None
        if name is None:
            return topic, table, last
        topic = topic.model_copy(update={"table_name": name})


def read_log(kafka: Kafka, topic: str, *, committed: bool = True) -> Log:
    """The topic's identity and its offsets, captured once.

    Parameters: `committed` as `Kafka.offsets` takes it.
    Raises: Unreachable; LakehouseError when the topic does not exist.
    """
    offsets = kafka.offsets([topic], committed=committed)[topic]
    if (described := kafka.describe([topic]).get(topic)) is None:
        raise kafka.missing(topic)
    return Log(
        cluster_id=kafka.cluster_id(),
        topic=topic,
        topic_id=described.topic_id,
        start={partition: found.start for partition, found in offsets.items()},
        end={partition: found.end for partition, found in offsets.items()},
    )


def ensure_table(
    catalog: Catalog, namespace: str, topic: Topic, formats: Formats, existing: Table | None = None
) -> Table:
    """The topic's table, with columns for its newest schema, and partitioned and sorted as declared.

    Parameters: `existing` is the table, where it was loaded just now.
    Raises: SchemaError when the schema does not fit the table there is; ConfigError when `sensitive` names no column
    of it; CommitConflict.
    """
    key = formats.key.shape.struct if formats.key else None
    schema = table_schema(topic.metadata.names, formats.struct, key)
    table = catalog.ensure_table(namespace, topic.table, schema, formats.former, existing)
    catalog.arrange(table, topic.partition_by, topic.sort_by)
    sensitive.check(topic, table)
    return table


def fitting(
    catalog: Catalog, namespace: str, topic: Topic, known: Formats, existing: Table | None = None
) -> tuple[Table, Formats]:
    """The table, with columns for the newest schema; or, by policy, for the newest that fits it. And what reads by it.

    Raises: DoesNotFit; SchemaError; CommitConflict.
    """
    from lakehouse.pipeline.codecs import before_newest

    try:
        return ensure_table(catalog, namespace, topic, known, existing), known
    except DoesNotFit:
        if topic.on_incompatible != "dead_letter":
            raise
        for older in before_newest(known):
            try:
                return ensure_table(catalog, namespace, topic, older, existing), older
            except DoesNotFit:
                continue
        raise


def require_same_topic(kafka: Kafka, batch: Batch) -> None:
    """Compare the topic that was read with the one whose offsets a batch has.

    Raises:
        UnclearState: The topic was deleted or recreated meanwhile.
    """
    found = kafka.describe([batch.topic]).get(batch.topic)
    if found is None or found.topic_id != batch.topic_id:
        raise UnclearState(
            f"Topic '{batch.topic}' was deleted or recreated while offsets of it were read. Nothing was "
            f"published. If that was on purpose, continue with `lakehouse resume`, or drop the table to start over"
        )


class _Run:
    """One batch on its way from the topic to main.

    `table` is the one that the batch begins at, where there is one: only onto its snapshot may the batch be published.
    The record of a batch that is `poison` is not decoded.
    """

    def __init__(
        self, namespace: str, topic: Topic, systems: Clients, batch: Batch, table: Table | None, poison: bool = False
    ):
        from lakehouse.pipeline.codecs import formats

        self.namespace, self.topic, self.catalog = namespace, topic, systems.catalog
        self.batch, self.table, self.poison = batch, table, poison
        self.base = table.metadata.current_snapshot_id if table else None
        self.kafka = systems.kafka
        self.registry, self.kafka_options = systems.schema_registry, systems.kafka.spark_options()
        self.spark: SparkSession = systems.spark.session(systems.catalog.spark_settings())
        self.staging = Staging(systems.catalog, self.spark, namespace)
        self.formats = formats(systems.schema_registry, topic)

    def is_decodable_now(self) -> bool:
        """Whether all records that have to be decoded can be, as by a schema that was registered under any subject."""
        from lakehouse.pipeline.codecs import BATCH, with_foreign_writers
        from spark.explain import first_faults

        known = self.formats
        try:
            self.formats = with_foreign_writers(self.registry, known, self._decoded(), BATCH)
            return not first_faults(self._decoded(), self.formats.decoding(), limit=1)
        finally:
            self.formats = known

    def publish(self) -> Published:
        """Write the batch to a branch, audit it there, and publish it.

        Raises: AuditFailed; BadRecords; UnclearState; SchemaError; CommitConflict; Unreachable.
        """
        from lakehouse.pipeline.audit import AuditFailed, Staged
        from lakehouse.pipeline.codecs import BATCH, with_foreign_writers
        from lakehouse.pipeline.examination import examine

        began = time.monotonic()
        table = self._table()
        quality.fit(self.spark, self.namespace, self.topic)
        branch, written = self._stage(table)
        if written.unknown_schema or written.bad_key:
            known = self.formats
            self.formats = with_foreign_writers(self.registry, known, self._decoded(), BATCH)
            # Which of the dead letters nobody looked up changes no row.
            if replace(self.formats, absent=None) != known:
                fingerprints.check(table, self.topic, self.formats)
                branch, written = self._stage(table.refresh())
        counts = self._with_policy(written)
        self._check_topic()
        table = table.refresh()
        with self.staging.undisturbed(self.topic.table, branch):
            token = (TOKEN, self.batch.to_json())
            staged = Staged(branch, self.base, token, 1, self.batch.offsets, self.batch.start, counts)
            findings = examine(self.spark, self.catalog, self.namespace, self.topic, table, staged)
            findings += self._in_quarantine(table, written)
        if any(finding.blocks for finding in findings):
            raise AuditFailed(self.topic.table, branch, findings)
        if self.topic.keeps_dead_letters:
            self._keep_dead_letters(written)
        remembered = fingerprints.properties(table, self.formats)
        table = self.catalog.publish(table, branch, self.base, asdict(counts), remembered)
        snapshot = table.current_snapshot()
        assert snapshot is not None and snapshot.summary is not None
        summary = snapshot.summary.additional_properties
        added, files = (int(summary.get(name, 0)) for name in ("added-files-size", "total-data-files"))
        seconds = time.monotonic() - began
        return Published(self.batch, counts, findings, snapshot.snapshot_id, seconds, added, files)

    def _table(self) -> Table:
        """The table, with columns for the newest schema; or, by policy, for the newest that fits it.

        Raises: DoesNotFit; SchemaError; UnclearState; CommitConflict.
        """
        fingerprints.check(self.table, self.topic, self.formats)
        table, self.formats = fitting(self.catalog, self.namespace, self.topic, self.formats, self.table)
        return table

    def _in_quarantine(self, table: Table, written: Written) -> list[Finding]:
        """What the checks that quarantine rows kept from the table."""
        if not self.topic.quarantine:
            return []
        checked, since = written.counts.rows + written.quarantined, self.batch.start
        return quality.quarantine(
            self._decoded(), self.namespace, self.topic, table, since, checked, written.quarantined
        )

    def decodable(self, batch: Batch) -> bool:
        """Whether decoding the records of a batch comes to an end.

        Raises: PySparkException when they cannot be read, decoded or not; UnclearState when one record cannot.
        """
        from lakehouse.pipeline.poison import unreadable
        from spark.decode import decode, is_decodable
        from spark.records import is_readable, read_range

        records = read_range(self.spark, self.kafka_options, batch)
        if is_decodable(decode(records, replace(self.formats.decoding(), metadata={}))):
            return True
        if not is_readable(records) and batch.offsets == 1:
            raise unreadable(self.topic, batch)
        return False

    def _decoded(self, headers: bool = False) -> DataFrame:
        from spark.decode import decode, refused
        from spark.records import read_range

        how = self.formats.decoding()
        records = read_range(self.spark, self.kafka_options, self.batch, headers=headers or how.needs_headers)
        return refused(records, how, "poison") if self.poison else decode(records, how)

    def _stage(self, table: Table) -> tuple[str, Written]:
        """Write the batch to a branch of its own, in place of whatever an interrupted batch left.

        Parameters: `table` as it was loaded just now.
        """
        from spark import write

        branch = self.staging.branch(table)
        token = {TOKEN: self.batch.to_json()}
        target = write.Target(self.namespace, self.topic.table, branch, token)
        with self.staging.undisturbed(self.topic.table, branch):
            return branch, write.rows(self._decoded(), target, self.topic.mode, self.topic.key, empty=self.base is None)

    def _check_topic(self) -> None:
        require_same_topic(self.kafka, self.batch)

    def _with_policy(self, written: Written) -> Counts:
        """What becomes of records that could not be decoded.

        Raises: BadRecords where the topic's policy is to stop.
        """
        from spark.explain import first_faults

        counts, bad = written.counts, written.counts.dead_letters - written.quarantined
        if not bad or self.topic.errors == "log":
            return counts
        if self.topic.errors == "skip":
            return replace(counts, skipped=bad, dead_letters=written.quarantined)
        faults = first_faults(self._decoded(), self.formats.decoding(), shows_keys=not self.topic.sensitive)
        raise BadRecords(self.topic.name, bad, faults)

    def _keep_dead_letters(self, written: Written) -> None:
        """Publish the batch's dead letters, before the batch itself.

        Raises: UnclearState when they are not those that were counted; CommitConflict.
        """
        decided = written.dead if self.topic.errors == "log" else written.failing
        decode = partial(self._decoded, headers=True)
        letters.keep(self.staging, self.topic, self.batch, decided, decode, self.formats.decoding())
