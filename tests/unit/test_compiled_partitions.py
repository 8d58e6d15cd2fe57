"""Partitions of the compiled decoder: values of each transform and type, the places of files, and what is refused."""

import io
import json
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import ObjectStoreLocationProvider, SimpleLocationProvider
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from spark.native import plan
from spark.native.places import Places
from spark.native.plan import Unsupported
from tests.support.topics import framed

DAY, HOUR = 86_400_000_000, 3_600_000_000
YEAR_ONE, YEAR_9999 = -719_162, 2_932_896
DAYS = [0, -1, 1, -31, -32, 30, 31, 58, 59, 364, 365, -365, -366, 11_016, 11_017, YEAR_ONE, YEAR_9999]
MICROS = [0, -1, 1, HOUR - 1, HOUR, -HOUR, -HOUR - 1, *(day * DAY + rest for day in DAYS for rest in (0, DAY - 1))]
DECIMALS = [Decimal(n).scaleb(-2) for n in (0, 1, -1, 127, 128, -128, -129, 1065, -1065, 99_999_99, -99_999_00)]
TEXTS = ["", "a", "iceberg", "ä😀€bc", "x" * 40, "a/b=c %?#+&", "\0", "null"]
INTS = [0, 1, -1, 9, 10, -10, -11, 34, 2**31 - 1, -(2**31) + 8]
LONGS = [*INTS, 2**63 - 1, -(2**63) + 8]
NUMBERS = ("identity", "void", "bucket[1]", "bucket[7]", "truncate[1]", "truncate[10]")
DATES = ("identity", "void", "bucket[7]", "year", "month", "day")
TYPES = {
    "boolean": ("boolean", BooleanType(), [True, False], ("identity", "void")),
    "int": ("int", IntegerType(), INTS, NUMBERS),
    "long": ("long", LongType(), LONGS, NUMBERS),
    "string": ("string", StringType(), TEXTS, (*NUMBERS, "truncate[3]")),
    "bytes": ("bytes", BinaryType(), [text.encode() for text in TEXTS], (*NUMBERS, "truncate[3]")),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        DecimalType(9, 2),
        DECIMALS,
        (*NUMBERS, "truncate[50]"),
    ),
    "date": ({"type": "int", "logicalType": "date"}, DateType(), DAYS, DATES),
    "timestamp": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        TimestampType(),
        MICROS,
        (*DATES, "hour"),
    ),
    "timestamptz": ({"type": "long", "logicalType": "timestamp-micros"}, TimestamptzType(), MICROS, (*DATES, "hour")),
}
NODES = {"boolean": "boolean", "int": "int", "long": "long", "string": "string", "bytes": "bytes", "date": "int"}


def spec(*transforms, source=1):
    fields = [PartitionField(source, 1000 + n, parse_transform(text), f"p/{n}") for n, text in enumerate(transforms)]
    return PartitionSpec(*fields)


def schema(type_):
    return Schema(NestedField(1, "c", type_, required=False))


def decided(name, values, transforms):
    """Return the partitions with the values of their rows."""
    lakehouse_native = pytest.importorskip("lakehouse_native")
    avro, type_, _, _ = TYPES[name]
    table = schema(type_)
    node = {"kind": "decimal", "size": None, "precision": 9} if name == "decimal" else {"kind": NODES.get(name, "long")}
    union = {"kind": "union", "branches": [{"kind": "null"}, node]}
    record = {"kind": "record", "fields": [{"node": union, "column": 0}], "absent": []}
    fields = plan.partition_fields(spec(*transforms), table)
    column = {"name": "c", "id": 1, "type": {"bytes": "binary"}.get(name, name)}
    column |= {"precision": 9, "scale": 2} if name == "decimal" else {}
    layout = {"writers": {1: record}, "columns": [column], "metadata": [], "partition": fields}
    reader = json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": ["null", avro]}]})
    messages = [framed(1, reader, {"c": value}) for value in values]
    files, left = lakehouse_native.decide_values(json.dumps(layout), messages)
    assert left == []
    places = Places(SimpleLocationProvider("s3://lake/t", {}), spec(*transforms), table)
    rows = [pq.read_table(io.BytesIO(file))["c"].to_pylist() for _, file in files]
    return [(places.partition(partition), of_file) for (partition, _), of_file in zip(files, rows, strict=True)]


@pytest.mark.parametrize("name", TYPES)
def test_partition_values_equal_those_of_pyiceberg(name):
    _, type_, values, transforms = TYPES[name]
    functions = [parse_transform(text).transform(type_) for text in transforms]

    for value in [*values, None]:
        [(partition, rows)] = decided(name, [value, value], transforms)
        assert list(partition) == [function(value) for function in functions], value
        assert len(rows) == 2


def test_rows_are_in_the_file_of_their_partition():
    values = [None, *range(-40, 40, 3), None]

    files = decided("long", values, ["truncate[20]", "bucket[2]"])

    truncate, bucket = (parse_transform(text).transform(LongType()) for text in ("truncate[20]", "bucket[2]"))
    expected = {}
    for value in values:
        expected.setdefault((truncate(value), bucket(value)), []).append(value)
    assert {tuple(partition): rows for partition, rows in files} == expected


def test_rows_of_too_many_partitions_are_refused():
    assert len(decided("int", range(16), ["identity"])) == 16
    with pytest.raises(RuntimeError, match="the rows of a task are of more than 16 partitions"):
        decided("int", range(17), ["identity"])


@pytest.mark.parametrize(
    "name, value, transform", [("int", -(2**31), "truncate[10]"), ("long", -(2**63), "truncate[3]")]
)
def test_partition_value_beyond_its_type_is_refused_without_it(name, value, transform):
    with pytest.raises(RuntimeError, match="^a transformed value exceeds its type$"):
        decided(name, [value], [transform])


@pytest.mark.parametrize(
    "type_, transform",
    [
        (FloatType(), "identity"),
        (DoubleType(), "identity"),
        (DoubleType(), "bucket[4]"),
        (BooleanType(), "bucket[4]"),
        (DateType(), "hour"),
        (LongType(), "day"),
        (DateType(), "truncate[4]"),
        (StringType(), f"bucket[{2**30 + 1}]"),
        (LongType(), f"truncate[{2**31}]"),
        (LongType(), "zorder"),
        (ListType(2, LongType()), "identity"),
    ],
)
def test_uncertain_partition_field_is_refused_with_reason(type_, transform):
    with pytest.raises(Unsupported, match="the partition field 'p/0' is "):
        plan.partition_fields(spec(transform), schema(type_))


def test_partition_field_of_no_column_is_refused():
    inner = StructType(NestedField(2, "inner", LongType(), required=False))

    for source in (2, 3):
        with pytest.raises(Unsupported, match="the source of partition field 'p/0' is not a column"):
            plan.partition_fields(spec("identity", source=source), schema(inner))


def test_locations_name_the_escaped_partition():
    values = [b"a/b=c %?#", None]
    expected = "p%2F0=a%2Fb%3Dc+%25%3F%23/p%2F1=null"

    def location(provider, of, values):
        places = Places(provider, of, schema(StringType()))
        return places.location("f.parquet", places.folder(values))

    simple = SimpleLocationProvider("s3://lake/t", {})
    assert location(simple, spec("identity", "void"), values) == f"s3://lake/t/data/{expected}/f.parquet"
    assert location(simple, spec(), []) == "s3://lake/t/data/f.parquet"
    hashed = ObjectStoreLocationProvider("s3://lake/t", {})
    assert location(hashed, spec("identity", "void"), values).endswith(f"/{expected}/f.parquet")
    plain = ObjectStoreLocationProvider("s3://lake/t", {"write.object-storage.partitioned-paths": "false"})
    assert "=" not in location(plain, spec("identity", "void"), values)


def test_folders_of_times_are_readable():
    places = Places(SimpleLocationProvider("s3://lake/t", {}), spec("day", "hour"), schema(TimestamptzType()))
    values = [(-1).to_bytes(4, "little", signed=True)] * 2

    assert places.folder(values) == "p%2F0=1969-12-31/p%2F1=1969-12-31-23"
