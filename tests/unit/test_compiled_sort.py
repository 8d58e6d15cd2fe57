"""The order of rows in the files of the compiled decoder, which is that of the Iceberg specification (Sorting)."""

import io
import json
import math
import random
import struct
from decimal import Decimal
from itertools import product

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, parse_transform
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
from spark.native.plan import Unsupported
from tests.support.topics import framed

DAY = 86_400_000_000
NAN = float("nan")
NUMBERS = [0.0, -0.0, 1.5, -1.5, 1e-30, -1e-30, 3e38, -3e38, math.inf, -math.inf, NAN, -NAN, 2.0**-140]
INTS = [0, 1, -1, 9, 10, -10, -11, 34, 2**31 - 1, -(2**31) + 8]
TEXTS = ["", "a", "a\0", "ab", "b", "ä", "😀", "\uffff", "z" * 40, "z" * 39 + "a", "Z", "null"]
NUMERIC = ("identity", "bucket[7]", "truncate[10]")
TEMPORAL = ("identity", "bucket[7]", "year", "month", "day")
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
TYPES = {
    "boolean": ("boolean", BooleanType(), [True, False], ("identity",)),
    "int": ("int", IntegerType(), INTS, NUMERIC),
    "long": ("long", LongType(), [*INTS, 2**63 - 1, -(2**63) + 8], NUMERIC),
    "float": ("float", FloatType(), NUMBERS, ("identity",)),
    "double": ("double", DoubleType(), [*NUMBERS, 1e300, -1e300], ("identity",)),
    "string": ("string", StringType(), TEXTS, (*NUMERIC, "truncate[1]")),
    "binary": ("bytes", BinaryType(), [*(t.encode() for t in TEXTS), b"\xff", b"\x80"], (*NUMERIC, "truncate[1]")),
    "decimal": (
        DECIMAL,
        DecimalType(9, 2),
        [Decimal(n).scaleb(-2) for n in (0, 1, -1, 127, -128, 1065, -1065, 99_999_99)],
        NUMERIC,
    ),
    "date": ({"type": "int", "logicalType": "date"}, DateType(), [0, -1, 1, 31, -32, 365, -366, 11_016], TEMPORAL),
    "timestamp": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        TimestampType(),
        [0, -1, 1, DAY, -DAY, -365 * DAY, 10_000 * DAY, 3_600_000_000],
        (*TEMPORAL, "hour"),
    ),
    "timestamptz": (
        {"type": "long", "logicalType": "timestamp-micros"},
        TimestamptzType(),
        [0, -1, 1, DAY, -DAY, -365 * DAY, 10_000 * DAY, 3_600_000_000],
        (*TEMPORAL, "hour"),
    ),
}
NODES = {
    "date": {"kind": "int"},
    "timestamp": {"kind": "long"},
    "timestamptz": {"kind": "long"},
    "binary": {"kind": "bytes"},
    "decimal": {"kind": "decimal", "size": None, "precision": 9},
}


COLUMNS = {"c": 1, "n": 2}


def key(value):
    """Return what values are compared by: numbers, signs and bits of floating-point numbers, and bytes."""
    if isinstance(value, float):
        [bits] = struct.unpack(">q", struct.pack(">d", value))
        return bits if bits >= 0 else -(bits & (2**63 - 1)) - 1
    return value.encode() if isinstance(value, str) else value


def in_order(rows, fields):
    """Return rows, each a value with its number, in the order of fields, each with its place, function and order."""
    for place, function, descending, nulls_first in reversed(fields):
        absent = [row for row in rows if function(row[place]) is None]
        present = [row for row in rows if function(row[place]) is not None]
        present.sort(key=lambda row: key(function(row[place])), reverse=descending)
        rows = absent + present if nulls_first else present + absent
    return rows


def field(column, transform, descending=False, nulls_first=True):
    direction = SortDirection.DESC if descending else SortDirection.ASC
    nulls = NullOrder.NULLS_FIRST if nulls_first else NullOrder.NULLS_LAST
    return SortField(COLUMNS[column], parse_transform(transform), direction, nulls)


def table_of(type_):
    of_value = NestedField(1, "c", type_, required=False)
    return Schema(of_value, NestedField(2, "n", LongType(), required=False))


def decided(name, rows, order, partition=()):
    """Return the rows of each file, as values with their numbers."""
    lakehouse_native = pytest.importorskip("lakehouse_native")
    avro, type_, _, _ = TYPES[name]
    table = table_of(type_)
    union = {"kind": "union", "branches": [{"kind": "null"}, NODES.get(name, {"kind": name})]}
    nodes = [{"node": union, "column": 0}, {"node": {"kind": "long"}, "column": 1}]
    column = {"name": "c", "id": 1, "type": name} | ({"precision": 9, "scale": 2} if name == "decimal" else {})
    layout = {
        "writers": {1: {"kind": "record", "fields": nodes, "absent": []}},
        "columns": [column, {"name": "n", "id": 2, "type": "long"}],
        "metadata": [],
        "partition": list(partition),
        "sort": plan.sort_fields(SortOrder(*order), table),
    }
    fields = [{"name": "c", "type": ["null", avro]}, {"name": "n", "type": "long"}]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    messages = [framed(1, schema, {"c": value, "n": n}) for value, n in rows]
    files, left = lakehouse_native.decide_values(json.dumps(layout), messages)
    assert left == []
    tables = [pq.read_table(io.BytesIO(file)) for _, file in files]
    return [list(zip(table["c"].to_pylist(), table["n"].to_pylist(), strict=True)) for table in tables]


def numbers(rows):
    return [n for _, n in rows]


@pytest.mark.parametrize("name", TYPES)
def test_rows_are_in_the_order_of_the_specification(name):
    _, type_, values, transforms = TYPES[name]
    values = [*values, None] * 3
    random.Random(name).shuffle(values)
    if name == "float":
        values = [value if value is None else struct.unpack("f", struct.pack("f", value))[0] for value in values]
    rows = [(value, n) for n, value in enumerate(values)]

    for transform, descending, nulls_first in product(transforms, (False, True), (False, True)):
        [file] = decided(name, rows, [field("c", transform, descending, nulls_first)])

        expected = in_order(rows, [(0, parse_transform(transform).transform(type_), descending, nulls_first)])
        assert numbers(file) == numbers(expected), (transform, descending, nulls_first)


@pytest.mark.parametrize("last", [False, True])
def test_equal_rows_are_in_the_order_of_the_next_field(last):
    rows = [(text, n) for n, text in enumerate([*"banana", None, *"ananas", None])]

    [file] = decided("string", rows, [field("c", "identity", True, False), field("n", "identity", last)])

    same = lambda value: value  # noqa: E731 (an identity)
    assert file == in_order(rows, [(0, same, True, False), (1, same, last, True)])


def test_many_rows_are_in_several_sorted_files():
    rows = [(f"{n * 7919 % 97:02}" + "x" * 1_000_000, n) for n in range(97)]

    files = decided("string", rows, [field("c", "identity")])

    assert 1 < len(files) <= 9
    for file in files:
        assert file == sorted(file)
    assert sorted(row for file in files for row in file) == sorted(rows)


def test_files_of_many_partitions_are_sorted():
    rows = [(None if n % 9 == 0 else f"{n % 11}", n) for n in range(1_000)]
    spec = PartitionSpec(PartitionField(2, 1000, BucketTransform(100), "n_bucket"))
    partition = plan.partition_fields(spec, table_of(StringType()))

    files = decided("string", rows, [field("c", "identity", True, False), field("n", "identity", True)], partition)

    bucket = BucketTransform(100).transform(LongType())
    same = lambda value: value  # noqa: E731 (an identity)
    expected = {bucket(n): [] for _, n in rows}
    for row in in_order(rows, [(0, same, True, False), (1, same, True, True)]):
        expected[bucket(row[1])].append(row)
    assert {bucket(file[0][1]): file for file in files} == expected
    assert len(files) == len(expected) > 90


def test_sorted_rows_of_too_many_partitions_are_refused():
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
    partition = plan.partition_fields(spec, table_of(StringType()))
    rows = [("a", n) for n in range(129)]

    assert len(decided("string", rows[:128], [field("c", "identity")], partition)) == 128
    with pytest.raises(RuntimeError, match="the rows of a task are of more than 128 partitions"):
        decided("string", rows, [field("c", "identity")], partition)


@pytest.mark.parametrize("column, value", [("int", -(2**31)), ("long", -(2**63))])
def test_sort_value_beyond_its_type_is_refused_without_it(column, value):
    with pytest.raises(RuntimeError, match="^a transformed value exceeds its type$"):
        decided(column, [(value, 0)], [field("c", "truncate[10]")])


@pytest.mark.parametrize(
    "type_, transform",
    [(DoubleType(), "bucket[4]"), (DateType(), "hour"), (LongType(), "zorder"), (ListType(3, LongType()), "identity")],
)
def test_sort_field_without_known_order_is_refused(type_, transform):
    with pytest.raises(Unsupported, match="the sort field 2 is "):
        plan.sort_fields(SortOrder(field("n", "identity"), field("c", transform)), table_of(type_))


def test_sort_field_of_no_column_is_refused():
    inner = StructType(NestedField(9, "inner", LongType(), required=False))
    order = SortOrder(SortField(9, parse_transform("identity")))

    with pytest.raises(Unsupported, match="the source of sort field 1 is not a column"):
        plan.sort_fields(order, table_of(inner))


def test_void_sort_fields_do_not_sort():
    assert plan.sort_fields(SortOrder(field("c", "void")), table_of(LongType())) == []
