"""The dead letters of a batch, published before the batch: exactly those that were decided on while it was staged.

A batch defines its letters. Whatever an earlier attempt at the same offsets left is replaced: letters that are none now
go, and missing ones come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.batch import Batch
from lakehouse.core.counts import Counts
from lakehouse.core.errors import UnclearState
from lakehouse.pipeline.staged_commit import StagedCommit
from resources.catalog import Catalog

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.pipeline.audit import Finding
    from lakehouse.pipeline.batch_context import BatchContext
    from spark.decision import Decision
    from spark.write import Target


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


def keep(context: BatchContext, decided: Decision) -> None:
    """Make the table of dead letters hold, of a batch's offsets, exactly the letters that were decided on.

    Raises:
        UnclearState: Decoding again set other records aside. Nothing was published.
        AuditFailed: The letters are not whole. Nothing was published.
        CommitConflict: Another writer published letters meanwhile.
    """
    from spark import dead_letters
    from spark.decision import Decision

    topic, batch, namespace, catalog = context.topic, context.batch, context.namespace, context.clients.catalog
    name = naming.dead_letter_table(topic.table)
    table = load(catalog, namespace, topic)
    if table is None and not decided.count:
        return
    table = catalog.ensure_table(namespace, name, dead_letters.schema(), existing=table)
    before = Decision()
    if may_hold(table, batch):
        before = dead_letters.decision(context.spark.table(naming.spark_table(namespace, name)), batch)
    if before == decided:
        return

    def replace_letters(target: Target) -> None:
        if before.count:
            dead_letters.discard(context.spark, target, batch)
        if decided.count:
            records, how = context.decoded(headers=True), context.formats.decoding()
            written = dead_letters.of_batch(records, how, namespace, topic, batch)
            dead_letters.append(written, target.completing() if before.count else target)

    commit = StagedCommit(context.clients, namespace, name, table.metadata.current_snapshot_id, batch)
    stage, _ = commit.stage(table, replace_letters, {})

    def same_decision(*_: object) -> list[Finding]:
        written = dead_letters.decision(context.spark.table(stage.target.path), batch)
        if written != decided:
            raise UnclearState(
                f"Of '{topic.name}', {decided.count:,} records were dead letters when their batch was written, and "
                f"{written.count:,} (or others) when the letters were. Nothing of the batch was published. Run it "
                f"again, as a schema or the log may have changed meanwhile; if it stops again, correct the "
                f"quarantining check that does not always give the same answer for a record "
                f"(`lakehouse dead-letters {topic.name}`)"
            )
        return []

    counts = Counts(consumed=decided.count, rows=decided.count)
    commit.publish(commit.audit(stage, counts, batch.offsets, same_decision, writes=int(decided.count > 0)))


def may_hold(table: Table, batch: Batch) -> bool:
    """Return whether a file of the table may hold letters of a batch's offsets, by the statistics of its columns."""
    from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan, Or

    ranges = [
        And(
            EqualTo(term="source_record.partition", value=p),
            GreaterThanOrEqual(term="source_record.offset", value=batch.start[p]),
            LessThan(term="source_record.offset", value=end),
        )
        for p, end in batch.end.items()
        if end > batch.start[p]
    ]
    if table.current_snapshot() is None or not ranges:
        return False
    inside = ranges[0] if len(ranges) == 1 else Or(*ranges)
    return any(table.scan(row_filter=And(EqualTo(term="topic_id", value=batch.topic_id), inside)).plan_files())
