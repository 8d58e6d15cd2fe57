"""Rows by key into a branch, by value: what is replaced, deleted, added, left alone."""

import datetime as dt
import uuid
from contextlib import contextmanager, nullcontext

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakehouse.core import naming
from lakehouse.core.sql import SPARK
from spark import merge
from spark.decoded import PREFIX

NAMESPACE = "merged"
PROPERTY = "spark.sql.iceberg.snapshot-property.part"


class Branch:
    """A table with rows on main, and a branch of it. Columns: `columns` as SQL, rows as tuples in their order."""

    def __init__(self, spark, columns, rows):
        self.spark, self.columns = spark, columns
        self.name = f"t{uuid.uuid4().hex[:10]}"
        self.table = naming.spark_table(NAMESPACE, self.name)
        self.target = naming.spark_table(NAMESPACE, self.name, branch="staged")
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {SPARK.identifier(naming.CATALOG, NAMESPACE)}")
        modes = ", ".join(f"'write.{kind}.mode' = 'merge-on-read'" for kind in ("merge", "delete", "update"))
        spark.sql(
            f"CREATE TABLE {self.table} ({columns}) USING iceberg TBLPROPERTIES ('format-version' = '2', {modes})"
        )
        # One file a row, so that whatever skips files has files to skip.
        for row in rows:
            spark.createDataFrame([row], columns).writeTo(self.table).append()
        spark.sql(f"ALTER TABLE {self.table} CREATE BRANCH staged")

    def replace(self, key, rows, first=None, last=None):
        """`rows` end with whether they are tombstones."""
        batch = with_tombstones(self.spark.createDataFrame(rows, f"{self.columns}, deleted boolean"))
        merge.replace(batch, self.target, "staged", key, first or nullcontext(), last or nullcontext())
        return self.rows()

    def add_missing(self, key, rows):
        return merge.add_missing(self.spark.createDataFrame(rows, self.columns), self.target, key)

    def rows(self, table=None):
        return sorted((tuple(row) for row in self.spark.table(table or self.target).collect()), key=repr)


def with_tombstones(rows):
    """Rows with `deleted` where decoded records have it."""
    return rows.withColumnRenamed("deleted", PREFIX + "tombstone")


@pytest.fixture(scope="module")
def spark(resources):
    return resources.spark.session(resources.catalog.spark_settings())


def test_replaces_deletes_inserts_and_leaves_the_rest(spark):
    branch = Branch(spark, "id string, n int", [("a", 1), ("b", 1), ("c", 1)])

    batch = [("a", 2, False), ("b", None, True), ("new", 3, False), ("never there", None, True)]

    assert branch.replace(("id",), batch) == [("a", 2), ("c", 1), ("new", 3)]
    assert branch.rows(branch.table) == [("a", 1), ("b", 1), ("c", 1)]


def test_a_replaced_row_may_become_null_but_for_its_key(spark):
    branch = Branch(spark, "id string, n int", [("a", 1)])

    assert branch.replace(("id",), [("a", None, False)]) == [("a", None)]


def test_a_null_key_matches_no_row(spark):
    branch = Branch(spark, "id string, n int", [(None, 1), ("a", 1)])

    assert branch.replace(("id",), [(None, 2, False)]) == [("a", 1), (None, 1), (None, 2)]
    assert branch.add_missing(("id",), [(None, 3), ("a", 3)]) == 1


def test_every_row_of_a_key_that_the_table_has_twice_goes(spark):
    branch = Branch(spark, "id string, n int", [("a", 1), ("a", 2), ("b", 1)])

    assert branch.replace(("id",), [("a", 3, False)]) == [("a", 3), ("b", 1)]


def test_all_columns_of_a_key_identify(spark):
    branch = Branch(spark, "day date, `odd.name` string, n int", [(dt.date(2026, 1, 1), "a", 1)])
    other = [(dt.date(2026, 1, 2), "a", 2, False), (dt.date(2026, 1, 1), "b", 2, False)]

    assert len(branch.replace(("day", "odd.name"), other)) == 3
    same = [(dt.date(2026, 1, 1), "a", 3, False)]
    assert [n for *_, n in branch.replace(("day", "odd.name"), same)] == [3, 2, 2]


def test_each_commit_says_which_part_it_is(spark):
    branch = Branch(spark, "id string, n int", [("a", 1)])

    @contextmanager
    def said(what):
        spark.conf.set(PROPERTY, what)
        yield
        spark.conf.unset(PROPERTY)

    branch.replace(("id",), [("a", 2, False)], said("first"), said("last"))

    snapshots = spark.sql(f"SELECT operation, summary FROM {branch.table}.snapshots ORDER BY committed_at").collect()
    parts = [(row["operation"], row["summary"].get("part")) for row in snapshots]
    assert parts == [("append", None), ("delete", "first"), ("append", "last")]


@pytest.mark.parametrize("tombstones", [[], [("a", None, True)]])
def test_a_batch_without_rows_still_makes_its_last_commit(spark, tombstones):
    branch = Branch(spark, "id string, n int", [("a", 1)])
    before = spark.sql(f"SELECT * FROM {branch.table}.snapshots").count()

    assert branch.replace(("id",), tombstones) == ([] if tombstones else [("a", 1)])
    assert spark.sql(f"SELECT * FROM {branch.table}.snapshots").count() > before


LATE = dt.datetime(2026, 11, 1, 1, 30)
KEYS = [
    ("int", [-(2**31), -1, 0, 2**31 - 1]),
    ("long", [-(2**63), 2**40, 2**63 - 1]),
    ("string", ["", "a" * 40 + "x", "a" * 40 + "y", "\uffff", "\U0001f600"]),
    ("double", [float("-inf"), -0.5, 0.5, float("nan")]),
    ("timestamp", [dt.datetime(1, 1, 2), LATE, LATE + dt.timedelta(microseconds=1), LATE + dt.timedelta(hours=1)]),
    ("date", [dt.date(1, 1, 1), dt.date(2026, 1, 1), dt.date(9999, 12, 31)]),
    ("decimal(38, 2)", ["-1.25", "0.00", "1" * 36 + ".01"]),
    ("boolean", [False, True]),
    ("binary", [b"", b"\x00\xff", b"\xff"]),
]


@pytest.mark.parametrize(("type_", "keys"), KEYS, ids=[type_ for type_, _ in KEYS])
def test_keys_of_any_type_are_found_at_the_ends_of_their_span(spark, type_, keys):
    from decimal import Decimal

    keys = [Decimal(key) for key in keys] if type_.startswith("decimal") else keys
    branch = Branch(spark, f"id {type_}, n int", [(key, 1) for key in keys])

    assert branch.add_missing(("id",), [(key, 2) for key in keys]) == 0
    assert [n for _, n in branch.replace(("id",), [(key, 2, False) for key in keys])] == [2] * len(keys)


def test_zero_is_zero_whatever_its_sign(spark):
    branch = Branch(spark, "id double, n int", [(0.0, 1)])

    assert [n for _, n in branch.replace(("id",), [(-0.0, 2, False)])] == [2]


def test_times_are_compared_as_moments_whatever_the_session_calls_them(spark):
    branch = Branch(spark, "id timestamp, n int", [(dt.datetime(2026, 11, 1, h, 30, tzinfo=dt.UTC), 1) for h in (5, 6)])
    moment = dt.datetime(2026, 11, 1, 6, 30, tzinfo=dt.UTC)
    batch = with_tombstones(spark.createDataFrame([(moment, 2, False)], "id timestamp, n int, deleted boolean"))
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        # Half past one comes twice on this day.
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        merge.replace(batch, branch.target, "staged", ("id",), nullcontext(), nullcontext())
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)

    assert sorted(n for _, n in branch.rows()) == [1, 2]


def test_adds_what_is_missing_and_says_how_much(spark):
    branch = Branch(spark, "id string, n int", [("a", 1), ("b", 1)])

    assert branch.add_missing(("id",), [("a", 2), ("new", 2), ("newer", None)]) == 2
    assert branch.rows() == [("a", 1), ("b", 1), ("new", 2), ("newer", None)]
    assert branch.add_missing(("id",), [("a", 3), ("new", 3)]) == 0
    assert branch.rows() == [("a", 1), ("b", 1), ("new", 2), ("newer", None)]


def test_rows_that_are_observed_are_counted_once(spark):
    branch = Branch(spark, "id string, n int", [("a", 1)])
    counted = [Observation(), Observation()]
    rows = spark.createDataFrame([("a", 2), ("b", 2), ("c", 2)], branch.columns)

    added = merge.add_missing(rows.observe(counted[0], F.count(F.lit(1)).alias("n")), branch.target, ("id",))
    replaced = with_tombstones(rows.withColumn("deleted", F.lit(False))).observe(
        counted[1], F.count(F.lit(1)).alias("n")
    )
    merge.replace(replaced, branch.target, "staged", ("id",), nullcontext(), nullcontext())

    assert (added, [observation.get["n"] for observation in counted]) == (2, [3, 3])
    assert branch.rows() == [("a", 2), ("b", 2), ("c", 2)]


def test_a_deleted_key_is_missing(spark):
    branch = Branch(spark, "id string, n int", [("a", 1)])
    branch.replace(("id",), [("a", None, True)])

    assert branch.add_missing(("id",), [("a", 2)]) == 1
    assert branch.rows() == [("a", 2)]


def test_nothing_stays_held_on_the_server(spark):
    branch = Branch(spark, "id string, n int", [("a", 1)])
    batch = with_tombstones(spark.createDataFrame([("a", 2, False)], "id string, n int, deleted boolean"))

    merge.replace(batch, branch.target, "staged", ("id",), nullcontext(), nullcontext())

    assert batch.storageLevel.useMemory is False
