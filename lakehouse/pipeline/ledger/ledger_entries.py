"""Read the ledger of an Iceberg table from the snapshots of its main branch."""

import json
from dataclasses import replace
from datetime import UTC, datetime

from pyiceberg.table import Table

from lakehouse.core.offsets.batch import Counts
from lakehouse.core.offsets.ledger import Entry, Kind
from lakehouse.core.table_protocol import COUNTS, DECISION, PART, REPLAY
from lakehouse.pipeline.commits.audit import committed_rows
from lakehouse.pipeline.engine_values import ADDS_ROWS
from resources.iceberg.snapshots import batch_of, full_history


def read_ledger(table: Table) -> list[Entry]:
    """Return the commits of main, oldest first, back to the oldest snapshot that is not expired."""
    counts_by_snapshot = json.loads(table.properties.get(COUNTS, "{}"))
    entries: list[Entry] = []
    for snapshot in full_history(table):
        assert snapshot.summary is not None
        summary = snapshot.summary.additional_properties
        if PART in summary:
            if summary[PART] == ADDS_ROWS and entries:
                entries[-1] = replace(entries[-1], added=entries[-1].added + committed_rows(snapshot))
            continue
        batch, counts = batch_of(snapshot), counts_by_snapshot.get(str(snapshot.snapshot_id))
        kinds: dict[Kind, object] = {"decision": DECISION in summary, "replay": REPLAY in summary, "ingest": batch}
        entries.append(
            Entry(
                snapshot_id=snapshot.snapshot_id,
                committed_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
                kind=next((kind for kind, present in kinds.items() if present), "foreign"),
                operation=snapshot.summary.operation.value,
                batch=batch,
                counts=None if counts is None else Counts.from_json(counts),
                added=committed_rows(snapshot),
                deleted=sum(int(summary.get(name, 0)) for name in ("deleted-records", "added-position-deletes")),
                has_parent=snapshot.parent_snapshot_id is not None,
            )
        )
    return entries[::-1]
