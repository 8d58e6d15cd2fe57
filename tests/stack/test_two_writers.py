"""Another writer at the worst moments: each record is published once, and the loser starts over."""

from contextlib import nullcontext

import pytest
from support import TRADES, Stream, framed, trade

from lakehouse.core.errors import UnclearState
from lakehouse.pipeline import audit, ingestion
from lakehouse.pipeline.audit import AuditFailed
from resources.catalog import Catalog
from spark import write

MOMENTS = {
    "before it looks at the schema": (ingestion, "ensure_table"),
    "before its branch": (write, "create_branch"),
    "before its write": (write, "append"),
    "before its audit": (audit, "audit"),
    "before its dead letters": (ingestion._Run, "_keep_dead_letters"),
    "before its publication": (Catalog, "publish"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_whole_run_in_between_makes_the_first_start_over(resources, monkeypatch, moment):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(50))
    stream.ingest()
    stream.produce_trades(range(50, 80))
    stream.produce([{"value": b"bad"}])
    owner, name = MOMENTS[moment]
    original, others = getattr(owner, name), []

    def instead(*args, **kwargs):
        if not others:
            others.append(None)
            others.extend(stream.ingest())
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, instead)

    assert stream.ingest() == []
    assert [published.counts.consumed for published in others[1:]] == [31]
    monkeypatch.undo()
    assert [letter["value"] for letter in stream.dead_letters()] == [b"bad"]
    assert [row["kafka_offset"] for row in stream.rows()] == list(range(80))


@pytest.mark.parametrize("owner, name", [(ingestion, "read_log"), (ingestion, "ensure_table")])
def test_a_writer_that_took_newer_records_in_between_is_no_loss(resources, monkeypatch, owner, name):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(50))
    original, others = getattr(owner, name), []

    def then(*args, **kwargs):
        result = original(*args, **kwargs)
        if not others:
            others.append(None)
            stream.produce_trades(range(50, 80))
            others.extend(stream.ingest())
        return result

    monkeypatch.setattr(owner, name, then)

    assert stream.ingest() == []
    assert [published.counts.consumed for published in others[1:]] == [80]
    assert stream.rows() == stream.expected_rows()


def test_two_processes_at_once_publish_each_record_once(resources, tmp_path):
    stream = Stream(resources, settings={"max_records_per_batch": 1_000})
    stream.produce_trades(range(4_000))

    writers = [stream.start("nowhere", tmp_path) for _ in range(2)]
    ended = [writer.wait(120) for writer in writers]

    # One of the two may lose so often that it gives up, which it says; what it left is taken by the next run.
    assert 0 in ended
    stream.ingest()
    assert stream.rows() == stream.expected_rows()


def test_a_snapshot_without_its_position_is_not_published(resources, monkeypatch):
    stream = Stream(resources)
    stream.produce_trades(range(10))
    monkeypatch.setattr(write, "with_properties", lambda *_: nullcontext())

    with pytest.raises(AuditFailed, match="does not say that it holds this batch's offsets"):
        stream.ingest()
    assert stream.rows() == []

    monkeypatch.undo()
    stream.ingest()
    assert stream.rows() == stream.expected_rows()


def test_a_table_that_somebody_replaced_has_no_position(resources):
    stream = Stream(resources)
    stream.produce_trades(range(10))
    stream.ingest()
    spark = resources.spark.session(resources.catalog.spark_settings())
    table = f"lake.{stream.namespace}.{stream.topic.table}"
    spark.sql(f"CREATE OR REPLACE TABLE {table} USING iceberg AS SELECT 'mine' AS userid")

    with pytest.raises(UnclearState, match="1 rows and no snapshot"):
        stream.ingest()
    assert stream.table().scan().to_arrow().to_pylist() == [{"userid": "mine"}]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_batch_that_changes_no_row_still_moves_the_position(resources, mode):
    stream = Stream(resources, partitions=1, settings={"mode": mode})
    schema_id = stream.schema()
    bad = [{"key": b"nobody", "value": None}, {"key": b"User_1", "value": b"bad"}]
    stream.produce(bad)
    assert [published.counts.consumed for published in stream.ingest()] == [2]
    assert stream.ingest() == []

    stream.produce([{"key": b"User_1", "value": framed(schema_id, TRADES, trade(0))}])
    stream.ingest()
    stream.produce(bad)
    assert [published.counts.consumed for published in stream.ingest()] == [2]
    assert stream.ingest() == []
    assert len(stream.rows()) == 1
