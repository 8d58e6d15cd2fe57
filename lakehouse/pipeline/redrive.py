"""Decode dead letters again; those that decode become rows. Repeating it changes nothing."""

from dataclasses import dataclass, replace
from functools import partial

from lakehouse.config.model import Topic
from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.batch import Counts, Log
from lakehouse.core.text import pluralize
from lakehouse.pipeline import rewriting
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.batches.poison import aborting_record, listed, report_aborted
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.dead_letters import letters
from lakehouse.pipeline.engine import Decided, LetterAttempt
from lakehouse.pipeline.engine_values import Confirmed, JobFailed, Place, Redecided, WaitingLetters
from lakehouse.pipeline.rewriting import Rewrite
from lakehouse.pipeline.schemas import foreign_writers
from resources.iceberg.reservation import in_turn

MOST_NAMED = 10
"""Maximum number of dead letters that a redrive names."""


@dataclass(frozen=True)
class Redriven:
    """Result of a redrive.

    Attributes:
        attempted: Number of dead letters that were decoded again.
        recovered: Number of them that are no dead letters any more.
        gone: Number of those that decode, and remain because their records were not read again.
        first_gone: The partitions and offsets of the first of the latter.
        aborting: Records whose decoding aborts the Spark job, so that no earlier ones of their partitions were read.
        deduplicated: Number of those that decode and add no row, because the table has their key.
        filtered: Number of those that decode and add no row, because they are of another type than the table's.
    """

    attempted: int
    recovered: int
    gone: int = 0
    first_gone: tuple[Place, ...] = ()
    aborting: tuple[Place, ...] = ()
    deduplicated: int = 0
    filtered: int = 0

    def describe(self) -> str:
        """Return the result as a sentence."""
        rows = pluralize(self.recovered - self.deduplicated - self.filtered, "new row")
        text = f"{pluralize(self.attempted, 'dead letter')} decoded again: {rows}"
        if self.deduplicated:
            text += f", and {pluralize(self.deduplicated, 'record')} with a key that the table has"
        if self.filtered:
            text += f", and {pluralize(self.filtered, 'record')} of a type that belongs to another table"
        if not self.gone:
            return text
        more = f", and {self.gone - len(self.first_gone):,} more" if self.gone > len(self.first_gone) else ""
        text += f". No row for {pluralize(self.gone, 'decodable dead letter')} ({listed(self.first_gone)}{more}): "
        if not self.aborting:
            return f"{text}the broker deleted the record, and perhaps a newer one of its key"
        return (
            f"{text}the broker deleted the record, or a later one aborts the Spark job ({listed(self.aborting)}), and "
            f"perhaps a newer one of its key. Give Spark what that one needs, such as more memory, and run "
            f"`lakehouse redrive` again"
        )


def redrive(namespace: str, topic: Topic, clients: Clients, *, poison: bool = False) -> Redriven:
    """Decode the table's dead letters again; those that decode become rows with their original offsets.

    In a table where a record replaces the row of its key, a dead letter remains if neither its record nor a later one
    of its key is read again: one that the broker deleted, or that aborts the job, may have replaced its row.

    Args:
        namespace: The namespace of the table.
        topic: The topic.
        clients: Clients of the systems.
        poison: Whether to decode the records whose decoding aborted the Spark job, too.

    Raises:
        UnclearState: The table has rows of a topic that was recreated, or the topic was recreated meanwhile.
        CommitConflict: Writers that do not yield to commands kept changing the table or the dead letters.
        TransientError: The Spark job was aborted, for example by a poisonous record, or the broker compacted the topic.
    """
    others = f", or run `lakehouse redrive {topic.name}` without --poison for the others" if poison else ""
    remedy = f"Give Spark what the records need, such as more memory for its executors{others}"
    with report_aborted(topic, "No dead letter was marked as recovered, and published rows are complete", remedy):
        attempt = partial(_redrive, namespace, topic, clients, poison)
        return in_turn(clients.catalog, topic.table_in(namespace), f"redrive {topic.name}", attempt)


def _redrive(namespace: str, topic: Topic, clients: Clients, poison: bool) -> Redriven:
    ref = clients.catalog.chain(topic.table_in(namespace)).newest[0].dead_letters
    letter_table = letters.load(clients.catalog, topic, ref)
    snapshot = letter_table.current_snapshot() if letter_table else None
    if snapshot is None:
        return Redriven(0, 0)
    log, begin, context = rewriting.ingested(namespace, topic, clients, in_place=True)
    position, engine = context.batch, context.engine
    # Every step reads one snapshot: a dead letter added meanwhile must not be marked as recovered.
    # Which rows of the table before a roll-over a dead letter would replace is unknown: their columns differ.
    since = begin if topic.replaces_rows else {}
    waiting = WaitingLetters(ref, snapshot.snapshot_id, position, since, poison)
    context = context.with_foreign_writers(
        engine.decide(waiting, context.decoding(again=True)), foreign_writers.BY_HAND
    )
    # A dead letter whose schema id exceeded the lookup limit remains one.
    context = replace(context, schemas=replace(context.schemas, unusable_ids=None))
    decided = engine.decide(waiting, context.decoding(again=True))
    attempt = engine.letters.attempt(Redecided(decided, topic.key if topic.replaces_rows else ()))
    count, decodable = attempt.count, attempt.count - attempt.remaining.count
    aborting: list[Place] = []
    counts = Counts()
    if decodable and topic.replaces_rows:
        attempt, aborting = _replace_rows(context, log, attempt, poison)
    elif decodable:
        counts = _add_rows(context, decided, attempt)
    if count:
        letters.mark(clients, topic, ref, attempt, position.topic_id, position)
    recovered = count - attempt.remaining.count
    gone = decodable - recovered
    first_gone = attempt.without_record(MOST_NAMED) if gone else []
    places = tuple(first_gone), tuple(aborting) if gone else ()
    return Redriven(count, recovered, gone, *places, counts.deduplicated, counts.filtered)


def _add_rows(context: BatchContext, decided: Decided, attempt: LetterAttempt) -> Counts:
    """Add the rows of dead letters, exactly those that were decided on, and return the outcomes of all dead letters.

    Raises:
        AuditFailed: The rows did not pass their audit.
        CommitConflict: Another writer published meanwhile.
        UnclearState: Other records decode by now, or the topic was recreated.
    """
    remaining = attempt.remaining
    # Partitions without a dead letter have no row to check.
    since = dict(context.batch.end) | attempt.first_offsets()
    rewrite = Rewrite([decided], attempt.count, since, {"dead_letters": attempt.count - remaining.count})
    staged = rewriting.stage(context, rewrite)
    dead = staged.written.dead
    if dead != remaining:
        raise UnclearState(
            f"{remaining.count:,} dead letters of '{context.topic.name}' did not decode, but {dead.count:,} (or "
            f"others) did not decode when the rows were written. Nothing was changed. Run `lakehouse redrive` again; "
            f"if it fails again, correct the quarantining check that is not deterministic"
        )
    context.commit.publish(rewriting.audit(context, rewrite, staged))
    return staged.written.counts


def _replace_rows(
    context: BatchContext, log: Log, attempt: LetterAttempt, poison: bool
) -> tuple[LetterAttempt, list[Place]]:
    """Write the rows of the log from the first dead letter on.

    A newer record may have replaced or deleted the row of a dead letter since, so the log must be read from there on.

    Returns:
        The dead letters that have become rows, and the records whose decoding aborts the Spark job.
    """
    first = dict(context.batch.end) | attempt.first_offsets()
    since = {p: max(o, log.start[p]) for p, o in first.items()}
    return _write_since(replace(context, batch=replace(context.batch, start=since)), attempt, poison)


def _write_since(context: BatchContext, attempt: LetterAttempt, poison: bool) -> tuple[LetterAttempt, list[Place]]:
    """Write the rows of a range again, in each partition after the last record whose decoding aborts the Spark job.

    An operator skipped such a record, which may have the key of any record before it.

    Returns:
        The dead letters that have become rows, and those records.
    """
    aborting: list[Place] = []
    context = context if poison else replace(context, left_out=letters.poisonous_records(context))
    while True:
        try:
            with context.keeping_records() as kept:
                return _written(kept, attempt), aborting
        except JobFailed:
            place = None if poison else aborting_record(context)
            if place is None:
                raise
            partition, offset = place
            aborting.append(place)
            batch = context.batch
            context = replace(context, batch=replace(batch, start={**batch.start, partition: offset + 1}))


def _written(context: BatchContext, attempt: LetterAttempt) -> LetterAttempt:
    """Write the rows of a range again, and return the dead letters that have become rows."""
    context, rewrite = rewriting.of_range(context)
    if rewrite.pieces:
        rewriting.publish_range(context, rewrite)
    topic = context.topic
    confirmed = Confirmed(attempt, rewrite.pieces, context.ref, topic.key, topic.metadata.place)
    return context.engine.letters.attempt(confirmed)
