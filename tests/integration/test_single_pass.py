"""Batches whose rows Spark writes to files in one pass, which keeps all other records: the log is read once."""

import json
import logging
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.row_files import NoRowFiles, RowFiles
from resources.spark.servers import Connect
from spark.engine import SparkEngines
from tests.support.faults import oracle
from tests.support.intercepted import InterceptedEngines
from tests.support.topics import TRADES, Stream, admin, framed, register, trade

CHECKS = {
    "cheap": {"type": "range", "column": "price", "max": 900, "severity": "quarantine"},
    "known_side": {"type": "accepted_values", "column": "side", "values": ["BUY"], "severity": "quarantine"},
}
LAYOUTS = {
    "plain": {},
    "partitioned": {"partition_by": ["side", "bucket(4, userid)", "day(kafka_timestamp)"]},
    "sorted": {"sort_by": ["price"]},
    "both": {"partition_by": ["truncate(2, symbol)"], "sort_by": ["quantity desc"]},
}
COMPARED = ("record_count", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
    monkeypatch.setattr("lakehouse.pipeline.spilled_records.MIN_OFFSETS", 1)


class Namespace(Stream):
    """The stream of a topic that exists, with tables in another namespace."""

    def __init__(self, stream, suffix):
        vars(self).update(vars(stream), namespace=f"{stream.namespace}_{suffix}", interceptors={})


def ingested(stream):
    """Ingest the topic by the reference decoder."""
    spark = Connect(remote=stream.resources.spark.remote, native="off")
    systems = replace(stream.systems, engines=InterceptedEngines(SparkEngines(spark), stream.interceptors))
    return list(ingest(stream.namespace, stream.topic, systems))


def kept_files(stream):
    """Let a stream keep the results of `row_files`, and return their list."""
    kept = []

    def keep(operation, *arguments, **settings):
        kept.append(operation(*arguments, **settings))
        return kept[-1]

    stream.interceptors["row_files"] = keep
    return kept


def delete_all_records(stream):
    ends = {message.partition: message.offset + 1 for message in stream.messages()}
    for deleted in admin().delete_records([TopicPartition(stream.name, p, end) for p, end in ends.items()]).values():
        deleted.result()


def without_times(letters):
    return [
        {k: v for k, v in letter.items() if k not in ("error_timestamp", "affected_database")} for letter in letters
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_log_is_read_once(resources, layout):
    stream = Stream(resources, settings={"checks": CHECKS, **LAYOUTS[layout]})
    schema_id = stream.schema()
    foreign = register(f"other-{stream.namespace}", json.dumps(json.loads(TRADES) | {"doc": "of another subject"}))
    good = [
        {"key": b"k", "value": framed(schema_id, TRADES, trade(n, price=n)), "headers": [("h", None)]}
        for n in range(0, 60, 2)
    ]
    bad = [
        {"value": framed(schema_id, TRADES, trade(0, price=901))},
        {"value": framed(schema_id, TRADES, trade(1, price=2))},
        {"value": framed(foreign, TRADES, trade(2, price=3))},
        {"value": None, "key": b"k", "headers": [("a", b"\xff"), ("a", b"")]},
        {"value": b"no frame"},
        {"value": good[0]["value"] + b"\0"},
        {"value": b"\0\0\0\xff\xff rest"},
    ]
    stream.produce(good + bad)
    other = Namespace(stream, "again")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakehouse.pipeline.spilled_records.MIN_OFFSETS", 1_000_000)
        [expected] = ingested(other)
    kept = kept_files(stream)
    stream.before_first("create_branch", lambda: delete_all_records(stream))

    [published] = ingested(stream)

    [files] = kept
    assert files.rows == 30 and files.others.table.num_rows == 7
    assert published.counts == expected.counts
    assert (published.counts.rows, published.counts.dead_letters) == (31, 6)
    assert stream.rows() == other.rows()
    assert without_times(stream.dead_letters()) == without_times(other.dead_letters())
    results = [{f.check: f.result for f in of.findings if f.result} for of in (published, expected)]
    assert {name: (r.failing, r.sample) for name, r in results[0].items()} == {
        name: (r.failing, r.sample) for name, r in results[1].items()
    }
    one, two = ({str(f["partition"]): f for f in of.table().inspect.files().to_pylist()} for of in (stream, other))
    assert one.keys() == two.keys()
    assert {file["spec_id"] for file in one.values()} == {file["spec_id"] for file in two.values()}
    assert {file["sort_order_id"] for file in one.values()} == {file["sort_order_id"] for file in two.values()}


@pytest.mark.parametrize(("mode", "dead"), [("append", 10), ("upsert", 8), ("dedup", 10)])
def test_log_of_small_batch_or_merge_is_read_once(resources, monkeypatch, mode, dead):
    monkeypatch.setattr("lakehouse.pipeline.spilled_records.MIN_OFFSETS", 1_000)
    key = {"key": ["userid"]} if mode != "append" else {}
    stream = Stream(resources, settings={"mode": mode, "checks": CHECKS, **key})
    schema_id = stream.schema()
    other, written = Namespace(stream, "again"), []
    bad = [
        {"value": framed(schema_id, TRADES, trade(0, userid="u1", price=901))},
        {"value": framed(schema_id, TRADES, trade(1, userid="u2", price=2, side="SELL"))},
        {"value": None, "key": b"k", "headers": [("a", b"\xff"), ("a", b"")]},
        {"value": b"no frame"},
        {"value": b"\0\0\0\xff\xff rest"},
    ]

    def read_again(write, *arguments, keeping=None, **settings):
        return write(*arguments, **settings)

    def write_and_delete(write, *arguments, **settings):
        written.append(write(*arguments, **settings))
        delete_all_records(stream)
        return written[-1]

    other.interceptors |= {"write": read_again, "keep": lambda keep, log: log, "release": lambda release, log: None}
    stream.interceptors["write"] = write_and_delete
    for first in (0, 20):
        trades = [trade(n, userid=f"u{n % 7}", price=n, side="BUY") for n in range(first, first + 20)]
        good = [{"value": framed(schema_id, TRADES, one), "headers": [("h", None)]} for one in trades]
        stream.produce([*bad, *good, *bad])
        [expected], [published] = ingested(other), ingested(stream)
        # A record without a value deletes a row of an upsert.
        assert (published.counts.consumed, published.counts.dead_letters) == (30, dead)
        assert published.counts == expected.counts
        results = [{f.check: f.result for f in of.findings if f.result} for of in (published, expected)]
        assert {name: (r.failing, r.sample) for name, r in results[0].items()} == {
            name: (r.failing, r.sample) for name, r in results[1].items()
        }

    assert all((result.others is None) == (mode == "append") for result in written)
    assert stream.rows() == other.rows()
    assert len(stream.rows()) == (40 if mode == "append" else 7)
    assert without_times(stream.dead_letters()) == without_times(other.dead_letters())
    assert len(stream.dead_letters()) == 2 * dead


def test_statistics_of_files_equal_those_of_other_writes(resources):
    stream = Stream(resources, partitions=1, settings={"checks": CHECKS})
    schema_id = stream.schema()
    stream.produce([{"value": framed(schema_id, TRADES, trade(n, side="BUY"))} for n in range(50)])
    other = Namespace(stream, "again")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakehouse.pipeline.spilled_records.MIN_OFFSETS", 1_000_000)
        ingested(other)

    ingested(stream)

    [one], [two] = (of.table().inspect.files().to_pylist() for of in (stream, other))
    assert {name: one[name] for name in COMPARED} == {name: two[name] for name in COMPARED}


def test_later_columns_do_not_read_the_private_ones(resources):
    stream = Stream(resources, partitions=1, settings={"checks": {"cheap": CHECKS["cheap"]}})
    stream.produce_trades(range(10))
    ingested(stream)
    fields = [{"name": f"new_{n}", "type": ["null", "boolean"], "default": None} for n in range(3)]
    newer = json.dumps(json.loads(TRADES) | {"fields": [*json.loads(TRADES)["fields"], *fields]})
    schema_id = stream.schema(newer)
    stream.produce([{"value": framed(schema_id, newer, trade(10, new_0=True, new_1=False, new_2=None))}])
    ingested(stream)

    expected = [(None,) * 3] * 10 + [(True, False, None)]
    assert [tuple(row[f"new_{n}"] for n in range(3)) for row in stream.rows()] == expected
    spark = resources.spark.session(resources.catalog.spark_settings())
    path = f"lake.{stream.namespace}.`{stream.topic.table}`"
    query = f"SELECT new_0, new_1, new_2 FROM {path} ORDER BY kafka_offset"
    assert [tuple(row) for row in spark.sql(query).collect()] == expected


def test_batches_with_many_other_bytes_are_read_again(resources, monkeypatch):
    monkeypatch.setattr("spark.tables.other_records.SPILLED_BYTES", 1_000)
    stream = Stream(resources, settings={"checks": {"cheap": CHECKS["cheap"]}})
    kept = kept_files(stream)
    for first in (0, 50):
        stream.produce_trades(range(first, first + 50))
        stream.produce([{"value": b"x" * 600}, {"value": b"y" * 600}])
        [published] = ingested(stream)
        assert (published.counts.rows, published.counts.dead_letters) == (50, 2)

    assert [type(files) for files in kept] == [NoRowFiles] * 2
    oracle.judge(stream)
    assert len(stream.dead_letters()) == 4


def test_merges_with_many_other_bytes_are_read_again(resources, monkeypatch):
    monkeypatch.setattr("spark.tables.other_records.SPILLED_BYTES", 1_000)
    stream, written = Stream(resources, settings={"mode": "dedup", "key": ["userid"], "checks": CHECKS}), []

    def keep(write, *arguments, **settings):
        written.append(write(*arguments, **settings))
        return written[-1]

    stream.interceptors["write"] = keep
    schema_id = stream.schema()
    for first in (0, 50):
        trades = [trade(n, userid=f"u{n}", price=1, side="BUY") for n in range(first, first + 50)]
        stream.produce([{"value": framed(schema_id, TRADES, one)} for one in trades])
        stream.produce([{"value": b"x" * 600}, {"value": b"y" * 600}])
        [published] = ingested(stream)
        assert (published.counts.rows, published.counts.dead_letters) == (50, 2)

    assert [result.others for result in written] == [None] * 2
    assert len(stream.dead_letters()) == 4


def test_server_without_the_driver_reads_batches_twice(resources, monkeypatch, caplog):
    monkeypatch.setattr("resources.iceberg.catalog.IN_MEMORY", "jdbc:none:")
    stream = Stream(resources, settings={"checks": {"cheap": CHECKS["cheap"]}})
    stream.produce_trades(range(20))
    stream.produce([{"value": b"no frame"}])
    kept = kept_files(stream)
    engines = SparkEngines(Connect(remote=resources.spark.remote, native="off")).with_own_session()
    systems = replace(stream.systems, engines=InterceptedEngines(engines, stream.interceptors))

    with caplog.at_level(logging.WARNING, "spark.tables.row_files"):
        [published] = ingest(stream.namespace, stream.topic, systems)
    engines.close()

    assert [type(files) for files in kept] == [NoRowFiles]
    assert (published.counts.rows, published.counts.dead_letters) == (20, 1)
    assert "the Spark server needs sqlite-jdbc" in caplog.text


def test_first_batch_and_one_after_dead_letters_are_read_once(resources):
    stream = Stream(resources)
    kept = kept_files(stream)
    for first in (0, 10, 20, 30):
        stream.produce_trades(range(first, first + 10))
        stream.produce([{"value": b"no frame"}] if first < 20 else [])
        ingested(stream)

    assert [type(files) for files in kept] == [RowFiles, RowFiles, RowFiles, NoRowFiles]
    oracle.judge(stream)
    assert len(stream.dead_letters()) == 2
