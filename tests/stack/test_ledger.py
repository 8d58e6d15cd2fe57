"""The ledger of real tables: what the broker has and the table has not is named, and nothing else."""

import json
import os
import time
from dataclasses import replace

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from support import TRADES, Stream, admin, framed, recreate, trade

from assets.ledger import ledger_asset, ledger_check
from assets.standing import standing_checks
from lakehouse.cli.main import main
from lakehouse.config.loader import PROJECT, load
from lakehouse.core.batch import COUNTS, DECISION, REPLAY, TOKEN
from lakehouse.core.counts import Counts
from lakehouse.core.ledger import Range, totals
from lakehouse.pipeline.proof import check, prove
from resources.build import build_resources
from resources.transactions import settle

SET = AlterConfigOpType.SET


def ingest(stream):
    """Ingest, and note the counts as publications do."""
    published = stream.ingest()
    table = stream.table()
    counts = json.loads(table.properties.get(COUNTS, "{}"))
    for batch in published:
        found = {name: getattr(batch.counts, name, 0) for name in Counts.__dataclass_fields__}
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
    settle(resources.kafka, stream.name)
    ingest(stream)
    transactional(stream, good[4])
    stream.produce([{"value": b"worse", "partition": 0}, {"value": good[1], "partition": 1}])
    settle(resources.kafka, stream.name)
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
    sql(stream, "DELETE FROM {} WHERE source_record.offset = 2", f"{stream.topic.table}__dead_letters")

    proof = deep(stream)

    assert places(proof, "lost") == [(0, 2)]
    assert "missing_dead_letters" in kinds(proof)


def test_a_row_that_is_doubled_by_hand_is_named(resources):
    stream = Stream(resources)
    stream.produce_trades(range(60))
    ingest(stream)
    row = stream.rows()[7]
    place = row["kafka_partition"], row["kafka_offset"]
    where = f"kafka_partition = {place[0]} AND kafka_offset = {place[1]}"
    sql(stream, f"INSERT INTO {{0}} SELECT * FROM {{0}} WHERE {where}")

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
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(30))
    ingest(stream)
    for deleted in admin().delete_records([TopicPartition(stream.name, 0, 10)]).values():
        deleted.result()

    proof = deep(stream, whole_log=True)

    assert [(f.kind, f.fault) for f in proof.findings] == [("log_begins_later", False)]
    assert "10 offsets" in proof.findings[0].said


def test_offsets_that_compaction_emptied_are_no_loss(resources):
    """Some before they were ingested, some after."""
    stream = Stream(resources, partitions=1)
    settings = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.001"}
    entries = [ConfigEntry(name, value, incremental_operation=SET) for name, value in settings.items()]
    altered = admin().incremental_alter_configs([ConfigResource("TOPIC", stream.name, incremental_configs=entries)])
    for done in altered.values():
        done.result()
    stream.produce_trades(range(60))
    compact(stream, below=60)
    ingest(stream)
    stream.produce_trades(range(60))
    ingest(stream)
    compact(stream, below=len(stream.rows()))

    proof = deep(stream, whole_log=True)

    assert proof.findings == []
    assert proof.entries[1].without_record > 0
    assert totals(proof.entries).rows == len(stream.rows()) > len(stream.messages())


def compact(stream, below):
    """Produce until the broker rolled a segment and compacted those before it."""
    schema_id = stream.schema()
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        stream.produce([{"key": b"User_1", "value": framed(schema_id, TRADES, trade(0))}])
        if len(stream.messages()) < below:
            return
        time.sleep(0.5)
    raise AssertionError(f"{stream.name} was not compacted within 90 s")


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


def commit(stream, rows, **properties):
    """A commit to main with rows (an Arrow table) and summary properties, as another tool makes it."""
    table = stream.table()
    table.append(rows, snapshot_properties=properties)
    return table.current_snapshot().snapshot_id


def no_rows(stream):
    return stream.table().scan().to_arrow().slice(0, 0)


def token(stream, start, end, **changes):
    """The newest ingest commit's token, moved on."""
    last = [e.batch for e in check(stream.resources.catalog, stream.namespace, stream.topic).entries if e.batch][-1]
    return replace(last, start=start, end=end, **changes).to_json()


def test_a_commit_that_leaves_offsets_out_is_named_by_metadata_and_they_are_lost(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    ingest(stream)
    commit(stream, no_rows(stream), **{TOKEN: token(stream, {0: 13}, {0: 13})})
    stream.produce_trades(range(10, 20))
    ingest(stream)

    found = [f for f in check(resources.catalog, stream.namespace, stream.topic).findings if f.kind == "gap"]

    assert [(f.partition, f.offsets) for f in found] == [(0, (10, 12))]
    assert [row["kafka_offset"] for row in stream.rows()] == [*range(10), *range(13, 20)]


def test_what_an_operator_decided_to_skip_is_no_loss(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    ingest(stream)
    stream.produce_trades(range(10, 30))
    commit(stream, no_rows(stream), **{TOKEN: token(stream, {0: 10}, {0: 15}), DECISION: '{"reason": "poison"}'})
    ingest(stream)

    proof = deep(stream, whole_log=True)

    assert [(f.kind, f.fault) for f in proof.findings] == [("decision", False)]
    assert "skipped 5 offsets" in proof.findings[0].said
    assert len(stream.rows()) == 25


def test_a_dead_letter_that_was_replayed_is_a_row_once(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    stream.produce([{"value": b"bad 1"}, {"value": b"bad 2"}])
    ingest(stream)
    rows = stream.table().scan(limit=1).to_arrow()
    at = rows.schema.get_field_index("kafka_offset")
    replayed = rows.set_column(at, rows.schema.field(at), pa.array([10], pa.int64()))
    commit(stream, replayed, **{REPLAY: "{}"})
    assert deep(stream, whole_log=True).findings == []
    sql(stream, "DELETE FROM {} WHERE source_record.offset = 10", f"{stream.topic.table}__dead_letters")
    assert deep(stream, whole_log=True).findings == []

    commit(stream, replayed, **{REPLAY: "{}"})
    assert places(deep(stream), "duplicate") == [(0, 10)]


def test_offsets_of_a_topic_that_was_recreated_are_told_to_be_unclear(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    ingest(stream)
    recreate(stream)
    stream.produce_trades(range(6))
    topic_id = resources.kafka.describe([stream.name])[stream.name].topic_id
    decided = token(stream, {0: 10}, {0: 0}, topic_id=topic_id)
    commit(stream, no_rows(stream), **{TOKEN: decided, DECISION: '{"reason": "recreated"}'})
    assert {f.kind for f in deep(stream, whole_log=True).findings} == {"decision", "log_of_another_topic"}
    ingest(stream)

    proof = deep(stream, whole_log=True)

    assert {(f.kind, f.fault) for f in proof.findings} >= {("decision", False), ("shared_offsets", False)}
    assert proof.holds
    assert len(stream.rows()) == 16


def materialize(stream):
    """Run the ledger's asset and the table's check in this process; the asset's metadata and the checks' results."""
    defs = dg.Definitions(
        assets=[ledger_asset(stream.config, stream.topic)],
        asset_checks=[standing_checks(stream.topic, "iceberg", [ledger_check(stream.config, stream.topic)])],
        resources=build_resources(load(PROJECT / "lakehouse.yaml"), "local"),
        jobs=[dg.define_asset_job("all", dg.AssetSelection.all() | dg.AssetSelection.all_asset_checks())],
    )
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("all").execute_in_process(instance=instance)
    [event] = [e for e in result.all_events if e.is_step_materialization]
    passed = {e.check_name: e.passed for e in result.get_asset_check_evaluations()}
    return event.step_materialization_data.materialization.metadata, passed


def page(metadata, name):
    """The rows of a table that Dagster shows."""
    return [record.data for record in metadata[name].value.records]


def test_dagster_shows_the_ledger_as_a_page(resources):
    stream = Stream(resources)
    stream.produce_trades(range(30))
    stream.produce([{"value": b"bad"}])
    [published] = ingest(stream)

    metadata, passed = materialize(stream)

    assert passed == {"ledger": True, "proven": True}
    assert (metadata["consumed"].value, metadata["rows"].value, metadata["dead_letters"].value) == (31, 30, 1)
    commits = [(row["snapshot"], row["commit"]) for row in page(metadata, "commits")]
    assert (str(published.snapshot_id), "ingest") in commits
    assert len(page(metadata, "partitions")) == stream.partitions
    assert page(metadata, "findings") == []

    sql(stream, "DELETE FROM {} WHERE kafka_offset = 0 AND kafka_partition = 0")
    metadata, passed = materialize(stream)

    assert passed == {"ledger": True, "proven": False}
    findings = [(row["kind"], row["finding"].partition(",")[0]) for row in page(metadata, "findings")]
    assert any(kind == "fault" and text.startswith("LOST: partition 0 offset 0") for kind, text in findings)


def test_the_command_line_shows_the_ledger_and_fails_when_it_does_not_add_up(resources, tmp_path, monkeypatch):
    stream = Stream(resources)
    stream.produce_trades(range(30))
    ingest(stream)
    file = tmp_path / "lakehouse.yaml"
    environments = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())["environments"]
    declared = {"namespace": stream.namespace, "topics": {stream.name: {}}, "environments": environments}
    file.write_text(yaml.safe_dump(declared))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))

    def run(*options):
        return CliRunner().invoke(main, ["ledger", stream.name, *options], catch_exceptions=False)

    assert run().exit_code == 0
    found = run("--deep", "--json")
    assert found.exit_code == 0
    shown = json.loads(found.output)
    assert shown["holds"] and shown["totals"]["rows"] == 30
    assert [commit["verdict"] for commit in shown["commits"]] == ["same rows", "adds up"]

    sql(stream, "DELETE FROM {} WHERE kafka_offset = 0 AND kafka_partition = 0")
    assert run().exit_code == 0, "metadata alone cannot know"
    found = run("--deep")
    assert found.exit_code == 1
