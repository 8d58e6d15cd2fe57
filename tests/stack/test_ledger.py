"""The ledger of real tables: what the broker has and the table has not is named, and nothing else."""

import json
import os

import pytest
from confluent_kafka import Producer
from support import TRADES, Stream, framed, trade

from assets.proof import check, prove
from lakehouse import ledger
from lakehouse.ledger import COUNTS, Range, totals


def ingest(stream):
    """Ingest, and note the counts as publications do."""
    published = stream.ingest()
    table = stream.table()
    counts = json.loads(table.properties.get(COUNTS, "{}"))
    for batch in published:
        found = {name: getattr(batch.counts, name, 0) for name in ledger.Counts.__dataclass_fields__}
        counts.setdefault(str(batch.snapshot_id), found)
    with table.transaction() as transaction:
        transaction.set_properties({COUNTS: json.dumps(counts)})
    return published


def spark(stream):
    r = stream.resources
    return r.spark.session(r.catalog.spark_settings())


def sql(stream, statement, name=None):
    """Run SQL on the stream's table, as `{}`."""
    table = f"lake.{stream.namespace}.`{name or stream.topic.table}`"
    return spark(stream).sql(statement.format(table)).collect()


def deep(stream, **options):
    return prove(stream.namespace, stream.topic, stream.systems, **options)


def kinds(proof):
    return sorted({f.kind for f in proof.findings if f.fault})


def places(proof, kind):
    return [(f.partition, f.offsets[0]) for f in proof.findings if f.kind == kind]


def transactional(stream, *values, commit=True):
    """One transaction on partition 0."""
    producer = Producer(
        {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "transactional.id": f"writer-{stream.name}"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.produce(stream.name, value, partition=0)
    producer.flush()
    producer.commit_transaction() if commit else producer.abort_transaction()


def test_markers_aborts_and_dead_letters_are_no_loss(resources):
    stream = Stream(resources, partitions=2)
    schema_id = stream.schema()
    good = [framed(schema_id, TRADES, trade(n)) for n in range(5)]
    transactional(stream, *good[:3])
    transactional(stream, *good, b"aborted too", commit=False)
    stream.produce([{"value": good[0], "partition": 1}, {"value": b"bad", "partition": 1}])
    resources.kafka._settle(stream.name)
    ingest(stream)
    transactional(stream, good[4])
    stream.produce([{"value": b"worse", "partition": 0}, {"value": good[1], "partition": 1}])
    resources.kafka._settle(stream.name)
    ingest(stream)

    proof = deep(stream, whole_log=True)

    assert proof.findings == []
    counted = totals(proof.entries)
    messages = stream.messages()
    assert counted.consumed == len(messages) == 8
    assert (counted.rows, counted.dead_letters) == (6, 2)
    assert [e.without_record for e in proof.entries if e.batch] == [8, 1]
    held = {(r.partition, r.start): h for r, h in proof.rows.items()}
    assert (held[0, 0].rows, held[0, 0].first, held[0, 0].last) == (3, 0, 2)


def test_a_row_that_is_deleted_by_hand_is_named_as_lost(resources):
    stream = Stream(resources)
    stream.produce_trades(range(200))
    ingest(stream)
    stream.produce_trades(range(200, 250))
    ingest(stream)
    victims = [(r["kafka_partition"], r["kafka_offset"]) for r in (stream.rows()[3], stream.rows()[-1])]
    for partition, offset in victims:
        sql(stream, f"DELETE FROM {{}} WHERE kafka_partition = {partition} AND kafka_offset = {offset}")

    assert check(resources.catalog, stream.namespace, stream.topic).holds, "metadata alone cannot know"
    proof = deep(stream)

    assert places(proof, "lost") == sorted(victims)
    assert [f.said.startswith("LOST") for f in proof.findings if f.kind == "lost"] == [True, True]
    assert {f.kind for f in proof.findings if not f.fault} == {"foreign"}


def test_a_dead_letter_that_is_deleted_by_hand_is_named_as_lost(resources):
    stream = Stream(resources, partitions=1)
    stream.schema()
    stream.produce([{"value": b"bad %d" % n} for n in range(5)])
    ingest(stream)
    sql(stream, "DELETE FROM {} WHERE kafka_offset = 2", f"{stream.topic.table}__dead_letters")

    proof = deep(stream)

    assert places(proof, "lost") == [(0, 2)]
    assert "missing_dead_letters" in kinds(proof)


def test_a_row_that_is_doubled_by_hand_is_named(resources):
    stream = Stream(resources)
    stream.produce_trades(range(60))
    ingest(stream)
    row = stream.rows()[7]
    place = row["kafka_partition"], row["kafka_offset"]
    sql(stream, f"INSERT INTO {{0}} SELECT * FROM {{0}} WHERE (kafka_partition, kafka_offset) = {place}")

    proof = deep(stream)

    assert places(proof, "duplicate") == [place]
    assert kinds(proof) == ["duplicate", "surplus_rows"]


def test_rows_at_offsets_that_no_commit_holds_are_named(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    ingest(stream)
    sql(stream, "UPDATE {} SET kafka_offset = 777 WHERE kafka_offset = 4")

    proof = deep(stream)

    assert kinds(proof) == ["lost", "lost_records", "missing_rows", "unknown_rows"]
    assert places(proof, "lost") == [(0, 4)]


def test_compaction_by_another_writer_changes_nothing(resources):
    stream = Stream(resources)
    for n in range(3):
        stream.produce_trades(range(n * 40, n * 40 + 40))
        ingest(stream)
    table = f"{stream.namespace}.{stream.topic.table}"
    options = "map('rewrite-all', 'true')"
    sql(stream, f"CALL lake.system.rewrite_data_files(table => '{table}', options => {options})")

    proof = deep(stream, whole_log=True)

    assert [e.kind for e in proof.entries[1:]] == ["ingest", "ingest", "ingest", "foreign"]
    assert proof.entries[-1].added == proof.entries[-1].deleted == 120
    assert proof.findings == []


def test_the_ledger_begins_where_expiry_ended(resources):
    stream = Stream(resources, partitions=2)
    for n in range(4):
        stream.produce_trades(range(n * 20, n * 20 + 20))
        ingest(stream)
    sql(
        stream,
        f"CALL lake.system.expire_snapshots(table => '{stream.namespace}.{stream.topic.table}', "
        "older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 2)",
    )

    proof = deep(stream, whole_log=True)

    assert [f.kind for f in proof.findings] == ["begins"]
    assert totals(proof.entries).rows == 40
    assert len(stream.rows()) == 80


def test_what_the_log_no_longer_has_is_not_lost(resources):
    """Compaction removed records after they were ingested, and retention the oldest ones."""
    from confluent_kafka import TopicPartition
    from support import admin

    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(30))
    ingest(stream)
    for deleted in admin().delete_records([TopicPartition(stream.name, 0, 10)]).values():
        deleted.result()

    proof = deep(stream, whole_log=True)

    assert [(f.kind, f.fault) for f in proof.findings] == [("log_begins_later", False)]
    assert "10 offsets" in proof.findings[0].said


def test_a_record_that_was_never_read_is_found_in_the_log(resources):
    """Counts, rows and the token agree with each other, and all of them are wrong."""
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    [published] = ingest(stream)
    sql(stream, "DELETE FROM {} WHERE kafka_offset = 6")
    counts = {"consumed": 9, "rows": 9}
    with stream.table().transaction() as transaction:
        transaction.set_properties({COUNTS: json.dumps({str(published.snapshot_id): counts})})

    proof = deep(stream, whole_log=True)

    assert {"never_read", "lost"} <= set(kinds(proof))
    assert places(proof, "lost") == [(0, 6)]


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DELETE FROM {} WHERE userid = 'User_3'", "lost"),
        ("UPDATE {} SET kafka_offset = 0 WHERE userid = 'User_3'", "lost"),
        ("INSERT INTO {0} SELECT * FROM {0} WHERE userid = 'User_3'", "duplicate_key"),
    ],
)
def test_an_upsert_table_shows_the_newest_record_of_each_key(resources, statement, found):
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    stream.produce_trades(range(40))
    ingest(stream)
    stream.produce_trades(range(40, 60))
    stream.produce([{"key": b"User_1", "value": None}, {"key": b"User_2", "value": b"bad"}])
    ingest(stream)
    assert deep(stream, whole_log=True).findings == []
    newest = max(m.offset for m in stream.messages() if m.key == b"User_3")

    sql(stream, statement)
    proof = deep(stream, whole_log=True)

    assert found in kinds(proof)
    if found == "lost":
        assert places(proof, "lost") == [(0, newest)]


def test_a_key_that_a_tombstone_removed_must_not_come_back(resources):
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    stream.produce_trades(range(9))
    ingest(stream)
    row = stream.rows()[0]
    stream.produce([{"key": row["userid"].encode(), "value": None}])
    ingest(stream)
    back = ", ".join(f"'{v}'" if isinstance(v, str) else str(v) for v in list(row.values())[:6])
    sql(stream, f"INSERT INTO {{}} SELECT {back}, 0, 0, current_timestamp(), 1")

    proof = deep(stream, whole_log=True)

    assert places(proof, "not_deleted") == [(0, 9)]


def test_dead_letters_of_a_topic_that_was_recreated_are_not_counted(resources):
    from support import recreate

    stream = Stream(resources, partitions=1)
    stream.schema()
    stream.produce([{"value": b"old 1"}, {"value": b"old 2"}])
    ingest(stream)
    recreate(stream)
    resources.catalog.iceberg().drop_table((stream.namespace, stream.topic.table))
    stream.produce([{"value": b"new 1"}])
    ingest(stream)

    proof = deep(stream, whole_log=True)

    assert proof.findings == []
    assert [h.rows for r, h in proof.letters.items() if isinstance(r, Range)] == [1]
