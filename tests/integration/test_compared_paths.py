"""`lakehouse dry-run --compare-paths`: it passes for equal outcomes of both decoders, and names what differs."""

import json
import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyiceberg.types import DoubleType, NestedField, StructType

from lakehouse.cli.main import main
from lakehouse.core.errors import LakehouseError
from lakehouse.pipeline.batches.path_comparison import compare_paths
from tests.support.topics import TRADES, Stream, framed, trade

pytest.importorskip("lakehouse_native")

ADDED = [
    {"name": "rate", "type": ["null", "double"], "default": None},
    {"name": "tags", "type": {"type": "map", "values": "string"}, "default": {}},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
]
NEWER = json.dumps(json.loads(TRADES) | {"fields": [*json.loads(TRADES)["fields"], *ADDED]})
PROPERTIES = [
    "counts",
    "rejected_records",
    "rows",
    "field_ids",
    "value_counts",
    "null_counts",
    "nan_counts",
    "lower_bounds",
    "upper_bounds",
    "partition_values",
    "sort_order",
]
CANARY = "planted-canary"


def produce(stream, numbers):
    schema_id, tags = stream.schema(NEWER), {f"t{n}": CANARY for n in range(9)}
    more = [{"rate": rate, "tags": tags, "at": at} for rate, at in [(math.nan, 2**50), (-0.0, 0), (None, None)]]
    trades = [trade(n, account=CANARY, **more[n % 3]) for n in numbers]
    stream.produce([{"key": t["userid"].encode(), "value": framed(schema_id, NEWER, t)} for t in trades])
    stream.produce([{"value": b"no frame"}, {"value": framed(schema_id, NEWER, trades[0]) + b"\0"}, {"value": None}])


def compared(stream, records=1_000):
    results = compare_paths(stream.namespace, stream.topic, stream.systems, records)
    return {result.check: (result.passed, result.message) for result in results}


def test_compare_paths_of_equal_outcomes_passes(resources, tmp_path, monkeypatch):
    stream = Stream(resources, settings={"errors": "suspend"})
    produce(stream, range(60))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(stream.declare(tmp_path)))

    result = CliRunner().invoke(main, ["dry-run", stream.name, "--compare-paths", "--json"])

    report = json.loads(result.stdout)
    assert [check["message"] for check in report["checks"] if check["verdict"] != "passed"] == []
    assert [(check["check"], check["verdict"]) for check in report["checks"]] == [
        (name, "passed") for name in PROPERTIES
    ]
    assert (result.exit_code, report["exit_code"]) == (0, 0)
    assert "60 rows" in result.output
    assert stream.table() is None


def test_compare_paths_of_a_partitioned_and_sorted_table_passes(resources):
    terms = ["side", "truncate(100, price)", "day(at)", "bucket(3, rate_id)"]
    added = {"name": "rate_id", "type": ["null", "long"], "default": None}
    schema = json.dumps(json.loads(NEWER) | {"fields": [*json.loads(NEWER)["fields"], added]})
    stream = Stream(resources, settings={"errors": "log", "partition_by": terms, "sort_by": ["rate_id desc"]})
    schema_id = stream.schema(schema)
    for n in range(12):
        row = trade(n, price=-n * 20, at=(None, -1, 2**50)[n % 3], rate=None, tags={}, rate_id=-n if n % 2 else None)
        stream.produce([{"value": framed(schema_id, schema, row)}])

    results = compared(stream)

    assert {name: message for name, (passed, message) in results.items() if not passed} == {}
    assert results["partition_values"][1].count("Record[") > 4
    assert results["sort_order"][1] == "equal: sort order 1"


PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [
        {"name": "text", "type": ["null", "string"]},
        {"name": "rate", "type": "double"},
        {"name": "p", "type": PRICE},
    ],
}
NESTED = {
    "inner": ["null", INNER],
    "either": ["null", "int", "string"],
    "items": {"type": "array", "items": "Inner"},
    "entries": {"type": "map", "values": "long"},
    "text": "string",
    "data": "bytes",
}
METRICS = "write.metadata.metrics."
STATISTICS = {
    "default": ({}, {}),
    "number of columns": ({f"{METRICS}max-inferred-column-defaults": "7"}, {}),
    "none": ({f"{METRICS}default": "none", f"{METRICS}column.inner.rate": "full"}, {"sort_by": ["truncate(2, text)"]}),
    "mistaken": ({f"{METRICS}default": "truncated", f"{METRICS}column.text": "truncate(0)"}, {}),
    "short": ({f"{METRICS}default": "truncate(3)", f"{METRICS}column.inner.text": "counts"}, {}),
}


def produce_nested(stream):
    schema = json.dumps(
        {"type": "record", "name": "Outer", "fields": [{"name": n, "type": type_} for n, type_ in NESTED.items()]}
    )
    schema_id = stream.schema(schema)
    for n in range(9):
        inner = {"text": f"ä{n}" * 30 if n % 3 else None, "rate": n - 3.5, "p": Decimal(n).scaleb(-2)}
        text, data = ("\U0010ffff" * 20, b"\xff" * 70) if n == 4 else ("a" * 9 * n, b"ab" * n)
        row = {"items": [inner] * (n % 3), "entries": {"k": n}, "text": text, "data": data}
        row |= {"inner": None if n == 1 else inner, "either": [None, n, "x"][n % 3]}
        stream.produce([{"value": framed(schema_id, schema, row)}])


@pytest.mark.parametrize("statistics", STATISTICS)
def test_compare_paths_of_structs_has_equal_statistics(resources, statistics):
    properties, settings = STATISTICS[statistics]
    stream = Stream(resources, partitions=1, settings={"key": [], **settings})
    produce_nested(stream)
    stream.ingest()
    with stream.table().transaction() as transaction:
        transaction.set_properties(properties)

    results = compared(stream)

    assert {name: message for name, (passed, message) in results.items() if not passed} == {}


def test_compare_paths_of_many_columns_has_equal_statistics(resources):
    fields = [{"name": f"c{n}", "type": "int"} for n in range(110)]
    schema = json.dumps({"type": "record", "name": "Wide", "fields": fields})
    stream = Stream(resources, partitions=1, settings={"key": []})
    stream.produce([{"value": framed(stream.schema(schema), schema, {f"c{n}": n for n in range(110)})}])

    results = compared(stream)

    assert {name: message for name, (passed, message) in results.items() if not passed} == {}


def test_compare_paths_of_names_that_avro_lacks_passes(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(5))
    stream.ingest()
    with stream.table().update_schema() as update:
        update.add_column(("a.b",), DoubleType())
        update.add_column(("two words/ü",), StructType(NestedField(1, "x=y", DoubleType(), required=False)))
    stream.produce_trades(range(5, 10))

    results = compared(stream)

    assert {name: message for name, (passed, message) in results.items() if not passed} == {}
    assert results["rows"][1] == "10 rows of 12 columns are equal"


def test_compare_paths_names_differing_places_and_columns(resources):
    stream = Stream(resources, partitions=1, settings={"sensitive": ["account"]})
    produce(stream, range(20))
    stream.ingest()
    published = stream.table().metadata

    def with_other_rows(row_files, batch, decoding, table, *arguments, **settings):
        outcome = row_files(batch, decoding, table, *arguments, **settings)
        [file] = outcome.files
        with table.io.new_input(file.file_path).open() as opened:
            rows = pq.read_table(opened)
        price, account = (rows.schema.get_field_index(name) for name in ("price", "account"))
        prices = [999_999 if n == 4 else price for n, price in enumerate(rows["price"].to_pylist())]
        rows = rows.set_column(price, rows.field(price), pa.array(prices, rows.field(price).type))
        accounts = [CANARY * 2 if n == 7 else CANARY for n in range(rows.num_rows)]
        rows = rows.set_column(account, rows.field(account), pa.array(accounts))
        with table.io.new_output(file.file_path).create(overwrite=True) as created:
            pq.write_table(rows.slice(0, rows.num_rows - 1), created)
        return outcome

    stream.interceptors["row_files"] = with_other_rows
    results = compared(stream)

    assert {name for name, (passed, _) in results.items() if not passed} == {"rows"}
    assert results["rows"][1] == (
        "differs at partition 0 offset 4 (price); partition 0 offset 7 (account); partition 0 offset 19 (the whole row)"
    )
    assert not any(CANARY in message for _, message in results.values())
    current = stream.table().metadata
    assert (current.current_snapshot_id, set(current.refs)) == (published.current_snapshot_id, set(published.refs))


def test_compare_paths_of_unsupported_topic_states_the_reason(resources, tmp_path, monkeypatch):
    stream = Stream(resources, settings={"mode": "dedup"})
    stream.produce_trades(range(10))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(stream.declare(tmp_path)))

    with pytest.raises(LakehouseError, match=r"the mode is dedup\. Nothing was compared"):
        compared(stream)
    result = CliRunner().invoke(main, ["dry-run", stream.name, "--compare-paths"])

    assert result.exit_code == 2
    assert "the mode is dedup" in result.output
    assert stream.table() is None
