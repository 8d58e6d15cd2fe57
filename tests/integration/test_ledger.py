"""The ledger compared with real tables: differences between the broker and the table, and no other findings."""

import json
import os
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType

from lakehouse.core.offsets.ledger import OffsetRange, totals
from lakehouse.core.table_protocol import COUNTS, DECISION, REPLAY, TOKEN
from lakehouse.pipeline.ledger.reconciliation import check_ledger, reconcile
from resources.kafka.transactions import wait_until_visible
from tests.support.compaction import compact, set_compaction
from tests.support.ledger import ingest, sql
from tests.support.topics import TRADES, Stream, admin, framed, recreate, trade

SET = AlterConfigOpType.SET


def reconciled(stream, **options):
    return reconcile(stream.namespace, stream.topic, stream.systems, **options)


def faults(proof):
    return sorted({f.kind for f in proof.findings if f.fault})


def positions(proof, kind):
    return [(f.partition, f.offsets[0]) for f in proof.findings if f.kind == kind]


def transactional(stream, *values, commit=True):
    """Produce values to partition 0 in one transaction."""
    producer = Producer(
        {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "transactional.id": f"writer-{stream.name}"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.produce(stream.name, value, partition=0)
    producer.flush()
    producer.commit_transaction() if commit else producer.abort_transaction()


def test_reconcile_aborts_and_dead_letters_are_no_loss(resources):
    stream = Stream(resources, partitions=2)
    schema_id = stream.schema()
    good = [framed(schema_id, TRADES, trade(n)) for n in range(5)]
    transactional(stream, *good[:3])
    transactional(stream, *good, b"aborted too", commit=False)
    stream.produce([{"value": good[0], "partition": 1}, {"value": b"bad", "partition": 1}])
    wait_until_visible(resources.kafka, stream.name)
    ingest(stream)
    transactional(stream, good[4])
    stream.produce([{"value": b"worse", "partition": 0}, {"value": good[1], "partition": 1}])
    wait_until_visible(resources.kafka, stream.name)
    ingest(stream)

    proof = reconciled(stream, whole_log=True)

    assert proof.findings == []
    sums = totals(proof.entries)
    messages = stream.messages()
    assert sums.consumed == len(messages) == 8
    assert (sums.rows, sums.dead_letters) == (6, 2)
    assert [e.without_record for e in proof.entries if e.batch] == [8, 1]
    ranges = {(r.partition, r.start): rows for r, rows in proof.rows.items()}
    assert (ranges[0, 0].rows, ranges[0, 0].first, ranges[0, 0].last) == (3, 0, 2)


@pytest.fixture(scope="module")
def appended(resources):
    """A table of two batches, with dead letters."""
    stream = Stream(resources)
    stream.produce_trades(range(200))
    stream.produce([{"value": b"bad %d" % n, "partition": 0} for n in range(5)])
    ingest(stream)
    stream.produce_trades(range(200, 250))
    ingest(stream)
    return stream


@pytest.fixture(scope="module")
def upserted(resources):
    """A table of two batches in which rows were replaced, with a tombstone and a dead letter."""
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    stream.produce_trades(range(40))
    ingest(stream)
    stream.produce_trades(range(40, 60))
    stream.produce([{"key": b"User_1", "value": None}, {"key": b"User_2", "value": b"bad"}])
    ingest(stream)
    return stream


@contextmanager
def changed(stream, statement, table=""):
    """Run SQL on the stream's table, or on another one, and return to the snapshot before it at the end."""
    before = stream.table(table).current_snapshot().snapshot_id
    sql(stream, statement, table)
    try:
        yield
    finally:
        stream.table(table).manage_snapshots().rollback_to_snapshot(before).commit()


def position(row):
    return row["kafka_partition"], row["kafka_offset"]


def at(*rows):
    """Return the SQL condition that selects these rows."""
    return " OR ".join("kafka_partition = {} AND kafka_offset = {}".format(*position(row)) for row in rows)


def test_reconcile_deleted_row_is_lost(resources, appended):
    victims = [appended.rows()[3], appended.rows()[-1]]
    with changed(appended, f"DELETE FROM {{}} WHERE {at(*victims)}"):
        check = check_ledger(resources.catalog, appended.namespace, appended.topic)
        assert check.is_consistent, "metadata alone cannot know"
        proof = reconciled(appended)

    assert positions(proof, "lost") == sorted(map(position, victims))
    assert [f.message.startswith("LOST") for f in proof.findings if f.kind == "lost"] == [True, True]
    assert {f.kind for f in proof.findings if not f.fault} == {"foreign"}


def test_reconcile_deleted_dead_letter_is_lost(appended):
    letter = appended.dead_letters()[2]
    dead_letters = f"{appended.topic.table}__dead_letters"
    with changed(appended, f"DELETE FROM {{}} WHERE source_record.offset = {letter['kafka_offset']}", dead_letters):
        proof = reconciled(appended)

    assert positions(proof, "lost") == [position(letter)]
    assert "missing_dead_letters" in faults(proof)


def test_reconcile_duplicated_row_is_duplicate(appended):
    row = appended.rows()[7]
    with changed(appended, f"INSERT INTO {{0}} SELECT * FROM {{0}} WHERE {at(row)}"):
        proof = reconciled(appended)

    assert positions(proof, "duplicate") == [position(row)]
    assert faults(proof) == ["duplicate", "surplus_rows"]


def test_reconcile_row_at_unknown_offset_is_reported(appended):
    row = appended.rows()[4]
    with changed(appended, f"UPDATE {{}} SET kafka_offset = 777 WHERE {at(row)}"):
        proof = reconciled(appended)

    assert faults(proof) == ["lost", "lost_records", "missing_rows", "unknown_rows"]
    assert positions(proof, "lost") == [position(row)]


def test_reconcile_after_compaction_and_expiry_has_no_faults(resources):
    stream = Stream(resources, partitions=2)
    for n in range(4):
        stream.produce_trades(range(n * 20, n * 20 + 20))
        ingest(stream)
    table = f"table => '{stream.namespace}.{stream.topic.table}'"
    options = "map('rewrite-all', 'true')"
    sql(stream, f"CALL lake.system.rewrite_data_files({table}, options => {options})")

    compacted = reconciled(stream, whole_log=True)
    old = "older_than => TIMESTAMP '2099-01-01 00:00:00'"
    sql(stream, f"CALL lake.system.expire_snapshots({table}, {old}, retain_last => 3)")
    expired = reconciled(stream, whole_log=True)

    assert [e.kind for e in compacted.entries[1:]] == [*["ingest"] * 4, "foreign"]
    assert compacted.entries[-1].added == compacted.entries[-1].deleted == 80
    assert compacted.findings == []
    assert [f.kind for f in expired.findings] == ["begins"]
    assert totals(expired.entries).rows == 40
    assert len(stream.rows()) == 80


def test_reconcile_expired_records_are_no_loss(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(30))
    ingest(stream)
    for deleted in admin().delete_records([TopicPartition(stream.name, 0, 10)]).values():
        deleted.result()

    proof = reconciled(stream, whole_log=True)

    assert [(f.kind, f.fault) for f in proof.findings] == [("log_begins_later", False)]
    assert "10 offsets" in proof.findings[0].message


def test_reconcile_records_removed_by_compaction_are_no_loss(resources):
    """Compact the topic both before and after the ingestion."""
    stream = Stream(resources, partitions=1)
    set_compaction(stream)
    stream.produce_trades(range(60))
    compact(stream, lambda: len(stream.messages()) < 60)
    ingest(stream)
    stream.produce_trades(range(60))
    ingest(stream)
    rows = len(stream.rows())
    compact(stream, lambda: len(stream.messages()) < rows)

    proof = reconciled(stream, whole_log=True)

    assert proof.findings == []
    assert proof.entries[1].without_record > 0
    assert totals(proof.entries).rows == len(stream.rows()) > len(stream.messages())


def test_reconcile_record_missing_from_all_counts_is_lost(resources):
    """Make the counts, the rows and the token agree, although all of them lack a record."""
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    [published] = ingest(stream)
    sql(stream, "DELETE FROM {} WHERE kafka_offset = 6")
    counts = {"consumed": 9, "rows": 9}
    with stream.table().transaction() as transaction:
        transaction.set_properties({COUNTS: json.dumps({str(published.snapshot_id): counts})})

    proof = reconciled(stream, whole_log=True)

    assert {"never_read", "lost"} <= set(faults(proof))
    assert positions(proof, "lost") == [(0, 6)]


def test_reconcile_upsert_table_has_no_findings(upserted):
    assert reconciled(upserted, whole_log=True).findings == []


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("DELETE FROM {} WHERE userid = 'User_3'", "lost"),
        ("INSERT INTO {0} SELECT * FROM {0} WHERE userid = 'User_3'", "duplicate_key"),
    ],
)
def test_reconcile_upsert_table_changed_by_hand_is_reported(upserted, statement, kind):
    newest = max(m.offset for m in upserted.messages() if m.key == b"User_3")

    with changed(upserted, statement):
        proof = reconciled(upserted, whole_log=True)

    assert kind in faults(proof)
    if kind == "lost":
        assert positions(proof, "lost") == [(0, newest)]


def test_reconcile_row_after_tombstone_is_reported(upserted):
    [tombstone] = [m.offset for m in upserted.messages() if m.value is None]
    values = ", ".join(map(repr, trade(0, userid="User_1").values()))
    with changed(upserted, f"INSERT INTO {{}} SELECT {values}, 0, 0, current_timestamp(), 1"):
        proof = reconciled(upserted, whole_log=True)

    assert positions(proof, "not_deleted") == [(0, tombstone)]


def test_reconcile_recreated_topic_ignores_old_dead_letters(resources):
    stream = Stream(resources, partitions=1)
    stream.schema()
    stream.produce([{"value": b"old 1"}, {"value": b"old 2"}])
    ingest(stream)
    recreate(stream)
    resources.catalog.iceberg().drop_table((stream.namespace, stream.topic.table))
    stream.produce([{"value": b"new 1"}])
    ingest(stream)

    proof = reconciled(stream, whole_log=True)

    assert proof.findings == []
    assert [h.rows for r, h in proof.letters.items() if isinstance(r, OffsetRange)] == [1]
    assert sorted(letter["value"] for letter in stream.dead_letters()) == [b"new 1", b"old 1", b"old 2"]


def commit(stream, rows, **properties):
    """Commit rows (an Arrow table) with summary properties to main, as another tool would; return the snapshot id."""
    table = stream.table()
    table.append(rows, snapshot_properties=properties)
    return table.current_snapshot().snapshot_id


def no_rows(stream):
    return stream.table().scan().to_arrow().slice(0, 0)


def token(stream, start, end, **changes):
    """Return the token of the newest ingest commit with other offsets."""
    last = [e.batch for e in check_ledger(stream.resources.catalog, stream.namespace, stream.topic).entries if e.batch][
        -1
    ]
    return replace(last, start=start, end=end, **changes).to_json()


def test_check_ledger_commit_with_skipped_offsets_is_gap(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    ingest(stream)
    commit(stream, no_rows(stream), **{TOKEN: token(stream, {0: 13}, {0: 13})})
    stream.produce_trades(range(10, 20))
    ingest(stream)

    gaps = [f for f in check_ledger(resources.catalog, stream.namespace, stream.topic).findings if f.kind == "gap"]

    assert [(f.partition, f.offsets) for f in gaps] == [(0, (10, 12))]
    assert [row["kafka_offset"] for row in stream.rows()] == [*range(10), *range(13, 20)]


def test_reconcile_skipped_by_decision_is_no_loss(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    ingest(stream)
    stream.produce_trades(range(10, 30))
    commit(stream, no_rows(stream), **{TOKEN: token(stream, {0: 10}, {0: 15}), DECISION: '{"reason": "poison"}'})
    ingest(stream)

    proof = reconciled(stream, whole_log=True)

    assert [(f.kind, f.fault) for f in proof.findings] == [("decision", False)]
    assert "skipped 5 offsets" in proof.findings[0].message
    assert len(stream.rows()) == 25


def test_reconcile_replayed_dead_letter_is_row_once(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    stream.produce([{"value": b"bad 1"}, {"value": b"bad 2"}])
    ingest(stream)
    rows = stream.table().scan(limit=1).to_arrow()
    at = rows.schema.get_field_index("kafka_offset")
    replayed = rows.set_column(at, rows.schema.field(at), pa.array([10], pa.int64()))
    commit(stream, replayed, **{REPLAY: "{}"})
    assert reconciled(stream, whole_log=True).findings == []
    sql(stream, "DELETE FROM {} WHERE source_record.offset = 10", f"{stream.topic.table}__dead_letters")
    assert reconciled(stream, whole_log=True).findings == []

    commit(stream, replayed, **{REPLAY: "{}"})
    assert positions(reconciled(stream), "duplicate") == [(0, 10)]


def test_reconcile_offsets_of_recreated_topic_are_shared(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    ingest(stream)
    recreate(stream)
    stream.produce_trades(range(6))
    topic_id = resources.kafka.describe([stream.name])[stream.name].topic_id
    decided = token(stream, {0: 10}, {0: 0}, topic_id=topic_id)
    commit(stream, no_rows(stream), **{TOKEN: decided, DECISION: '{"reason": "recreated"}'})
    assert {f.kind for f in reconciled(stream, whole_log=True).findings} == {"decision", "log_of_another_topic"}
    ingest(stream)

    proof = reconciled(stream, whole_log=True)

    assert {(f.kind, f.fault) for f in proof.findings} >= {("decision", False), ("shared_offsets", False)}
    assert proof.is_consistent
    assert len(stream.rows()) == 16
