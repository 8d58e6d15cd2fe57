"""Dropping of branches that killed writers left behind."""

import time

import pyarrow as pa

ROWS = pa.table({"a": pa.array([1, 2], pa.int64())})


def table_with_branches(catalog, *branches):
    table = catalog.iceberg().create_table(("trading", "orders"), ROWS.schema)
    table.append(ROWS)
    for branch in branches:
        table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, branch).commit()
    return table


def test_drop_abandoned_branch_of_killed_writer_is_dropped(catalog):
    now = int(time.time())
    killed, running = (f"dry_run_{started}_0123456789ab" for started in (now - 90_000, now - 60))
    table = table_with_branches(catalog, "ingest_1", killed, running, "dry_run_of_mine")

    assert set(catalog.drop_abandoned(table).metadata.refs) == {"main", "ingest_1", running, "dry_run_of_mine"}
    assert set(catalog.drop_staging(table).metadata.refs) == {"main", running, "dry_run_of_mine"}
