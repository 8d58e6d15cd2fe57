"""Tables that an operator drops, and perhaps creates again, while another program prepares a commit."""

import pyarrow as pa
import pytest

from lakehouse.core.errors import CommitConflict

ROWS = pa.table({"a": pa.array([1, 2], pa.int64())})
NAME = "trading", "orders"


def staged(catalog):
    """Return a table with a staging branch."""
    table = catalog.iceberg().create_table(NAME, ROWS.schema)
    table.append(ROWS)
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, "ingest_1").commit()
    return table


@pytest.mark.parametrize("is_created_again", [False, True])
@pytest.mark.parametrize("operation", ["publish", "drop staging"])
def test_commit_to_dropped_table_is_conflict(catalog, operation, is_created_again):
    table = staged(catalog)
    catalog.iceberg().drop_table(NAME)
    if is_created_again:
        staged(catalog)
    before = catalog.iceberg().load_table(NAME).metadata if is_created_again else None

    with pytest.raises(CommitConflict, match=r"trading\.orders"):
        if operation == "publish":
            catalog.publish(table, "ingest_1", table.metadata.current_snapshot_id)
        else:
            catalog.drop_staging(table)

    if is_created_again:
        assert catalog.iceberg().load_table(NAME).metadata == before
    else:
        assert not catalog.iceberg().table_exists(NAME)
