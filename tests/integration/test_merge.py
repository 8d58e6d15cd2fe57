"""Merges of rows by key into a branch: rows that are replaced, deleted, added and kept."""

import datetime as dt
import uuid

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.connect.merge import MergeIntoWriter

from lakehouse.core.sql import SPARK
from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.engine_values import Target
from spark.decoding.decoded import PREFIX
from spark.tables import commits, merge

NAMESPACE = "merged"


class Branch:
    """A table with rows on main and a branch; `columns` is SQL, and rows are tuples in the order of the columns."""

    def __init__(self, spark, columns, rows):
        self.spark, self.columns = spark, columns
        self.name = f"t{uuid.uuid4().hex[:10]}"
        ref = TableRef(NAMESPACE, self.name)
        self.table, self.target = ref.spark_path(), Target(ref, "staged", {"lakehouse.batch": "1"})
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {SPARK.identifier(naming.CATALOG, NAMESPACE)}")
        modes = ", ".join(f"'write.{kind}.mode' = 'merge-on-read'" for kind in ("merge", "delete", "update"))
        spark.sql(
            f"CREATE TABLE {self.table} ({columns}) USING iceberg TBLPROPERTIES ('format-version' = '2', {modes})"
        )
        # Each row has its own file, so that file skipping has files to skip.
        for row in rows:
            spark.createDataFrame([row], columns).writeTo(self.table).append()
        spark.sql(f"ALTER TABLE {self.table} CREATE BRANCH staged")

    def replace(self, key, rows):
        """Merge `rows`, which end with a boolean for tombstones, and return the rows of the branch."""
        batch = with_tombstones(self.spark.createDataFrame(rows, f"{self.columns}, deleted boolean"))
        merge.replace(batch, self.target, key)
        return self.rows()

    def add_missing(self, key, rows):
        return merge.add_missing(self.spark.createDataFrame(rows, self.columns), self.target, key)

    def rows(self, table=None):
        return sorted((tuple(row) for row in self.spark.table(table or commits.path(self.target)).collect()), key=repr)


def with_tombstones(rows):
    """Return rows with `deleted` renamed to the column in which decoded records mark tombstones."""
    return rows.withColumnRenamed("deleted", PREFIX + "tombstone")


@pytest.fixture(scope="module")
def spark(resources):
    return resources.spark.session(resources.catalog.spark_settings())


def test_replace_updates_deletes_and_inserts_by_key(spark):
    branch = Branch(spark, "id string, n int", [("a", 1), ("b", 1), ("c", 1)])

    batch = [("a", 2, False), ("b", None, True), ("new", 3, False), ("never there", None, True)]

    assert branch.replace(("id",), batch) == [("a", 2), ("c", 1), ("new", 3)]
    assert branch.rows(branch.table) == [("a", 1), ("b", 1), ("c", 1)]


def test_replace_sets_columns_to_null(spark):
    branch = Branch(spark, "id string, n int", [("a", 1)])

    assert branch.replace(("id",), [("a", None, False)]) == [("a", None)]


def test_null_key_matches_no_row(spark):
    branch = Branch(spark, "id string, n int", [(None, 1), ("a", 1)])

    assert branch.replace(("id",), [(None, 2, False)]) == [("a", 1), (None, 1), (None, 2)]
    assert branch.add_missing(("id",), [(None, 3), ("a", 3)]) == 1


def test_replace_key_with_two_rows_replaces_both(spark):
    branch = Branch(spark, "id string, n int", [("a", 1), ("a", 2), ("b", 1)])

    assert branch.replace(("id",), [("a", 3, False)]) == [("a", 3), ("b", 1)]


def test_replace_compares_all_key_columns(spark):
    branch = Branch(spark, "day date, `odd.name` string, n int", [(dt.date(2026, 1, 1), "a", 1)])
    other = [(dt.date(2026, 1, 2), "a", 2, False), (dt.date(2026, 1, 1), "b", 2, False)]

    assert len(branch.replace(("day", "odd.name"), other)) == 3
    same = [(dt.date(2026, 1, 1), "a", 3, False)]
    assert [n for *_, n in branch.replace(("day", "odd.name"), same)] == [3, 2, 2]


def test_commits_after_interrupted_merge_have_exactly_their_properties(spark, monkeypatch):
    branch = Branch(spark, "id string, n int", [("a", 1)])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(MergeIntoWriter, "merge", raise_interrupt)
        branch.replace(("id",), [("a", 2, False)])

    branch.add_missing(("id",), [("b", 2)])
    branch.replace(("id",), [("a", 2, False)])

    snapshots = spark.sql(f"SELECT operation, summary FROM {branch.table}.snapshots ORDER BY committed_at").collect()
    properties = [{k: v for k, v in row["summary"].items() if k.startswith("lakehouse.")} for row in snapshots]
    batch = {"lakehouse.batch": "1"}
    assert properties == [{}, batch, {"lakehouse.part": "delete"}, {**batch, "lakehouse.parts": "2"}]


def raise_interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("tombstones", [[], [("a", None, True)]])
def test_replace_without_rows_still_commits(spark, tombstones):
    branch = Branch(spark, "id string, n int", [("a", 1)])
    before = spark.sql(f"SELECT * FROM {branch.table}.snapshots").count()

    assert branch.replace(("id",), tombstones) == ([] if tombstones else [("a", 1)])
    assert spark.sql(f"SELECT * FROM {branch.table}.snapshots").count() > before


LATE = dt.datetime(2026, 11, 1, 1, 30)
KEYS = [
    ("long", [-(2**63), 2**40, 2**63 - 1]),
    ("string", ["", "a" * 40 + "x", "a" * 40 + "y", "\uffff", "\U0001f600"]),
    ("double", [float("-inf"), -0.5, 0.5, float("nan")]),
    ("timestamp", [dt.datetime(1, 1, 2), LATE, LATE + dt.timedelta(microseconds=1), LATE + dt.timedelta(hours=1)]),
    ("decimal(38, 2)", ["-1.25", "0.00", "1" * 36 + ".01"]),
    ("boolean", [False, True]),
    ("binary", [b"", b"\x00\xff", b"\xff"]),
]


@pytest.mark.parametrize(("type_", "keys"), KEYS, ids=[type_ for type_, _ in KEYS])
def test_keys_of_any_type_match_at_extremes(spark, type_, keys):
    from decimal import Decimal

    keys = [Decimal(key) for key in keys] if type_.startswith("decimal") else keys
    branch = Branch(spark, f"id {type_}, n int", [(key, 1) for key in keys])

    assert branch.add_missing(("id",), [(key, 2) for key in keys]) == 0
    assert [n for _, n in branch.replace(("id",), [(key, 2, False) for key in keys])] == [2] * len(keys)


def test_negative_zero_matches_zero(spark):
    branch = Branch(spark, "id double, n int", [(0.0, 1)])

    assert [n for _, n in branch.replace(("id",), [(-0.0, 2, False)])] == [2]


def test_timestamp_keys_match_in_repeated_hour(spark):
    branch = Branch(spark, "id timestamp, n int", [(dt.datetime(2026, 11, 1, h, 30, tzinfo=dt.UTC), 1) for h in (5, 6)])
    moment = dt.datetime(2026, 11, 1, 6, 30, tzinfo=dt.UTC)
    batch = with_tombstones(spark.createDataFrame([(moment, 2, False)], "id timestamp, n int, deleted boolean"))
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        # On this day, 01:30 occurs twice in New York.
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        merge.replace(batch, branch.target, ("id",))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)

    assert sorted(n for _, n in branch.rows()) == [1, 2]


def test_add_missing_adds_new_keys_and_returns_their_number(spark):
    branch = Branch(spark, "id string, n int", [("a", 1), ("b", 1)])

    assert branch.add_missing(("id",), [("a", 2), ("new", 2), ("newer", None)]) == 2
    assert branch.rows() == [("a", 1), ("b", 1), ("new", 2), ("newer", None)]
    assert branch.add_missing(("id",), [("a", 3), ("new", 3)]) == 0
    assert branch.rows() == [("a", 1), ("b", 1), ("new", 2), ("newer", None)]


def test_observed_rows_are_counted_once(spark):
    branch = Branch(spark, "id string, n int", [("a", 1)])
    counted = [Observation(), Observation()]
    rows = spark.createDataFrame([("a", 2), ("b", 2), ("c", 2)], branch.columns)

    added = merge.add_missing(rows.observe(counted[0], F.count(F.lit(1)).alias("n")), branch.target, ("id",))
    replaced = with_tombstones(rows.withColumn("deleted", F.lit(False))).observe(
        counted[1], F.count(F.lit(1)).alias("n")
    )
    merge.replace(replaced, branch.target, ("id",))

    assert (added, [observation.get["n"] for observation in counted]) == (2, [3, 3])
    assert branch.rows() == [("a", 2), ("b", 2), ("c", 2)]


def test_add_missing_adds_deleted_key(spark):
    branch = Branch(spark, "id string, n int", [("a", 1)])
    branch.replace(("id",), [("a", None, True)])

    assert branch.add_missing(("id",), [("a", 2)]) == 1
    assert branch.rows() == [("a", 2)]


def test_replace_releases_cached_batch(spark):
    branch = Branch(spark, "id string, n int", [("a", 1)])
    batch = with_tombstones(spark.createDataFrame([("a", 2, False)], "id string, n int, deleted boolean"))

    merge.replace(batch, branch.target, ("id",))

    assert batch.storageLevel.useMemory is False
