"""Reconcile a topic's ledger with the rows of its table, its dead letters and the topic's log. No Dagster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.table import Table

from lakehouse.config.model import Topic
from lakehouse.config.sensitive import visible_columns
from lakehouse.core.offsets import ledger
from lakehouse.core.offsets.batch import Batch, Log
from lakehouse.core.offsets.ledger import Entry, LedgerFinding, OffsetRange, RangeContents
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.batches.positions import read_log
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.dead_letters import letters
from lakehouse.pipeline.engine_values import (
    Contents,
    DuplicateKeys,
    Duplicates,
    KnownRows,
    LetterPlaces,
    Logged,
    LogRange,
    Places,
    RowPlaces,
    WrongNewest,
)
from lakehouse.pipeline.ledger.ledger_entries import read_ledger
from lakehouse.pipeline.schemas import recorded_settings
from lakehouse.pipeline.schemas.decoding import resolve_schemas
from lakehouse.pipeline.schemas.schema_decision import decide_schema
from resources.iceberg.catalog import Catalog


@dataclass(frozen=True)
class ReconciliationReport:
    """A ledger, and the findings of its reconciliation.

    Attributes:
        entries: The commits of the table, oldest first.
        findings: Faults and notes.
        rows: The rows of the table in each range of offsets; empty if the table was not read.
        letters: The dead letters in each range; empty if their table was not read.
    """

    entries: list[Entry]
    findings: list[LedgerFinding]
    rows: Mapping[OffsetRange | None, RangeContents] = field(default_factory=dict)
    letters: Mapping[OffsetRange | None, RangeContents] = field(default_factory=dict)

    @property
    def is_consistent(self) -> bool:
        """True if no finding is a fault."""
        return not ledger.faults_of(self.findings)


def check_ledger(catalog: Catalog, namespace: str, topic: Topic) -> ReconciliationReport:
    """Check the ledger for internal consistency, from metadata only.

    Raises:
        Unreachable: The catalog does not answer.
    """
    _, table = catalog.chain(topic.table_in(namespace)).newest
    entries = read_ledger(table) if table else []
    return ReconciliationReport(entries, ledger.findings(entries))


def reconcile(namespace: str, topic: Topic, clients: Clients, *, whole_log: bool = False) -> ReconciliationReport:
    """Compare the ledger with the rows and dead letters, and with the log if some of them are missing.

    Args:
        namespace: The namespace of the table.
        topic: The topic.
        clients: Clients of the systems.
        whole_log: Whether to compare with everything in the log, which reads the topic once.

    Raises:
        IncompatibleSettings: The rows were made with other settings, so it is unknown which the table should have.
        LakehouseError: The log is needed, but the topic does not exist.
        Unreachable: A system does not answer.
    """
    ref, table = clients.catalog.chain(topic.table_in(namespace)).newest
    entries = read_ledger(table) if table else []
    findings = ledger.findings(entries)
    if table is None or table.metadata.current_snapshot_id is None:
        return ReconciliationReport(entries, findings)
    recorded_settings.require_same(topic, table)
    count = clients.engine.count
    key = () if topic.mode == "append" else topic.key
    rows = RowPlaces(ref, table.metadata.current_snapshot_id, topic.metadata.names, key)
    # Read after the table: dead letters are published before their batch, and those of a later batch are in no range.
    dead_letters = _dead_letters(clients.catalog, topic, ref.dead_letters, entries)
    topic_ranges = ledger.ranges(entries)
    ranges = [*topic_ranges, *ledger.uncounted_ranges(entries)]
    row_counts = count(Contents([rows], ranges))
    letter_counts = count(Contents([dead_letters], ranges)) if dead_letters else {}
    append = topic.mode == "append"
    replayed = any(entry.kind == "replay" for entry in entries)
    both: list[Places] = [rows, dead_letters] if dead_letters else [rows]
    combined_counts = count(Contents(both, ranges)) if not topic.replaces_rows and replayed else None
    findings += ledger.held_findings(
        entries, row_counts, letter_counts, combined_counts, append=not topic.replaces_rows
    )
    topics = len({r.topic for r in topic_ranges}) if ledger.snapshots_with_shared_offsets(topic_ranges) else 1
    for label, places, held in (("rows", rows, row_counts), ("dead letters", dead_letters, letter_counts)):
        if places is not None and any(h.rows != h.distinct for h in held.values()):
            findings += ledger.duplicate_findings(count(Duplicates(places, topics)), label)
    if not append:
        findings += ledger.key_findings(count(DuplicateKeys(rows, visible_columns(topic, table))))
    incomplete = {f.snapshot_id for f in findings if f.kind.startswith("missing_")}
    if suspect_ranges := [r for r in topic_ranges if whole_log or r.snapshot_id in incomplete]:
        findings += _ask_log(clients, topic, table, entries, suspect_ranges, rows, dead_letters)
    return ReconciliationReport(entries, findings, row_counts, letter_counts)


def _ask_log(
    clients: Clients,
    topic: Topic,
    table: Table,
    entries: Sequence[Entry],
    ranges: Sequence[OffsetRange],
    rows: RowPlaces,
    dead_letters: LetterPlaces | None,
) -> list[LedgerFinding]:
    """Return findings about records in the log that have no outcome, as far back as the log goes."""
    log = read_log(clients.kafka, topic.topic)
    current = [r for r in ranges if r.topic == log.identity]
    notes = []
    if len(current) < len(ranges):
        message = f"Topic '{topic.topic}' was recreated: its log has no records of the previous topic"
        notes.append(LedgerFinding("log_of_another_topic", message, fault=False))
    if deleted := sum(max(0, min(r.end, log.start.get(r.partition, r.end)) - r.start) for r in current):
        message = f"The log begins later than the ledger: {deleted:,} offsets cannot be compared with it"
        notes.append(LedgerFinding("log_begins_later", message, fault=False))
    batch = _readable(current, ledger.ranges(entries), log)
    if not batch.offsets:
        return notes
    both: list[Places] = [rows, dead_letters] if dead_letters else [rows]
    logged = clients.engine.count(Logged(batch, current, both if topic.mode == "append" else []))
    findings = ledger.log_findings(entries, *logged)
    if topic.replaces_rows:
        schemas = decide_schema(topic, resolve_schemas(clients.schema_registry, topic), table).schemas
        known = KnownRows(rows.ref, rows.snapshot_id, topic.metadata.place, batch, has_batch=True)
        decoding = replace(schemas.decoding(len(log.end)), known=known)
        decided = clients.engine.decide(LogRange(batch), decoding)
        wrong_newest = clients.engine.count(WrongNewest(decided, dead_letters, rows))
        findings += ledger.newest_findings(wrong_newest)
    return notes + findings


def _readable(requested: Sequence[OffsetRange], ranges: Sequence[OffsetRange], log: Log) -> Batch:
    """Return the batch from the first requested offset to the last one in the table, limited to what the log still
    has."""
    first = {r.partition: r.start for r in sorted(requested, key=lambda r: -r.start)}
    last = {r.partition: r.end for r in sorted(ranges, key=lambda r: r.end) if r.topic == log.identity}
    end = {p: min(last[p], log.end[p]) for p in first if p in log.end}
    start = {p: min(max(first[p], log.start[p]), end[p]) for p in end}
    return Batch(log.cluster_id, log.topic, log.topic_id, start, end)


def _dead_letters(catalog: Catalog, topic: Topic, ref: TableRef, entries: Sequence[Entry]) -> LetterPlaces | None:
    """Return the dead letters of the topics in the ledger; None if there is no table of them.

    Those of a topic that was recreated before the table was created are left out: the new topic reuses their offsets.

    Raises:
        UnclearState: The dead letters do not record their topic id.
    """
    table = letters.load(catalog, topic, ref)
    if table is None or table.metadata.current_snapshot_id is None:
        return None
    topic_ids = {e.batch.topic_id for e in entries if e.batch}
    return LetterPlaces(ref, table.metadata.current_snapshot_id, topic_ids)
