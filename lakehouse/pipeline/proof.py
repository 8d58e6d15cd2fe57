"""A topic's ledger against what the table, its dead letters and the topic's log hold. Nothing here knows of Dagster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakehouse.config.sensitive import shown
from lakehouse.config.topic import Topic
from lakehouse.core import ledger, ledger_findings, naming
from lakehouse.core.batch import Batch, Log
from lakehouse.core.ledger import Entry, Held, Range
from lakehouse.core.ledger_findings import Finding
from lakehouse.pipeline import letters
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import read_log
from lakehouse.pipeline.ledger_entries import read_ledger
from resources.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Proof:
    """A ledger and what was found. `rows` and `letters` are what each range holds, where the tables were read."""

    entries: list[Entry]
    findings: list[Finding]
    rows: Mapping[Range | None, Held] = field(default_factory=dict)
    letters: Mapping[Range | None, Held] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether everything adds up."""
        return not ledger_findings.unsound(self.findings)


def check(catalog: Catalog, namespace: str, topic: Topic) -> Proof:
    """The ledger against itself: metadata only.

    Raises: Unreachable.
    """
    _, table = catalog.resolve_table(namespace, topic)
    entries = read_ledger(table) if table else []
    return Proof(entries, ledger_findings.findings(entries))


def prove(namespace: str, topic: Topic, systems: Clients, *, whole_log: bool = False) -> Proof:
    """The ledger against the rows and dead letters there are, and against the log where some are missing.

    Parameters: `whole_log` asks the log about everything it still holds, which reads the topic once.
    Raises: Unreachable; LakehouseError when the log is to be asked and the topic is gone.
    """
    from spark.derive import published
    from spark.ledger import duplicate_keys, duplicates, held, places, together

    topic, table = systems.catalog.resolve_table(namespace, topic)
    entries = read_ledger(table) if table else []
    found = ledger_findings.findings(entries)
    if table is None or table.metadata.current_snapshot_id is None:
        return Proof(entries, found)
    spark = systems.spark.session(systems.catalog.spark_settings())
    snapshot = published(spark, namespace, topic.table, table.metadata.current_snapshot_id, {})
    frame = places(snapshot, topic.metadata.names, () if topic.mode == "append" else topic.key)
    # Read after the table: dead letters are published first, and those of a later batch are in no range.
    letters = _dead_letters(spark, systems.catalog, namespace, topic, entries)
    own = ledger.ranges(entries)
    ranges = [*own, *ledger.beside(entries)]
    rows = held(frame, ranges)
    set_aside = held(letters, ranges) if letters is not None else {}
    append = topic.mode == "append"
    replayed = any(entry.kind == "replay" for entry in entries)
    either = held(together([frame, letters]), ranges) if not topic.replaces and replayed else None
    found += ledger_findings.held_findings(entries, rows, set_aside, either, append=not topic.replaces)
    topics = len({r.topic for r in own}) if ledger.shared(own) else 1
    for what, frame_, counted in (("rows", frame, rows), ("dead letters", letters, set_aside)):
        if frame_ is not None and any(h.rows != h.distinct for h in counted.values()):
            found += ledger_findings.duplicate_findings(duplicates(frame_, topics), what)
    if not append:
        found += ledger_findings.key_findings(duplicate_keys(frame, topic.key, shown(topic, table)))
    short = {f.snapshot_id for f in found if f.kind.startswith("missing_")}
    if asked := [r for r in own if whole_log or r.snapshot_id in short]:
        found += _ask_log(spark, systems, topic, entries, asked, frame, letters)
    return Proof(entries, found, rows, set_aside)


def _ask_log(
    spark: SparkSession,
    systems: Clients,
    topic: Topic,
    entries: Sequence[Entry],
    asked: Sequence[Range],
    frame: DataFrame,
    letters: DataFrame | None,
) -> list[Finding]:
    """Whether records in the log have no outcome, as far as it goes back."""
    from lakehouse.pipeline.codecs import formats
    from spark.decode import decode
    from spark.ledger import logged, together, wrong_newest
    from spark.records import read_range

    log = read_log(systems.kafka, topic.topic)
    now = [r for r in asked if r.topic == ledger.identity(log)]
    notes = []
    if len(now) < len(asked):
        said = (
            f"Topic '{topic.topic}' was recreated: its log cannot be asked about what the table has of the one before"
        )
        notes.append(Finding("log_of_another_topic", said, fault=False))
    if gone := sum(max(0, min(r.end, log.start.get(r.partition, r.end)) - r.start) for r in now):
        said = f"The log begins later than the ledger: it cannot be asked about {gone:,} offsets"
        notes.append(Finding("log_begins_later", said, fault=False))
    batch = _readable(now, ledger.ranges(entries), log)
    if not batch.offsets:
        return notes
    options = systems.kafka.spark_options()
    outcomes = together([frame, letters]) if topic.mode == "append" else None
    found = ledger_findings.log_findings(entries, *logged(read_range(spark, options, batch), now, outcomes))
    if topic.replaces:
        decoded = decode(read_range(spark, options, batch), formats(systems.schema_registry, topic).decoding())
        found += ledger_findings.newest_findings(wrong_newest(decoded, letters, frame, topic.key))
    return notes + found


def _readable(asked: Sequence[Range], ranges: Sequence[Range], log: Log) -> Batch:
    """One range from the first offset asked for to the last that the table has, of what the log still holds."""
    first = {r.partition: r.start for r in sorted(asked, key=lambda r: -r.start)}
    last = {r.partition: r.end for r in sorted(ranges, key=lambda r: r.end) if r.topic == ledger.identity(log)}
    end = {p: min(last[p], log.end[p]) for p in first if p in log.end}
    start = {p: min(max(first[p], log.start[p]), end[p]) for p in end}
    return Batch(log.cluster_id, log.topic, log.topic_id, start, end)


def _dead_letters(
    spark: SparkSession, catalog: Catalog, namespace: str, topic: Topic, entries: Sequence[Entry]
) -> DataFrame | None:
    """The dead letters of the topics in the ledger; None when there is no table of them.

    Those of a topic that was recreated before the table was made are left out: they have offsets like the new one's.

    Raises: UnclearState when they do not say which topic they are from.
    """
    from spark.dead_letters import places
    from spark.derive import published

    table = letters.load(catalog, namespace, topic)
    if table is None or table.metadata.current_snapshot_id is None:
        return None
    name, known = naming.dead_letter_table(topic.table), {e.batch.topic_id for e in entries if e.batch}
    there = published(spark, namespace, name, table.metadata.current_snapshot_id, {})
    return places(there.filter(there["topic_id"].isin(*known)))
