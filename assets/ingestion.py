"""One topic into its table, exactly once: stored offsets → branch → audit → atomic publication.

Nothing here knows of Dagster; the asset in assets/iceberg.py reports what happens here. docs/exactly-once.md has the
reasons.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lakehouse import avro, naming
from lakehouse.batch import Batch, Log, Positions, beyond, next_batch, split, until
from lakehouse.config import Topic
from lakehouse.errors import CommitConflict
from lakehouse.lag import Lag, lag, pending
from resources.catalog import Catalog, last_batch, live_rows
from resources.kafka import Kafka
from resources.schema_registry import SchemaRegistry
from resources.spark import Spark

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyspark.sql import DataFrame, SparkSession

    from assets.audit import Finding
    from spark.decode import Codec
    from spark.write import Counts

ATTEMPTS = 3
"""How often a batch is tried when another writer publishes first."""


@dataclass(frozen=True)
class Systems:
    """What ingestion talks to."""

    kafka: Kafka
    schema_registry: SchemaRegistry
    spark: Spark
    catalog: Catalog


@dataclass(frozen=True)
class Published:
    """A batch that readers can see now. `total_rows` is the table's, `seconds` the batch's duration."""

    batch: Batch
    counts: Counts
    findings: list[Finding]
    snapshot_id: int
    total_rows: int
    seconds: float


def ingest(namespace: str, topic: Topic, systems: Systems) -> Iterator[Published]:
    """Publish everything up to the end of the topic as it is now, batch by batch.

    Yields: each batch after it was published; nothing when there was nothing new.
    Raises: AuditFailed, UnclearState, SchemaError, Unreachable; CommitConflict when another writer keeps winning.
    """
    end: Positions = {}
    conflicts = 0
    while True:
        # In this order: another writer may have taken records that are newer than an end read before.
        table = systems.catalog.load(namespace, topic.table)
        log = read_log(systems.kafka, topic.name)
        end = end or log.end
        whole = until(next_batch(last_batch(table), log, topic.table), end)
        if not whole.offsets:
            return
        base = table.metadata.current_snapshot_id if table else None
        try:
            published = _Run(namespace, topic, systems, split(whole, topic.max_records_per_batch), base).publish()
        except CommitConflict:
            conflicts += 1
            if conflicts == ATTEMPTS:
                raise
        else:
            conflicts = 0
            yield published


def read_log(kafka: Kafka, topic: str) -> Log:
    """The topic's identity and its offsets, captured once."""
    offsets = kafka.offsets([topic])[topic]
    return Log(
        cluster_id=kafka.cluster_id(),
        topic=topic,
        topic_id=kafka.describe([topic])[topic].topic_id,
        start={partition: found.start for partition, found in offsets.items()},
        end={partition: found.end for partition, found in offsets.items()},
    )


def measure_lag(kafka: Kafka, catalog: Catalog, namespace: str, topics: list[Topic], now_ms: int) -> dict[str, Lag]:
    """How far each topic's table is behind it, by topic name.

    Parameters: `now_ms` is the time now, in milliseconds since the epoch.
    Raises: Unreachable.
    """
    lags = {}
    offsets = kafka.offsets([topic.name for topic in topics])
    for topic in topics:
        start = {partition: found.start for partition, found in offsets[topic.name].items()}
        end = {partition: found.end for partition, found in offsets[topic.name].items()}
        waiting = pending(last_batch(catalog.load(namespace, topic.table)), start, end)
        oldest = kafka.oldest_timestamp(topic.name, waiting) if waiting else {}
        lags[topic.name] = lag(waiting, end, oldest, now_ms)
    return lags


class _Run:
    """One batch on its way from the topic to main.

    `base` is the snapshot whose token the batch begins at: only onto it may the batch be published.
    """

    def __init__(self, namespace: str, topic: Topic, systems: Systems, batch: Batch, base: int | None):
        from assets.codecs import key_codec, value_codec

        self.namespace, self.topic, self.catalog = namespace, topic, systems.catalog
        self.batch, self.base = batch, base
        self.registry, self.kafka_options = systems.schema_registry, systems.kafka.spark_options()
        self.spark: SparkSession = systems.spark.session(systems.catalog.spark_settings())
        self.value = value_codec(systems.schema_registry, topic)
        self.key: Codec | None = key_codec(systems.schema_registry, topic)

    def publish(self) -> Published:
        from assets.audit import AuditFailed, audit
        from assets.codecs import with_foreign_writers

        began = time.monotonic()
        table = self.catalog.ensure_table(self.namespace, self.topic.table, self._schema())
        branch, counts = self._stage()
        if counts.unknown_schema:
            known = self.value
            self.value = with_foreign_writers(self.registry, known, self._decoded())
            if self.value != known:
                branch, counts = self._stage()
        table = table.refresh()
        with self._undisturbed(self.topic.table, branch):
            findings = audit(self.spark, self.namespace, self.topic, table, branch, self.batch, counts)
        if not all(finding.passed for finding in findings):
            raise AuditFailed(self.topic.table, branch, findings)
        if counts.dead_letters:
            self._keep_dead_letters()
        table = self.catalog.publish(table, branch, self.base, asdict(counts))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        seconds = time.monotonic() - began
        return Published(self.batch, counts, findings, snapshot.snapshot_id, live_rows(table), seconds)

    def _schema(self) -> Schema:
        from spark.decode import METADATA

        from_key = [(c, "string", "From the message key") for c in self.topic.key if c not in self.value.columns]
        return avro.iceberg_schema(self.value.reader, *from_key, *METADATA)

    def _decoded(self, headers: bool = False) -> DataFrame:
        from spark.decode import decode
        from spark.records import read_range

        records = read_range(self.spark, self.kafka_options, self.batch, headers=headers)
        return decode(records, self.value, self.key, self.topic.key, upsert=self.topic.mode == "upsert")

    def _stage(self) -> tuple[str, Counts]:
        """Write the batch to a branch of its own, in place of whatever an interrupted batch left."""
        from spark import write

        branch = self._branch(self.topic.table)
        target = self.namespace, self.topic.table, branch, self.batch
        with self._undisturbed(self.topic.table, branch):
            if self.topic.mode == "append":
                return branch, write.append(self._decoded(), *target)
            return branch, write.upsert(self._decoded(), *target, self.topic.key, empty=self.base is None)

    def _keep_dead_letters(self) -> None:
        """Publish the batch's dead letters, before the batch itself.

        Their table remembers offsets too: a batch that is tried again after a crash adds only what is not there yet.
        """
        from spark import write

        name = naming.dead_letter_table(self.topic.table)
        table = self.catalog.ensure_table(self.namespace, name, write.dead_letter_schema())
        rest = beyond(self.batch, last_batch(table))
        if not rest.offsets:
            return
        base = table.current_snapshot()
        branch = self._branch(name)
        with self._undisturbed(name, branch):
            write.append_dead_letters(self._decoded(headers=True), self.namespace, name, branch, rest)
            self.catalog.publish(table.refresh(), branch, base.snapshot_id if base else None)

    @contextmanager
    def _undisturbed(self, name: str, branch: str) -> Iterator[None]:
        """Whatever fails because another writer dropped the branch is that writer's victory, not an error."""
        try:
            yield
        except Exception as error:
            table = self.catalog.load(self.namespace, name)
            if table is None or branch in table.metadata.refs:
                raise
            raise CommitConflict(
                f"Another writer took over {self.namespace}.{name} and dropped branch '{branch}' while this batch was "
                f"prepared. The batch was not published; run it again"
            ) from error

    def _branch(self, name: str) -> str:
        from spark.write import create_branch

        table = self.catalog.load(self.namespace, name)
        assert table is not None
        self.catalog.drop_staging(table)
        branch = f"{naming.STAGING_PREFIX}{uuid.uuid4().hex[:12]}"
        create_branch(self.spark, self.namespace, name, branch)
        return branch
