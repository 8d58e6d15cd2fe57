"""The dead letters of a batch, published before the batch: exactly those that were decided on while it was staged.

A batch defines its letters. Whatever an earlier attempt at the same offsets left is replaced: letters that are none now
go, and missing ones come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.batch import Batch
from lakehouse.core.errors import CommitConflict, UnclearState
from lakehouse.pipeline.staging import Staging
from resources.catalog import Catalog

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import DataFrame

    from spark.decision import Decision
    from spark.decode import Decoding


def load(catalog: Catalog, namespace: str, topic: Topic) -> Table | None:
    """Load the table of a topic's dead letters; None when there is none.

    Raises:
        UnclearState: Its letters do not say which topic of the name they are from.
        Unreachable: The catalog does not answer.
    """
    name = naming.dead_letter_table(topic.table)
    table = catalog.load(namespace, name)
    if table is not None and "topic_id" not in table.schema().column_names:
        raise UnclearState(
            f"Table {namespace}.{name} was made by an older release, and its dead letters do not say which topic of "
            f"the name '{topic.topic}' they are from. Nothing was changed. Rename or drop it, and read its records "
            f"again with `lakehouse replay {topic.name}`"
        )
    return table


def keep(
    staging: Staging, topic: Topic, batch: Batch, decided: Decision, decode: Callable[[], DataFrame], how: Decoding
) -> None:
    """Make the table of dead letters hold, of a batch's offsets, exactly the letters that were decided on.

    Args:
        staging: of the topic's namespace.
        topic: the entry in lakehouse.yaml, with the table that lacks the records.
        batch: the offsets.
        decided: which of the batch's records are dead letters.
        decode: decodes the batch again, with headers.
        how: how the batch is decoded.

    Raises:
        UnclearState: Decoding again set other records aside. Nothing was published.
        CommitConflict: Another writer published letters meanwhile.
    """
    from spark import dead_letters
    from spark.decision import Decision
    from spark.write import Target

    catalog, spark, namespace = staging.catalog, staging.spark, staging.namespace
    name = naming.dead_letter_table(topic.table)
    table = load(catalog, namespace, topic)
    if table is None and not decided.count:
        return
    table = catalog.ensure_table(namespace, name, dead_letters.schema(), existing=table)
    before = Decision()
    if may_hold(table, batch):
        before = dead_letters.decision(spark.table(naming.spark_table(namespace, name)), batch)
    if before == decided:
        return
    base = table.current_snapshot()
    branch = staging.branch(table)
    target = Target(namespace, name, branch, {})
    with staging.undisturbed(name, branch):
        if before.count:
            dead_letters.discard(spark, target, batch)
        if decided.count:
            dead_letters.append(dead_letters.of_batch(decode(), how, namespace, topic, batch), target)
        found = dead_letters.decision(spark.table(target.path), batch)
        if found != decided:
            _require_unmoved(table.refresh(), base)
            raise UnclearState(
                f"Of '{topic.name}', {decided.count:,} records were dead letters when their batch was written, and "
                f"{found.count:,} (or others) when the letters were. Nothing of the batch was published. Run it again, "
                f"as a schema or the log may have changed meanwhile; if it stops again, correct the quarantining check "
                f"that does not always give the same answer for a record (`lakehouse dead-letters {topic.name}`)"
            )
        catalog.publish(table.refresh(), branch, base.snapshot_id if base else None)


def _require_unmoved(table: Table, base: Snapshot | None) -> None:
    """
    Raises:
        CommitConflict: The branch was made after another writer had published letters.
    """
    if table.current_snapshot() != base:
        raise CommitConflict(
            f"Another writer published dead letters in {'.'.join(table.name())} while those of this batch were "
            f"prepared. Nothing of the batch was published. Run it again"
        )


def may_hold(table: Table, batch: Batch) -> bool:
    """Return whether a file of the table may hold letters of a batch's offsets, by the statistics of its columns."""
    from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan, Or

    ranges = [
        And(
            EqualTo("source_record.partition", p),
            GreaterThanOrEqual("source_record.offset", batch.start[p]),
            LessThan("source_record.offset", end),
        )
        for p, end in batch.end.items()
        if end > batch.start[p]
    ]
    if table.current_snapshot() is None or not ranges:
        return False
    inside = ranges[0] if len(ranges) == 1 else Or(*ranges)
    return any(table.scan(row_filter=And(EqualTo("topic_id", batch.topic_id), inside)).plan_files())
