"""Records read again: a range of the log, or dead letters whose reason is gone. Doing it twice changes nothing.

Rows are told by partition and offset (or by key, where a table has one row a key), so what is there already is replaced
by itself. The position does not move.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from assets import fingerprints, letters, quality
from assets.ingestion import Systems, ensure_table, fitting, read_log
from assets.position import at
from assets.staging import Staging
from lakehouse import naming
from lakehouse.batch import REPLAY, REPLAYS, Batch, Log, Positions, next_batch, split
from lakehouse.checks import RowCount
from lakehouse.counts import Counts
from lakehouse.errors import LakehouseError, UnclearState
from lakehouse.topic import Topic
from resources.catalog import RECREATED, Catalog
from resources.snapshots import last_batch

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

    from assets.codecs import Formats
    from spark.decision import Decision
    from spark.write import Written

BY_ORIGIN = ("kafka_partition", "kafka_offset")


@dataclass(frozen=True)
class Replayed:
    """What was read again. `snapshot_id` is None where there was nothing; of the dead letters, which stay where they
    are, `quarantined` fail a check."""

    batch: Batch
    counts: Counts
    snapshot_id: int | None
    quarantined: int = 0


@dataclass(frozen=True)
class Redriven:
    """Dead letters that were decoded again: how many, and how many are rows now."""

    tried: int
    landed: int


def replay(namespace: str, topic: Topic, systems: Systems, since: str, branch: str | None = None) -> Replayed:
    """Read the log again from `since` up to the table's position, and replace the rows of those records.

    Parameters: `since` as lakehouse.yaml writes a start, or offsets as `0:12,1:40`. With `branch`, rows go to that
    branch of the table, which is made where it is missing, and main stays as it is.
    Raises: LakehouseError when nothing was ingested yet, or `since` is unclear; UnclearState when the log no longer has
    the range; CommitConflict when another writer publishes meanwhile.
    """
    topic = systems.catalog.current(namespace, topic)
    log, position = _ingested(namespace, topic, systems, in_place=branch is None)
    start = at(log, systems.kafka, since).end
    wanted = replace(position, start={p: min(start.get(p, o), o) for p, o in position.end.items()})
    known = _formats(namespace, topic, systems)
    return again(namespace, topic, systems, known, _within(wanted, log), branch)


def redrive(namespace: str, topic: Topic, systems: Systems) -> Redriven:
    """Decode the table's dead letters again; those that decode become rows with their original offsets.

    Raises: UnclearState when a table with one row a key would need records that the log no longer has.
    """
    from assets.codecs import BY_HAND, with_foreign_writers
    from spark import dead_letters
    from spark.decode import decode

    topic = systems.catalog.current(namespace, topic)
    name = naming.dead_letter_table(topic.table)
    letter_table = letters.load(systems.catalog, namespace, topic)
    snapshot = letter_table.current_snapshot() if letter_table else None
    if snapshot is None:
        return Redriven(0, 0)
    log, position = _ingested(namespace, topic, systems, in_place=True)
    spark = systems.spark.session(systems.catalog.spark_settings())
    # One snapshot for every step: a letter that comes meanwhile must not be marked as landed.
    waiting = dead_letters.waiting(spark, namespace, name, snapshot.snapshot_id, position)
    known = _formats(namespace, topic, systems)
    known = with_foreign_writers(systems.schema_registry, known, decode(waiting, known.decoding()), BY_HAND)
    # A letter that nobody looked up is one more that stays.
    known = replace(known, absent=None)
    decoded = decode(waiting, known.decoding())
    tried = dead_letters.tried(decoded)
    first = dead_letters.first_offsets(tried)
    count, staying = dead_letters.staying(tried)
    landing = count - staying.count
    if landing and topic.replaces:
        # A newer record may have replaced or deleted the row since: only the log knows.
        since = {p: min(first.get(p, o), o) for p, o in position.end.items()}
        again(namespace, topic, systems, known, _within(replace(position, start=since), log), None)
    elif landing:
        _publish(namespace, topic, systems, known, {"dead_letters": landing}, first, [decoded], staying=staying)
    if count:
        dead_letters.mark(tried, namespace, name, position.topic_id)
    return Redriven(count, landing)


def _formats(namespace: str, topic: Topic, systems: Systems) -> Formats:
    """What reads the topic's records. A schema that the table does not take, by policy, reads none of them."""
    from assets.codecs import formats

    known = formats(systems.schema_registry, topic)
    return fitting(systems.catalog, namespace, topic, known)[1] if topic.on_incompatible == "dead_letter" else known


def _ingested(namespace: str, topic: Topic, systems: Systems, in_place: bool) -> tuple[Log, Batch]:
    """The topic's log, and the table's position in it."""
    table = systems.catalog.load(namespace, topic.table)
    last = last_batch(table)
    if table is None or last is None:
        raise LakehouseError(f"Nothing of '{topic.name}' was ingested yet. Materialize iceberg/{topic.name} first")
    if in_place and RECREATED in table.properties:
        raise UnclearState(
            f"Table {namespace}.{topic.table} holds rows of a topic that was recreated since, whose offsets are not "
            f"those of '{topic.topic}' now. Nothing was changed. Replay into a branch instead"
        )
    log = read_log(systems.kafka, topic.topic)
    next_batch(last, log, topic.table)
    quality.fit(systems.spark.session(systems.catalog.spark_settings()), namespace, topic)
    return log, last


def _within(wanted: Batch, log: Log) -> Batch:
    """The range, all of which the log must still have."""
    for partition, offset in wanted.start.items():
        if offset < min(log.start[partition], wanted.end[partition]):
            raise UnclearState(
                f"Topic '{wanted.topic}' partition {partition} no longer has offsets {offset} to "
                f"{log.start[partition] - 1}. Nothing was changed. Begin at `earliest`, which is what is left"
            )
    return wanted


def again(
    namespace: str, topic: Topic, systems: Systems, known: Formats, wanted: Batch, branch: str | None
) -> Replayed:
    """Write the rows of a range again, all of them in one publication; with a branch, to that and not to main.

    Raises: LakehouseError when records name more schemas than are looked up: one of them may be the newest of its key.
    """
    from assets.codecs import BY_HAND, with_foreign_writers
    from spark.decode import decode
    from spark.records import read_range

    if not wanted.offsets:
        return Replayed(wanted, Counts(), None)
    spark = systems.spark.session(systems.catalog.spark_settings())

    options, pieces, rest = systems.kafka.spark_options(), [], wanted
    while rest.offsets:
        piece = split(rest, topic.max_records_per_batch)
        pieces.append(read_range(spark, options, piece, headers=known.decoding().needs_headers))
        rest = replace(rest, start=piece.end)
    for records in pieces:
        # A record whose schema is not known yet may be the newest of its key.
        known = with_foreign_writers(systems.schema_registry, known, decode(records, known.decoding()), BY_HAND)
        if known.absent is not None:
            raise LakehouseError(
                f"Records of '{topic.name}' name more schema ids that it does not have than are looked up at a time. "
                f"Nothing was changed. Replay a smaller range"
            )
    decoded = [decode(records, known.decoding()) for records in pieces]
    said = {"start": dict(wanted.start), "end": dict(wanted.end)}
    written, snapshot_id = _publish(namespace, topic, systems, known, said, wanted.start, decoded, branch)
    return Replayed(wanted, written.counts, snapshot_id, written.quarantined)


def _publish(
    namespace: str,
    topic: Topic,
    systems: Systems,
    known: Formats,
    said: dict[str, object],
    since: Positions,
    pieces: Sequence[DataFrame],
    branch: str | None = None,
    staying: Decision | None = None,
) -> tuple[Written, int]:
    """Replace the rows of decoded records on a branch, and make it main unless the branch was asked for.

    Args:
        namespace: the table's.
        topic: its entry in lakehouse.yaml.
        systems: what to talk to.
        known: the formats that the records were decoded by.
        said: what the snapshot says was read again.
        since: the first offset by partition of the records.
        pieces: the records.
        branch: the branch that was asked for.
        staying: the records that are no rows, where that was decided before.

    Raises:
        UnclearState: Other records than those are no rows. Nothing was published.
    """
    from spark import write

    catalog = systems.catalog
    spark = systems.spark.session(catalog.spark_settings())
    fingerprints.check(catalog.load(namespace, topic.table), topic, known)
    table = ensure_table(catalog, namespace, topic, known)
    base = table.current_snapshot()
    staging = Staging(catalog, spark, namespace)
    staged = staging.branch(table) if branch is None else staging.kept(table, branch)
    target = write.Target(namespace, topic.table, staged, {REPLAY: json.dumps(said)}, topic.metadata.names)
    written = write.Written(Counts())
    with staging.undisturbed(topic.table, staged):
        for decoded in pieces:
            if topic.mode == "dedup":
                written += write.dedup(decoded, target, topic.key, empty=False)
            else:
                written += write.upsert(decoded, target, topic.key if topic.replaces else BY_ORIGIN, empty=False)
    if staying is not None and written.dead != staying:
        raise UnclearState(
            f"Of '{topic.name}', {staying.count:,} dead letters were found not to decode, and {written.dead.count:,} "
            f"(or others) did not when their rows were written. Nothing was changed. Run `lakehouse redrive` again; if "
            f"it stops again, correct the quarantining check that does not always give the same answer"
        )
    table = table.refresh()
    if branch is None:
        _audit(spark, catalog, namespace, topic, table, staged, since)
        replays = {REPLAYS: str(int(table.properties.get(REPLAYS, 0)) + 1)}
        table = catalog.publish(table, staged, base.snapshot_id if base else None, properties=replays)
    return written, table.metadata.refs[branch or "main"].snapshot_id


def _audit(
    spark: SparkSession, catalog: Catalog, namespace: str, topic: Topic, table: Table, branch: str, since: Positions
) -> None:
    """Raises: AuditFailed when a blocking check fails on rows from `since` on."""
    from assets.audit import AuditFailed

    blocking = {
        name: check
        for name, check in topic.checks.items()
        if check.severity == "blocking" and not isinstance(check, RowCount)
    }
    staged = table.metadata.refs[branch].snapshot_id
    found = quality.findings(spark, catalog, namespace, topic, blocking, table, staged, since)
    if not all(finding.passed for finding in found):
        raise AuditFailed(topic.table, branch, found)
