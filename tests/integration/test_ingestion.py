"""Ingestion: the rows of a table equal the records that an independent consumer reads, each once."""

import json
from dataclasses import replace

import pytest

from lakehouse.core.errors import SchemaError
from lakehouse.pipeline.ingestion import ingest
from resources.spark.servers import Connect
from spark.engine import SparkEngines
from tests.support.topics import METADATA, TRADES, Stream, framed, register, trade


def batches(stream):
    """Return the batches in the history of main, oldest first."""
    table = stream.table()
    snapshot, batches_read = table.current_snapshot(), []
    while snapshot:
        if token := snapshot.summary.additional_properties.get("lakehouse.batch"):
            batches_read.append(json.loads(token))
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
    return batches_read[::-1]


def test_ingest_rows_have_values_and_positions_of_records(resources):
    stream = Stream(resources, partitions=6)
    stream.produce_trades(range(20_000))

    [published] = stream.ingest()

    assert published.counts.consumed == published.counts.rows == 20_000
    rows = stream.rows()
    assert rows == stream.expected_rows()
    assert len(rows) == 20_000
    names = [field.name for field in stream.table().schema().fields]
    assert names == [field["name"] for field in json.loads(TRADES)["fields"]] + list(METADATA)


@pytest.mark.parametrize("most, files", [(100, 1), (2, 3)])
def test_ingest_small_batch_writes_one_file_per_task(resources, monkeypatch, most, files):
    monkeypatch.setattr("spark.records.PARTITIONS_A_TASK", most)
    stream = Stream(resources, partitions=6)
    stream.produce_trades(range(600))
    engines = SparkEngines(Connect(remote=resources.spark.remote, native="off"))

    [published] = ingest(stream.namespace, stream.topic, replace(stream.systems, engines=engines))

    assert published.data_files == files
    assert stream.rows() == stream.expected_rows() and len(stream.rows()) == 600


def test_ingest_large_range_uses_contiguous_bounded_batches(resources):
    stream = Stream(resources, settings={"max_records_per_batch": 400})
    stream.produce_trades(range(1_000))

    published = stream.ingest()

    assert all(batch.counts.consumed <= 400 for batch in published)
    assert stream.rows() == stream.expected_rows()
    history = batches(stream)
    assert len(history) == len(published) >= 3
    assert all(set(token["start"].values()) == {0} for token in history[:1])
    counted = {str(p): sum(message.partition == p for message in stream.messages()) for p in range(3)}
    assert history[-1]["end"] == counted
    assert all(token["topic"] == stream.name and token["cluster_id"] and token["topic_id"] for token in history)
    assert all(earlier["end"] == later["start"] for earlier, later in zip(history, history[1:], strict=False))
    refs = stream.table().metadata.refs
    assert set(refs) == {"main", "lakehouse-offsets"}
    assert refs["lakehouse-offsets"].snapshot_id == refs["main"].snapshot_id


def test_ingest_new_partitions_starts_at_their_beginning(resources):
    from confluent_kafka.admin import NewPartitions

    from tests.support.topics import admin

    stream = Stream(resources, partitions=2)
    stream.produce_trades(range(100))
    stream.ingest()
    for creation in admin().create_partitions([NewPartitions(stream.name, 4)]).values():
        creation.result()
    stream.partitions = 4
    stream.produce_trades(range(100, 300))

    stream.ingest()

    assert {row["kafka_partition"] for row in stream.rows()} > {0, 1}
    assert stream.rows() == stream.expected_rows()


WITH_VENUE = json.dumps(
    {
        **json.loads(TRADES),
        "fields": [
            *json.loads(TRADES)["fields"],
            {"name": "venue", "type": ["null", "string"], "default": None, "doc": "Where"},
        ],
    }
)


def test_ingest_two_schemas_in_one_batch_decodes_each(resources):
    stream = Stream(resources)
    old, new = stream.schema(), stream.schema(WITH_VENUE)
    stream.produce(
        [
            {"value": framed(new, WITH_VENUE, trade(n, venue="X")) if n % 2 else framed(old, TRADES, trade(n))}
            for n in range(200)
        ]
    )

    stream.ingest()

    assert stream.rows() == [{"venue": None} | row for row in stream.expected_rows()]
    assert {row["venue"] for row in stream.rows()} == {"X", None}


def test_ingest_schema_of_other_subject_is_found_by_id(resources):
    stream = Stream(resources)
    stream.schema()
    foreign = json.dumps({**json.loads(TRADES), "doc": "The same, registered elsewhere"})
    schema_id = register(f"elsewhere-{stream.name}", foreign)
    stream.produce([{"value": framed(schema_id, foreign, trade(n))} for n in range(50)])

    [published] = stream.ingest()

    assert published.counts.dead_letters == 0
    assert stream.rows() == stream.expected_rows()
    assert {row["kafka_schema_id"] for row in stream.rows()} == {schema_id}


def test_ingest_topic_without_schema_is_schema_error(resources):
    stream = Stream(resources)
    stream.produce([{"value": b"anything"}])

    with pytest.raises(SchemaError, match=f"no subject '{stream.name}-value'"):
        stream.ingest()
    assert stream.table() is None
