"""Changes of a table's partitioning."""

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from lakehouse.core.errors import SchemaError
from lakehouse.core.tables.naming import TableRef

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "at", TimestamptzType()),
    NestedField(3, "name", StringType()),
    NestedField(4, "at_day", StringType()),
)


@pytest.fixture(autouse=True)
def table(catalog):
    catalog.ensure_table(TableRef("n", "t"), SCHEMA)


def partition(catalog, *partition_by):
    """Set the table's partitioning and return it as columns and transforms."""
    catalog.apply_layout(catalog.load(TableRef("n", "t")), partition_by, ())
    table = catalog.load(TableRef("n", "t"))
    columns = {field.field_id: field.name for field in table.schema().fields}
    return [(columns[field.source_id], str(field.transform)) for field in table.spec().fields]


@pytest.mark.parametrize(
    "steps",
    [
        [("bucket(16, id)", "bucket[16]"), ("bucket(32, id)", "bucket[32]"), ("bucket(16, id)", "bucket[16]")],
        [("truncate(4, name)", "truncate[4]"), ("truncate(8, name)", "truncate[8]"), ("name", "identity")],
        [("day(at)", "day"), ("hour(at)", "hour"), ("day(at)", "day")],
        [("id", "identity"), ("bucket(4, id)", "bucket[4]"), ("id", "identity")],
    ],
    ids=["buckets", "widths", "times", "identity"],
)
def test_arrange_changed_partitioning_is_applied(catalog, steps):
    for term, transform in steps:
        column = term.rpartition("(")[2].rpartition(", ")[2].rstrip(")")
        assert partition(catalog, term) == [(column, transform)]


def test_arrange_existing_partition_name_does_not_conflict(catalog):
    with catalog.load(TableRef("n", "t")).update_spec() as spec:
        spec.add_field("id", "bucket[16]", "id_bucket_32")

    assert partition(catalog, "bucket(16, id)") == [("id", "bucket[16]")]
    assert partition(catalog, "bucket(32, id)", "bucket(4, name)") == [("id", "bucket[32]"), ("name", "bucket[4]")]


def test_arrange_partitioning_rejected_by_iceberg_raises(catalog):
    with pytest.raises(SchemaError, match="cannot be partitioned by day\\(at\\), hour\\(at\\)"):
        partition(catalog, "day(at)", "hour(at)")
