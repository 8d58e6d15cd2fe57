"""The compiled decoder: a batch that it writes has the rows and dead letters of the reference decoder, and its proofs.

Files name the library that wrote them: Java's is the reference decoder's, Rust's the compiled one's.
"""

import json
import logging
import os
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from lakehouse.cli.console import console, topics
from lakehouse.cli.status import Report, status
from lakehouse.core.errors import ConfigError
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.ledger.ledger_entries import read_ledger
from resources.kafka.transactions import wait_until_visible
from resources.spark.servers import Connect
from spark.engine import SparkEngines
from tests.support.faults import oracle
from tests.support.intercepted import InterceptedEngines
from tests.support.topics import TRADES, Stream, admin, framed, register, trade

pytest.importorskip("lakehouse_native")

NULLABLE = {"name": "note", "type": ["null", "string"], "default": None}
NEWER = json.dumps(json.loads(TRADES) | {"fields": [*json.loads(TRADES)["fields"], NULLABLE]})


def ingested(stream, native, namespace=None):
    """Ingest the topic of a stream into a namespace, with the compiled decoder or without."""
    spark = Connect(remote=stream.resources.spark.remote, native=native)
    systems = replace(stream.systems, engines=InterceptedEngines(SparkEngines(spark), stream.interceptors))
    return list(ingest(namespace or stream.namespace, stream.topic, systems))


def writers(stream):
    """Return the libraries that wrote the data files of the published table."""
    table = stream.table()
    files = [task.file for task in table.scan().plan_files()]
    footers = [pq.read_metadata(table.io.new_input(file.file_path).open()) for file in files]
    return {footer.created_by.partition(" ")[0] for footer in footers}


class Namespace(Stream):
    """The stream of a topic that exists, with tables in a namespace of one decoder."""

    def __init__(self, stream, native):
        vars(self).update(vars(stream), namespace=f"{stream.namespace}_{native}")


def both(stream):
    """Ingest the topic by both decoders, and return the outcomes of each."""
    outcomes = []
    for native in ("require", "off"):
        other = Namespace(stream, native)
        [published] = ingested(other, native)
        letters = [{k: v for k, v in letter.items() if k != "error_timestamp"} for letter in other.dead_letters()]
        for letter in letters:
            del letter["affected_database"]
        outcomes.append((published.counts, other.rows(), letters, writers(other), other.table()))
    return outcomes


def test_outcomes_equal_those_of_reference_decoder(resources):
    stream = Stream(resources)
    old, new = stream.schema(), stream.schema(NEWER)
    foreign = register(f"other-{stream.namespace}", json.dumps(json.loads(TRADES) | {"doc": "of another subject"}))
    good = [{"key": b"k", "value": framed(new, NEWER, trade(n, note=None if n % 3 else f"ä{n}"))} for n in range(60)]
    good += [{"value": framed(old, TRADES, trade(n))} for n in range(60, 80)]
    bad = [
        {"value": None},
        {"value": b"no frame"},
        {"value": good[0]["value"][:9]},
        {"value": good[0]["value"] + b"\0"},
        {"value": b"\0\0\0\xff\xff rest", "headers": [("h", b"1"), ("h", None)]},
        {"value": framed(foreign, TRADES, trade(1))},
    ]
    stream.produce(good + bad)

    compiled, reference = both(stream)

    assert compiled[0] == reference[0]
    assert compiled[1] == reference[1]
    assert len(compiled[1]) == 81
    assert compiled[2] == reference[2]
    assert len(compiled[2]) == 5
    assert compiled[3] == {"parquet-rs", "parquet-mr"}
    assert reference[3] == {"parquet-mr"}
    assert compiled[4].scan().to_arrow().schema == reference[4].scan().to_arrow().schema
    for native in ("require", "off"):
        oracle.judge(Namespace(stream, native))
    assert [entry.added for table in (compiled[4], reference[4]) for entry in read_ledger(table)] == [0, 81, 0, 81]


def test_defaults_of_fields_equal_those_of_reference_decoder(resources):
    stream = Stream(resources, partitions=1)
    venue = {"name": "venue", "type": ["string", "null"], "default": "ZXCH"}
    newer = json.dumps(json.loads(TRADES) | {"fields": [*json.loads(TRADES)["fields"], venue]})
    old, new = stream.schema(), stream.schema(newer)
    stream.produce([{"value": framed(old, TRADES, trade(n))} for n in range(20)])
    stream.produce([{"value": framed(new, newer, trade(n, venue=None))} for n in range(20, 30)])

    compiled, reference = both(stream)

    assert compiled[1] == reference[1]
    assert [row["venue"] for row in compiled[1]] == ["ZXCH"] * 20 + [None] * 10
    assert compiled[3] == {"parquet-rs"}


def test_statistics_of_files_equal_those_of_spark(resources):
    stream = Stream(resources, partitions=1)
    schema_id = stream.schema(NEWER)
    stream.produce([{"value": framed(schema_id, NEWER, trade(n, note=None))} for n in range(50)])

    compiled, reference = both(stream)

    [one], [other] = (table.inspect.files().to_pylist() for *_, table in (compiled, reference))
    names = ["content", "record_count", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds", "spec_id"]
    assert {name: one[name] for name in names} == {name: other[name] for name in names}


def test_bounds_of_floating_point_numbers_equal_those_of_spark(resources):
    stream = Stream(resources, partitions=1, settings={"key": []})
    fields = [{"name": f"{kind}_{n}", "type": ["null", kind]} for kind in ("float", "double") for n in range(4)]
    schema = json.dumps({"type": "record", "name": "Numbers", "fields": fields})
    schema_id, nan = stream.schema(schema), float("nan")
    columns = [[1.5, nan, -2.25], [-0.0, 0.0, None], [nan, nan, None], [float("inf"), 1e-30, float("-inf")]]
    rows = [{f"{kind}_{n}": columns[n][row] for kind in ("float", "double") for n in range(4)} for row in range(3)]
    stream.produce([{"value": framed(schema_id, schema, row)} for row in rows])

    compiled, reference = both(stream)

    [one], [other] = (table.inspect.files().to_pylist() for *_, table in (compiled, reference))
    names = ["value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"]
    assert {name: dict(one[name]) for name in names} == {name: dict(other[name]) for name in names}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_and_aborted_transactions_are_read(resources, codec):
    stream = Stream(resources, partitions=2)
    schema_id = stream.schema()
    servers = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "compression.type": codec}
    producers = [Producer({**servers, "transactional.id": f"{stream.namespace}-{n}"}) for n in range(2)]
    for producer in producers:
        producer.init_transactions(30)
    for round_ in range(4):
        for producer in producers:
            producer.begin_transaction()
        for n in range(200):
            value = framed(schema_id, TRADES, trade(round_ * 1_000 + n))
            producers[n % 2].produce(stream.name, value, partition=n % 2 if n % 5 else 0, headers=[("h", b"1")])
        for place, producer in enumerate(producers):
            producer.flush(30)
            (producer.abort_transaction if round_ % 2 == place else producer.commit_transaction)(30)
    wait_until_visible(stream.resources.kafka, stream.name)

    ingested(stream, "require")

    assert writers(stream) == {"parquet-rs"}
    assert len(stream.rows()) == 400
    assert stream.rows() == stream.expected_rows()


def test_timestamps_of_the_broker_are_read(resources):
    settings = {"metadata": {"columns": ["partition", "offset", "timestamp", "timestamp_type", "raw_key", "topic"]}}
    stream = Stream(resources, settings=settings)
    clock = ConfigEntry("message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET)
    for altered in (
        admin().incremental_alter_configs([ConfigResource("topic", stream.name, incremental_configs=[clock])]).values()
    ):
        altered.result()
    stream.produce_trades(range(40))

    compiled, reference = both(stream)

    assert compiled[1] == reference[1]
    assert {row["kafka_timestamp_type"] for row in compiled[1]} == {"LogAppendTime"}
    assert compiled[3] == {"parquet-rs"}


def test_ingest_with_many_other_records_uses_reference_decoder(resources, monkeypatch, caplog):
    monkeypatch.setattr("spark.native.job.MAX_SPILLED_BYTES", 20_000)
    stream = Stream(resources)
    stream.produce_trades(range(50))
    stream.produce([{"value": b"x" * 1_000} for _ in range(30)])
    reason = "the compiled decoder failed: records with more than 20000 bytes do not become rows"

    with caplog.at_level(logging.WARNING, "spark.native.job"):
        [published] = ingested(stream, "require")
    stream.produce_trades(range(50, 60))
    [next_] = ingested(stream, "require")
    monkeypatch.setattr("spark.native.job.RETRY_SECONDS", 0)
    stream.produce_trades(range(60, 70))
    [later] = ingested(stream, "require")

    assert (published.counts.rows, published.counts.dead_letters) == (50, 30)
    assert writers(stream) == {"parquet-mr", "parquet-rs"}
    assert caplog.text.count(reason) == 1
    assert [batch.decoder for batch in (published, next_, later)] == [reason, reason, "compiled"]


def test_times_beyond_those_of_python_are_ingested(resources):
    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
    schema = json.dumps(json.loads(TRADES) | {"fields": [*json.loads(TRADES)["fields"], at]})
    stream = Stream(resources, partitions=1)
    schema_id = stream.schema(schema)
    stream.produce([{"value": framed(schema_id, schema, trade(n, at=2**62))} for n in range(9)])

    [published] = ingested(stream, "require")

    assert published.decoder == "the compiled decoder failed: a bound of a column exceeds Python's types"
    assert stream.table().scan().to_arrow()["at"].cast("int64").to_pylist() == [2**62] * 9


def test_status_names_the_failure_of_the_compiled_decoder(resources, monkeypatch):
    monkeypatch.setattr("spark.native.job.MAX_SPILLED_BYTES", 10)
    stream = Stream(resources)
    stream.schema()
    stream.produce([{"value": b"no frame"}])
    ingested(stream, "require")

    [failed] = status(stream.config, resources)
    assert failed.decoder == "the compiled decoder failed: records with more than 10 bytes do not become rows"
    assert Report([failed], []).to_json()["topics"][0]["decoder"] == failed.decoder
    with console.capture() as shown:
        console.print(topics([failed]))
    assert "the compiled decoder failed" in " ".join(shown.get().split())


def test_ingest_without_required_decoder_is_refused(resources, monkeypatch):
    monkeypatch.setattr("spark.native.job.VERSION", "9.9.9")
    stream = Stream(resources)
    stream.produce_trades(range(10))

    with pytest.raises(ConfigError, match=r"executors have version .* of it, not 9\.9\.9. Nothing was read"):
        ingested(stream, "require")
    assert stream.table() is None or stream.rows() == []

    ingested(stream, "off")
    assert stream.rows() == stream.expected_rows()


def test_ingest_with_branch_dropped_between_commits_is_repeated(resources):
    stream = Stream(resources)
    stream.produce_trades(range(30))
    ingested(stream, "off")
    stream.produce_trades(range(30, 60))
    stream.produce([{"value": b"no frame"}])

    def drop_branch():
        table = stream.table()
        [branch] = [name for name in table.metadata.refs if name.startswith("ingest_")]
        with table.manage_snapshots() as manage:
            manage.remove_branch(branch)

    dropped = stream.before_first("write", drop_branch)
    [published] = ingested(stream, "require")

    assert dropped == [None]
    assert (published.counts.rows, published.counts.dead_letters) == (30, 1)
    assert len(stream.rows()) == 60
    assert len(stream.dead_letters()) == 1
