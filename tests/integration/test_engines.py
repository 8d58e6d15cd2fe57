"""The comparison of a table in Spark, DuckDB through Glue and Snowflake, and the names of engines that differ."""

import json
from decimal import Decimal
from types import SimpleNamespace

from assets.topics.reader_assets import engines_check
from lakehouse.readers.engine_totals import TableTotals, differences
from tests.support.topics import TRADES, Stream, framed, trade


def check(stream):
    """Return the result, the description and the totals of the engines check."""
    result = engines_check(stream.config, stream.topic, "snowflake").run(SimpleNamespace(resources=stream.resources))
    return result.passed, result.description, [record.data for record in result.metadata["totals"].value.records]


def publish(stream, *trades, everywhere=True):
    schema_id = stream.schema()
    stream.produce([{"key": t["userid"].encode(), "value": framed(schema_id, TRADES, t)} for t in trades])
    stream.ingest()
    if everywhere:
        stream.show("glue")
        stream.show("snowflake")


def test_engines_check_sums_equal_sums_in_python(resources):
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    big = 2**31 - 1
    publish(stream, *(trade(n, userid=f"u{n % 7}", price=big, quantity=-n) for n in range(40)))
    publish(stream, trade(1, userid="u1", price=5), trade(2, userid="new", price=-big))

    passed, description, totals = check(stream)

    newest = sorted(stream.expected_rows(), key=lambda row: row["kafka_offset"])
    rows = list({row["userid"]: row for row in newest}.values())
    assert passed, description
    assert description.startswith(f"{len(rows)} rows and ")
    price, quantity = sum(row["price"] for row in rows), sum(row["quantity"] for row in rows)
    for engine in ("Spark", "DuckDB through Glue", "Snowflake"):
        shown = next(total for total in totals if total["engine"] == engine)
        assert (shown["sum of price"], shown["sum of quantity"]) == (str(price), str(quantity))


def test_engines_check_outdated_engine_is_named_with_lag(resources):
    stream = Stream(resources, partitions=1)
    publish(stream, trade(1))
    publish(stream, trade(2), everywhere=False)
    # While the lag is within its limit, the numbers are compared with those of the snapshot that the engine shows.
    assert check(stream)[0]

    stream.topic = stream.topic.model_copy(update={"max_lag_seconds": 0})
    passed, description, _ = check(stream)
    assert not passed
    assert (
        "Iceberg → Glue: 1 snapshot behind" in description and "Iceberg → Snowflake: 1 snapshot behind" in description
    )


def test_engines_check_unpublished_registration_fails(resources):
    stream = Stream(resources, partitions=1)
    publish(stream, trade(1))
    spark = resources.spark.session(resources.catalog.spark_settings())
    copy = f"lake.`{stream.namespace}`.`copy`"
    spark.sql(f"CREATE TABLE {copy} USING iceberg AS SELECT * FROM lake.`{stream.namespace}`.`{stream.topic.table}`")
    location = stream.table("copy").metadata_location
    glue, name = resources.glue, stream.topic.table
    registration = glue.client().get_table(CatalogId=glue.catalog_id, DatabaseName=stream.namespace, Name=name)["Table"]
    parameters = registration["Parameters"] | {"metadata_location": location}
    altered = {"Name": name, "Parameters": parameters, "StorageDescriptor": registration["StorageDescriptor"]}
    glue.client().update_table(CatalogId=glue.catalog_id, DatabaseName=stream.namespace, TableInput=altered)

    passed, description, _ = check(stream)
    assert not passed and "never published" in description


def test_differences_describe_each_value():
    scales = {"a": 0, "b": 2}
    right = TableTotals.of("Spark", 1, scales, (3, 10, None))
    assert differences(right, TableTotals.of("X", 1, scales, ("3", Decimal("10.00"), None))) == []
    assert differences(right, TableTotals.of("X", 1, scales, (2, 9, 0))) == [
        "X has 2 rows, Spark 3",
        "X sums a to 9, Spark to 10",
        "X sums b to 0, Spark to None",
    ]


def test_engines_check_extreme_values_and_new_column_agree(resources):
    def schema(*fields):
        return json.dumps({"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields]})

    money = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
    first = schema(("userid", "string"), ("big", "long"), ("money", money), ("none", ["null", "int"]))
    later = json.loads(first)
    later["fields"].append({"name": "more", "type": ["null", "long"], "default": None})
    stream = Stream(resources, partitions=1)
    rows = [{"userid": "a", "big": 2**63 - 1, "money": Decimal("123456789012345678.99"), "none": None}] * 3

    def produce(text, records):
        stream.produce([{"value": framed(stream.schema(text), text, record)} for record in records])
        stream.ingest()

    produce(first, rows)
    stream.show("glue")
    stream.show("snowflake")
    # Glue and Snowflake still show the table without the new column.
    produce(json.dumps(later), [rows[0] | {"more": 1}])

    passed, description, totals = check(stream)
    assert passed, description
    assert description.startswith("3 rows and ")
    for column, value in (("big", str(3 * (2**63 - 1))), ("money", "370370367037037036.97"), ("none", None)):
        assert len(totals) >= 3 and {row[f"sum of {column}"] for row in totals} == {value}
