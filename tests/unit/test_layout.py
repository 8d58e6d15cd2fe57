"""Partitioning that changes: each change is taken, whatever the table was partitioned by before."""

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from lakehouse.core.errors import SchemaError
from resources.catalog import Catalog

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "at", TimestamptzType()),
    NestedField(3, "name", StringType()),
    NestedField(4, "at_day", StringType()),
)


@pytest.fixture
def catalog(tmp_path):
    (tmp_path / "warehouse").mkdir()
    catalog = Catalog(type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.ensure_table("n", "t", SCHEMA)
    return catalog


def partitioned(catalog, *partition_by):
    """What the table is partitioned by after lakehouse.yaml asked for it."""
    catalog.arrange(catalog.load("n", "t"), partition_by, ())
    table = catalog.load("n", "t")
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
def test_a_change_of_partitioning_is_taken_and_so_is_the_way_back(catalog, steps):
    for term, transform in steps:
        column = term.rpartition("(")[2].rpartition(", ")[2].rstrip(")")
        assert partitioned(catalog, term) == [(column, transform)]


def test_a_table_that_was_partitioned_under_another_name_follows(catalog):
    with catalog.load("n", "t").update_spec() as spec:
        spec.add_field("id", "bucket[16]", "id_bucket_32")

    assert partitioned(catalog, "bucket(16, id)") == [("id", "bucket[16]")]
    assert partitioned(catalog, "bucket(32, id)", "bucket(4, name)") == [("id", "bucket[32]"), ("name", "bucket[4]")]


def test_a_partitioning_that_iceberg_refuses_is_an_error_that_says_so(catalog):
    with pytest.raises(SchemaError, match="cannot be partitioned by day\\(at\\), hour\\(at\\)"):
        partitioned(catalog, "day(at)", "hour(at)")
