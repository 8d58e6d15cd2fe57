"""Events of a table: operators roll it back or drop it, and other programs commit to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakehouse.core.errors import ClockSkew
from lakehouse.core.tables.table_ref import TableRef
from tests.simulation.catalog import MemoryIcebergCatalog
from tests.simulation.engine import MemorySpark, branch_at
from tests.simulation.maintenance_jobs import expire
from tests.simulation.oracle import Oracle
from tests.simulation.world import World

NEWER = 2
"""Version of a token that this release does not read."""


def roll_back(world: World, iceberg: MemoryIcebergCatalog, oracle: Oracle, name: str) -> None:
    """Roll main back by its newest batch, if nothing followed it and its parent still exists."""
    table = iceberg.find(name)
    target = _before_newest_batch(table) if table else None
    if table is None or target is None:
        return
    oracle.rolled_back_to = target.snapshot_id
    try:
        iceberg.commit_now(table, (), (branch_at("main", target.snapshot_id),))
    except ClockSkew:
        oracle.rolled_back_to = None
        return
    world.record(f"operator: rolled {name} back to {target.snapshot_id}")


def drop(world: World, iceberg: MemoryIcebergCatalog, name: str) -> None:
    """Drop the table, to ingest the topic from its start. The table of dead letters stays."""
    if iceberg.find(name):
        iceberg.drop_table(("lake", name))
        world.record(f"operator: dropped {name}")


def commit_as_other_writer(world: World, spark: MemorySpark, name: str, *, token: bool = False) -> None:
    """Commit an empty snapshot to main: without a token, as another program does, or with one of a newer release."""
    table = spark.iceberg.find(name)
    if table is None or not table.current_snapshot():
        return
    properties = {"lakehouse.batch": json.dumps({"version": NEWER})} if token else {}
    try:
        spark.commit_files(table, "main", table.metadata.current_snapshot_id, (), properties=properties)
    except ClockSkew:
        return
    world.record(f"another writer: committed to {name}{' in a newer format' if token else ''}")


def maintain_as_other_program(world: World, spark: MemorySpark, name: str) -> None:
    """Commit an empty snapshot to main, as a compaction by another program does, and expire all that no ref names."""
    if spark.iceberg.find(name) is None:
        return
    commit_as_other_writer(world, spark, name)
    try:
        expire(spark, TableRef("lake", name), datetime.fromtimestamp(world.now(), UTC), 1)
    except ClockSkew:
        return
    world.record(f"another program: expired snapshots of {name}")


def table_events(world: World, spark: MemorySpark, oracle: Oracle, name: str) -> dict[str, Callable[[], object]]:
    """Return the events of a table by name."""
    rolling_back = partial(roll_back, world, spark.iceberg, oracle, name)
    return {
        "roll back": rolling_back,
        "drop table": partial(drop, world, spark.iceberg, name),
        "other writer": partial(commit_as_other_writer, world, spark, name),
        "newer release": partial(commit_as_other_writer, world, spark, name, token=True),
        "other maintenance": partial(maintain_as_other_program, world, spark, name),
    }


def _before_newest_batch(table: Table) -> Snapshot | None:
    """Return the snapshot before the newest batch; None if only a replay would repeat what followed it."""
    snapshot = table.current_snapshot()
    while snapshot and "lakehouse.batch" not in _summary(snapshot):
        if "lakehouse.replay" in _summary(snapshot):
            return None
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id or 0)
    if snapshot is None or "lakehouse.decision" in _summary(snapshot):
        return None
    parent = table.snapshot_by_id(snapshot.parent_snapshot_id or 0)
    while parent and "lakehouse.part" in _summary(parent):
        parent = table.snapshot_by_id(parent.parent_snapshot_id or 0)
    return parent


def _summary(snapshot: Snapshot) -> dict[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}
