"""Events of a table: operators roll it back or drop it, and other programs commit to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakehouse.core.errors import ClockSkew
from lakehouse.core.tables.naming import TableRef
from tests.simulation.engine.maintenance import MemoryMaintenance
from tests.simulation.engine.tables import MemoryTables, branch_at
from tests.simulation.oracles.oracle import Oracle
from tests.simulation.systems.catalog import MemoryIcebergCatalog
from tests.simulation.world import World

Heads = tuple[int | None, int | None]
"""Ids of main's snapshots of a table and of its dead letters."""

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


def heads(iceberg: MemoryIcebergCatalog, name: str) -> Heads:
    """Return the newest snapshots of a table and of its dead letters."""
    tables = iceberg.find(name), iceberg.find(f"{name}__dead_letters")
    of_rows, of_letters = (table.metadata.current_snapshot_id if table else None for table in tables)
    return of_rows, of_letters


def undo_replay(world: World, iceberg: MemoryIcebergCatalog, oracle: Oracle, name: str, before: Heads) -> None:
    """Roll a table and its dead letters back to before a redrive or replay, if no batch followed it.

    The operator waits for requests without a response: one of them may mark a dead letter whose row is rolled back.

    Args:
        world: The scheduler.
        iceberg: The catalog.
        oracle: The judge of the table.
        name: The name of the table.
        before: The newest snapshots before that program.
    """
    table, letters = iceberg.find(name), iceberg.find(f"{name}__dead_letters")
    of_rows, of_letters = before
    is_in_flight = any(process.name.startswith("late ") for process in world.processes)
    if is_in_flight or table is None or letters is None or of_rows is None or of_letters is None:
        return
    snapshot = table.current_snapshot()
    while snapshot and snapshot.snapshot_id != of_rows and "lakehouse.batch" not in _summary(snapshot):
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id or 0)
    is_first = table.metadata.current_snapshot_id == of_rows
    if is_first or snapshot is None or snapshot.snapshot_id != of_rows or not letters.snapshot_by_id(of_letters):
        return
    oracle.rolled_back_to = of_rows
    for rolled_back, target in ((letters, of_letters), (table, of_rows)):
        while rolled_back.refresh().metadata.current_snapshot_id != target:
            # The clock of this operator may be behind the table's history.
            with suppress(ClockSkew):
                iceberg.commit_now(rolled_back, (), (branch_at("main", target),))
            world.advance(4000)
    world.record(f"operator: undid the replay after {of_rows} of {name}")


def drop(world: World, iceberg: MemoryIcebergCatalog, name: str) -> None:
    """Drop the table, to ingest the topic from its start. The table of dead letters stays."""
    if iceberg.find(name):
        iceberg.drop_table(("lake", name))
        world.record(f"operator: dropped {name}")


def commit_as_other_writer(world: World, tables: MemoryTables, name: str, *, token: bool = False) -> None:
    """Commit an empty snapshot to main: without a token, as another program does, or with one of a newer release."""
    table = tables.iceberg.find(name)
    if table is None or not table.current_snapshot():
        return
    properties = {"lakehouse.batch": json.dumps({"version": NEWER})} if token else {}
    try:
        tables.commit_files(table, "main", table.metadata.current_snapshot_id, (), properties=properties)
    except ClockSkew:
        return
    world.record(f"another writer: committed to {name}{' in a newer format' if token else ''}")


def maintain_as_other_program(world: World, tables: MemoryTables, name: str) -> None:
    """Commit an empty snapshot to main, as a compaction by another program does, and expire all that no ref names."""
    if tables.iceberg.find(name) is None:
        return
    commit_as_other_writer(world, tables, name)
    try:
        MemoryMaintenance(tables).expire(TableRef("lake", name), datetime.fromtimestamp(world.now(), UTC), 1)
    except ClockSkew:
        return
    world.record(f"another program: expired snapshots of {name}")


def table_events(world: World, tables: MemoryTables, oracle: Oracle, name: str) -> dict[str, Callable[[], object]]:
    """Return the events of a table by name."""
    rolling_back = partial(roll_back, world, tables.iceberg, oracle, name)
    return {
        "roll back": rolling_back,
        "drop table": partial(drop, world, tables.iceberg, name),
        "other writer": partial(commit_as_other_writer, world, tables, name),
        "newer release": partial(commit_as_other_writer, world, tables, name, token=True),
        "other maintenance": partial(maintain_as_other_program, world, tables, name),
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
