"""The compiled decoder: a batch that it writes has the rows and dead letters of the reference decoder, and its proofs.

Files name the library that wrote them: Java's is the reference decoder's, Rust's the compiled one's.
"""

import json
import logging
import os
from dataclasses import replace
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from pyiceberg.transforms import VoidTransform

from lakehouse.cli.console import console, topics
from lakehouse.cli.status import Report, status
from lakehouse.core.errors import ConfigError
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.ledger.ledger_entries import read_ledger
from lakehouse.pipeline.row_files import COMPILED
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


def letter_file(stream, rows):
    """Return the statistics of the file with so many dead letters, but for columns that differ in each attempt."""
    table = stream.table(f"{stream.topic.table}__dead_letters")
    [file] = [file for file in table.inspect.files().to_pylist() if file["record_count"] == rows]
    differing = {table.schema().find_field(name).field_id for name in ("error_timestamp", "affected_database")}
    names = ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    return {name: {id_: value for id_, value in file[name] if id_ not in differing} for name in names}


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


def test_dead_letters_in_files_equal_those_of_reference_decoder(resources):
    stream = Stream(resources, partitions=1, settings={"key": []})
    nested = {"type": "record", "name": "Maker", "fields": [{"name": "city", "type": ["null", "string"]}]}
    fields = [*json.loads(TRADES)["fields"], {"name": "makers", "type": {"type": "array", "items": nested}}]
    schema = json.dumps(json.loads(TRADES) | {"fields": fields})
    schema_id = stream.schema(schema)
    foreign = register(f"other-{stream.namespace}", json.dumps(json.loads(schema) | {"doc": "of another subject"}))
    good = [{"value": framed(schema_id, schema, trade(n, makers=[{"city": "Zürich"}]))} for n in range(20)]
    value = good[0]["value"]
    cut = [{"key": b"k", "value": value[:size], "headers": [("h", None), ("h", b"1")]} for size in range(5, len(value))]
    bad = [
        {"value": None, "key": b"\xff"},
        {"value": b""},
        {"value": b"no frame", "headers": [("trace", b"\x00\xff")]},
        {"value": b' {"side": "BUY"}'},
        {"value": value + b"\0"},
        {"value": value.replace("ü".encode(), b"\xfc\xfc")},
        {"value": b"\0\xff\xff\xff\xff of no schema"},
        {"value": framed(foreign, schema, trade(1, makers=[]))},
        {"value": value[5:], "headers": [("__value_schema_id", value[:5])]},
        {"value": value[5:], "headers": [("__value_schema_id", b"\0\0\0\0\0")]},
    ]
    stream.produce([*good, {"value": b"no frame"}])
    both(stream)
    stream.produce([*good, *cut, *bad[:6]])

    compiled, reference = both(stream)

    assert compiled[:3] == reference[:3]
    assert (compiled[0].rows, compiled[0].dead_letters) == (20, len(cut) + 6)
    one, other = (letter_file(Namespace(stream, native), len(cut) + 6) for native in ("require", "off"))
    assert one == other

    stream.produce([*good, *cut[:3], *bad])
    compiled, reference = both(stream)
    assert compiled[:3] == reference[:3]


def test_dead_letters_with_more_bytes_than_the_driver_collects(resources, monkeypatch):
    monkeypatch.setattr("spark.native.job.RETRY_SECONDS", 0)
    stream = Stream(resources, partitions=1)
    good = {"value": framed(stream.schema(), TRADES, trade(1))}
    large = [{"value": bytes([1 + n]) * 900_000} for n in range(12)]
    published = []
    for _ in range(2):
        stream.produce([good, *large, good])
        published += ingested(stream, "require")

    assert [(batch.counts.rows, batch.counts.dead_letters) for batch in published] == [(2, 12), (2, 12)]
    # The first batch has no table of dead letters yet, so all go to the driver.
    left = "the compiled decoder failed: ValueError: records with more than 8388608 bytes are neither rows nor certain"
    assert [batch.decoder[: len(left)] for batch in published] == [left, COMPILED]
    assert [letter["value"] for letter in stream.dead_letters()] == [one["value"] for one in [*large, *large]]
    oracle.judge(stream)


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
    values = [{"name": name, "type": ["null", name]} for name in ("string", "long", "double", "bytes")]
    values.append({"name": "items", "type": {"type": "array", "items": "long"}})
    inner = {"name": "inner", "type": ["null", {"type": "record", "name": "Inner", "fields": values}]}
    outer = {"name": "outer", "type": {"type": "record", "name": "Outer", "fields": [inner]}}
    schema = json.dumps(json.loads(NEWER) | {"fields": [*json.loads(NEWER)["fields"], outer]})
    schema_id = stream.schema(schema)
    rows = [
        {"string": f"text of more than 16 letters {n}", "long": -n, "double": n / 3, "bytes": b"\xff" * n, "items": [n]}
        for n in range(50)
    ]
    rows[7] = rows[7] | dict.fromkeys(("string", "long", "double", "bytes"))
    records = [trade(n, note=None, outer={"inner": row if n % 5 else None}) for n, row in enumerate(rows)]
    stream.produce([{"value": framed(schema_id, schema, record)} for record in records])

    compiled, reference = both(stream)

    [one], [other] = (table.inspect.files().to_pylist() for *_, table in (compiled, reference))
    for name in ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"):
        assert dict(one[name]) == dict(other[name]), name
    assert [one[name] for name in ("content", "record_count", "spec_id")] == [0, 50, 0]


def test_bounds_of_floating_point_numbers_equal_those_of_spark(resources):
    stream = Stream(resources, partitions=1, settings={"key": []})
    fields = [{"name": f"{kind}_{n}", "type": ["null", kind]} for kind in ("float", "double") for n in range(5)]
    schema = json.dumps({"type": "record", "name": "Numbers", "fields": fields})
    schema_id, nan = stream.schema(schema), float("nan")
    columns = [[1.5, nan, -2.25], [-0.0, 0.0, None], [nan, nan, None], [float("inf"), 1e-30, float("-inf")], [None] * 3]
    rows = [{f"{kind}_{n}": columns[n][row] for kind in ("float", "double") for n in range(5)} for row in range(3)]
    stream.produce([{"value": framed(schema_id, schema, row)} for row in rows])

    compiled, reference = both(stream)

    [one], [other] = (table.inspect.files().to_pylist() for *_, table in (compiled, reference))
    names = ["value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"]
    assert {name: dict(one[name]) for name in names} == {name: dict(other[name]) for name in names}


TEMPORAL = {"at": "timestamp-micros", "local_at": "local-timestamp-micros"}
COLUMNS = {
    "flag": "boolean",
    "small": "int",
    "large": "long",
    "letters": "string",
    "raw": "bytes",
    "amount": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "day": {"type": "int", "logicalType": "date"},
    **{name: {"type": "long", "logicalType": logical} for name, logical in TEMPORAL.items()},
}
HOUR, DAY = 3_600_000_000, 86_400_000_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
VALUES = {
    "flag": [True, False],
    "small": [0, -1, -3, -4, 2**31 - 1, -(2**31) + 2],
    "large": [0, -1, 3, -6, 2**63 - 1, -(2**63) + 2],
    "letters": ["", "ä😀€b", "a/b=c %2F?#+&", "null", "..", "x" * 40],
    "raw": [b"", b"\0\xff\x80", b"ab/c=d", b"x" * 40],
    "amount": [Decimal(n).scaleb(-2) for n in (0, -1, 128, -129, 1065, 999_999_999, -999_999_949)],
    "day": [0, -1, -31, -32, 31, 364, 365, -365, -366, 11_016, FIRST_DAY, LAST_DAY],
    "at": [0, -1, HOUR, -HOUR, -HOUR - 1, -365 * DAY, -365 * DAY - 1, FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1],
}
VALUES["local_at"] = VALUES["at"][::-1]
LAYOUTS = {
    "identity": [*COLUMNS],
    "bucket": [f"bucket(5, {name})" for name in COLUMNS if name != "flag"],
    "truncate": [f"truncate(3, {name})" for name in ("small", "large", "letters", "raw", "amount")],
    **{unit: [f"{unit}({name})" for name in ("day", *TEMPORAL)] for unit in ("year", "month", "day")},
    "hour": [f"hour({name})" for name in TEMPORAL],
}
OF_FILES = ["record_count", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds", "spec_id"]


def produce_boundaries(stream):
    """Produce 15 records, so that no table has more partitions, and return their number."""
    fields = [{"name": name, "type": ["null", type_], "default": None} for name, type_ in COLUMNS.items()]
    schema = json.dumps({"type": "record", "name": "Boundaries", "fields": fields})
    schema_id, nothing = stream.schema(schema), dict.fromkeys(COLUMNS)
    rows = [{name: values[n % len(values)] for name, values in VALUES.items()} for n in range(12)]
    rows += [nothing, rows[0], nothing]
    stream.produce([{"value": framed(schema_id, schema, row)} for row in rows])
    return len(rows)


def files_by_partition(table):
    """Return the statistics of the only file of each partition."""
    files = [task.file for task in table.scan().plan_files()]
    by_partition = {tuple(file.partition): {name: getattr(file, name, None) for name in OF_FILES} for file in files}
    assert len(by_partition) == len(files)
    return by_partition


@pytest.mark.parametrize("layout", LAYOUTS)
def test_partitions_equal_those_of_spark(resources, layout):
    stream = Stream(resources, partitions=1, settings={"key": [], "partition_by": LAYOUTS[layout]})
    number = produce_boundaries(stream)

    compiled, reference = both(stream)

    assert (compiled[3], reference[3]) == ({"parquet-rs"}, {"parquet-mr"})
    assert compiled[1] == reference[1] and len(compiled[1]) == number
    assert files_by_partition(compiled[4]) == files_by_partition(reference[4])
    names = [{field.name for field in table.spec().fields} for table in (compiled[4], reference[4])]
    paths = [task.file.file_path for task in compiled[4].scan().plan_files()]
    assert all(f"/data/{compiled[4].spec().fields[0].name}=" in path for path in paths) and names[0] == names[1]


SORTED = {
    "columns": {"sort_by": ["letters desc", "raw", "kafka_offset"]},
    "transforms": {"sort_by": ["truncate(3, amount) desc", "bucket(2, letters)", "year(at)", "kafka_offset desc"]},
    "partitions": {"sort_by": ["large desc", "kafka_offset"], "partition_by": ["bucket(2, small)"]},
}


def offsets_by_partition(table):
    """Return the sort order and the offsets, in their order, of the only file of each partition."""
    files = [task.file for task in table.scan().plan_files()]
    offsets = [pq.read_table(table.io.new_input(file.file_path).open())["kafka_offset"].to_pylist() for file in files]
    return {tuple(file.partition): (file.sort_order_id, of) for file, of in zip(files, offsets, strict=True)}


@pytest.mark.parametrize("layout", SORTED)
def test_order_of_rows_equals_that_of_spark(resources, layout):
    stream = Stream(resources, partitions=1, settings={"key": [], **SORTED[layout]})
    number = produce_boundaries(stream)

    compiled, reference = both(stream)

    assert (compiled[3], reference[3]) == ({"parquet-rs"}, {"parquet-mr"})
    assert offsets_by_partition(compiled[4]) == offsets_by_partition(reference[4])
    assert {order for order, _ in offsets_by_partition(compiled[4]).values()} == {1}
    assert files_by_partition(compiled[4]) == files_by_partition(reference[4])
    assert compiled[1] == reference[1] and len(compiled[1]) == number


def test_changed_partition_spec_with_a_void_field_is_written(resources):
    stream = Stream(resources, partitions=1, settings={"partition_by": ["side"]})
    stream.produce_trades(range(12))
    ingested(stream, "require")
    stream.topic = stream.topic.model_copy(update={"partition_by": ("bucket(2, userid)", "truncate(500, price)")})
    files = []
    for native in ("require", "require", "off"):
        stream.produce_trades(range(12))
        ingested(stream, native)
        files.append(files_by_spec(stream.table()))
        if len(files) == 1:
            with stream.table().update_spec() as update:
                update.add_field("symbol", VoidTransform(), "nothing")

    newest = stream.table().spec()
    assert [str(field.transform) for field in newest.fields] == ["bucket[2]", "truncate[500]", "void"]
    first, second, third = (of[newest.spec_id] for of in [{newest.spec_id: {}} | files[0], *files[1:]])
    assert first == {} and len(files[0]) == 2
    assert {partition[-1] for partition in second} == {None}
    assert third == {partition: 2 * rows for partition, rows in second.items()}
    assert stream.rows() == stream.expected_rows()


def files_by_spec(table):
    """Return the numbers of rows by partition spec and partition."""
    rows = {}
    for task in table.scan().plan_files():
        partitions = rows.setdefault(task.file.spec_id, {})
        partition = tuple(task.file.partition)
        partitions[partition] = partitions.get(partition, 0) + task.file.record_count
    return rows


def test_rows_of_too_many_partitions_use_reference_decoder(resources):
    stream = Stream(resources, partitions=1, settings={"partition_by": ["price"]})
    stream.produce_trades(range(40))

    [published] = ingested(stream, "require")

    assert published.decoder == "the compiled decoder failed: the rows of a task are of more than 16 partitions"
    assert writers(stream) == {"parquet-mr"}
    assert stream.rows() == stream.expected_rows()


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
    monkeypatch.setattr("spark.native.job.SPILLED_BYTES", 20_000)
    stream = Stream(resources)
    stream.produce_trades(range(50))
    stream.produce([{"value": b"x" * 1_000} for _ in range(30)])
    reason = "the compiled decoder failed: records with more than 20,000 bytes do not become rows"

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
    monkeypatch.setattr("spark.native.job.SPILLED_BYTES", 10)
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
