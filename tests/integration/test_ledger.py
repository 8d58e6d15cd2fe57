"""The ledger compared with real tables: differences between the broker and the table, and no other findings."""

import json
import os
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType

from lakehouse.core.offsets.batch import COUNTS, DECISION, REPLAY, TOKEN
from lakehouse.core.offsets.ledger import Range, totals
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


def test_reconcile_deleted_row_is_lost(resources):
    stream = Stream(resources)
    stream.produce_trades(range(200))
    ingest(stream)
    stream.produce_trades(range(200, 250))
    ingest(stream)
    victims = [(r["kafka_partition"], r["kafka_offset"]) for r in (stream.rows()[3], stream.rows()[-1])]
    for partition, offset in victims:
        sql(stream, f"DELETE FROM {{}} WHERE kafka_partition = {partition} AND kafka_offset = {offset}")

    assert check_ledger(resources.catalog, stream.namespace, stream.topic).is_consistent, "metadata alone cannot know"
    proof = reconciled(stream)

    assert positions(proof, "lost") == sorted(victims)
    assert [f.message.startswith("LOST") for f in proof.findings if f.kind == "lost"] == [True, True]
    assert {f.kind for f in proof.findings if not f.fault} == {"foreign"}


def test_reconcile_deleted_dead_letter_is_lost(resources):
    stream = Stream(resources, partitions=1)
    stream.schema()
    stream.produce([{"value": b"bad %d" % n} for n in range(5)])
    ingest(stream)
    sql(stream, "DELETE FROM {} WHERE source_record.offset = 2", f"{stream.topic.table}__dead_letters")

    proof = reconciled(stream)

    assert positions(proof, "lost") == [(0, 2)]
    assert "missing_dead_letters" in faults(proof)


def test_reconcile_duplicated_row_is_duplicate(resources):
    stream = Stream(resources)
    stream.produce_trades(range(60))
    ingest(stream)
    row = stream.rows()[7]
    position = row["kafka_partition"], row["kafka_offset"]
    where = f"kafka_partition = {position[0]} AND kafka_offset = {position[1]}"
    sql(stream, f"INSERT INTO {{0}} SELECT * FROM {{0}} WHERE {where}")

    proof = reconciled(stream)

    assert positions(proof, "duplicate") == [position]
    assert faults(proof) == ["duplicate", "surplus_rows"]


def test_reconcile_row_at_unknown_offset_is_reported(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    ingest(stream)
    sql(stream, "UPDATE {} SET kafka_offset = 777 WHERE kafka_offset = 4")

    proof = reconciled(stream)

    assert faults(proof) == ["lost", "lost_records", "missing_rows", "unknown_rows"]
    assert positions(proof, "lost") == [(0, 4)]


def test_reconcile_after_compaction_of_table_has_no_findings(resources):
    stream = Stream(resources)
    for n in range(3):
        stream.produce_trades(range(n * 40, n * 40 + 40))
        ingest(stream)
    table = f"{stream.namespace}.{stream.topic.table}"
    options = "map('rewrite-all', 'true')"
    sql(stream, f"CALL lake.system.rewrite_data_files(table => '{table}', options => {options})")

    proof = reconciled(stream, whole_log=True)

    assert [e.kind for e in proof.entries[1:]] == ["ingest", "ingest", "ingest", "foreign"]
    assert proof.entries[-1].added == proof.entries[-1].deleted == 120
    assert proof.findings == []


def test_reconcile_after_expiry_covers_remaining_snapshots(resources):
    stream = Stream(resources, partitions=2)
    for n in range(4):
        stream.produce_trades(range(n * 20, n * 20 + 20))
        ingest(stream)
    sql(
        stream,
        f"CALL lake.system.expire_snapshots(table => '{stream.namespace}.{stream.topic.table}', "
        "older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 2)",
    )

    proof = reconciled(stream, whole_log=True)

    assert [f.kind for f in proof.findings] == ["begins"]
    assert totals(proof.entries).rows == 40
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


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("DELETE FROM {} WHERE userid = 'User_3'", "lost"),
        ("UPDATE {} SET kafka_offset = 0 WHERE userid = 'User_3'", "lost"),
        ("INSERT INTO {0} SELECT * FROM {0} WHERE userid = 'User_3'", "duplicate_key"),
    ],
)
def test_reconcile_upsert_table_changed_by_hand_is_reported(resources, statement, kind):
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    stream.produce_trades(range(40))
    ingest(stream)
    stream.produce_trades(range(40, 60))
    stream.produce([{"key": b"User_1", "value": None}, {"key": b"User_2", "value": b"bad"}])
    ingest(stream)
    assert reconciled(stream, whole_log=True).findings == []
    newest = max(m.offset for m in stream.messages() if m.key == b"User_3")

    sql(stream, statement)
    proof = reconciled(stream, whole_log=True)

    assert kind in faults(proof)
    if kind == "lost":
        assert positions(proof, "lost") == [(0, newest)]


def test_reconcile_row_after_tombstone_is_reported(resources):
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    stream.produce_trades(range(9))
    ingest(stream)
    row = stream.rows()[0]
    stream.produce([{"key": row["userid"].encode(), "value": None}])
    ingest(stream)
    values = ", ".join(f"'{v}'" if isinstance(v, str) else str(v) for v in list(row.values())[:6])
    sql(stream, f"INSERT INTO {{}} SELECT {values}, 0, 0, current_timestamp(), 1")

    proof = reconciled(stream, whole_log=True)

    assert positions(proof, "not_deleted") == [(0, 9)]


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
    assert [h.rows for r, h in proof.letters.items() if isinstance(r, Range)] == [1]


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
