"""Audit of keys: which snapshots are known to have no null key, so that only later files are inspected."""

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from lakehouse.config.checks import KEY_NOT_NULL
from lakehouse.core.offsets.batch import Counts
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.commits.audit import Staged, audit
from lakehouse.pipeline.engine_values import NullKeys

ORDERS = TableRef("trading", "orders")
BRANCH = "ingest_1"


class Counting:
    """An engine that counts two rows with a null key whenever it is asked."""

    def count(self, question):
        assert question == NullKeys(ORDERS, BRANCH, ("id",))
        return 2


@pytest.fixture
def table(catalog):
    """Return a table with a published row, and a branch with one more."""
    table = catalog.iceberg().create_table(ORDERS.identifier, pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, BRANCH).commit()
    table.append(pa.table({"id": [2]}), branch=BRANCH)
    return table


def has_no_null_key(catalog):
    table = catalog.load(ORDERS)
    staged = Staged(BRANCH, table.metadata.current_snapshot_id, {}, 1, [Counts(consumed=1, rows=1)])
    return next(
        finding.passed for finding in audit(Counting(), table, ("id",), staged) if finding.check == KEY_NOT_NULL
    )


def test_rows_before_another_column_became_the_key_are_inspected(catalog, table):
    assert has_no_null_key(catalog)
    with table.update_schema() as update:
        update.rename_column("id", "old_id")
    with table.update_schema() as update:
        update.add_column("id", LongType())
    table.append(pa.table({"old_id": [None], "id": [3]}).cast(table.schema().as_arrow()), branch=BRANCH)

    assert not has_no_null_key(catalog)


def test_rows_of_recreated_table_are_inspected(catalog, table):
    assert has_no_null_key(catalog)
    catalog.iceberg().drop_table(ORDERS.identifier)
    recreated = catalog.iceberg().create_table(ORDERS.identifier, table.schema())
    recreated.append(pa.table({"id": pa.array([None], pa.int64())}))
    recreated.manage_snapshots().create_branch(recreated.metadata.current_snapshot_id, BRANCH).commit()
    recreated.append(pa.table({"id": [2]}), branch=BRANCH)

    assert not has_no_null_key(catalog)
