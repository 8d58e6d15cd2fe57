"""Maintenance in the simulated engine; see lakehouse.pipeline.engine.Maintenance."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.compaction_values import Compactable, DataFiles, Rewritten
from lakehouse.pipeline.engine_values import JobFailed, Target
from tests.simulation.engine.tables import MemoryTables, data_file, data_files, referenced
from tests.simulation.systems.memory_files import data_rows, delete_data, old_data


@dataclass(frozen=True)
class MemoryMaintenance:
    """Compaction, expiry and clean-up."""

    tables: MemoryTables

    def compact(self, ref: TableRef, files: Compactable) -> Rewritten:
        """Rewrite all data files into one; refused if another commit removed one of them meanwhile.

        There are no delete files, and few manifests.
        """
        if not isinstance(files, DataFiles):
            return Rewritten(0, 0)
        planned = self.tables.job("plan compaction", lambda: {f.file_path for f in self.tables.files(ref)})

        def rewrite() -> None:
            table = self.tables.load(ref)
            files = [file for file in self.tables.files(ref) if file.file_path in planned]
            if len(files) < len(planned):
                raise JobFailed("a file to rewrite was removed")
            rows = [row for file in files for row in data_rows(file.file_path)]
            added = [data_file(self.tables.world, table, rows)] if rows else []
            self.tables.commit_files(table, "main", table.metadata.current_snapshot_id, added, files)

        if len(planned) > 1:
            self.tables.job("commit compaction", rewrite)
        return Rewritten(len(planned), 1)

    def expire(self, ref: TableRef, older_than: datetime, retain_last: int) -> int:
        """Expire older snapshots but the last ones of each branch and those of tags, and delete their data files."""

        def expire() -> int:
            table = self.tables.load(ref)
            kept = {s.snapshot_id for s in table.metadata.snapshots if s.timestamp_ms >= older_than.timestamp() * 1000}
            for head in table.metadata.refs.values():
                snapshot, number = table.snapshot_by_id(head.snapshot_id), 0
                while snapshot and number < (retain_last if head.snapshot_ref_type == "branch" else 1):
                    kept.add(snapshot.snapshot_id)
                    snapshot, number = table.snapshot_by_id(snapshot.parent_snapshot_id or 0), number + 1
            old = [s for s in table.metadata.snapshots if s.snapshot_id not in kept]
            if not old:
                return 0
            files = {f.file_path for s in old for f in data_files(table, s.snapshot_id)}
            self.tables.iceberg.expire(table, {s.snapshot_id for s in old})
            unused = files - referenced(self.tables.load(ref))
            delete_data(unused)
            return len(unused)

        expired: int = self.tables.job("expire", expire)
        return expired

    def remove_orphans(self, catalog: str, ref: TableRef, older_than: datetime) -> int:
        """Delete data files that no snapshot refers to."""

        def remove() -> int:
            table = self.tables.load(ref)
            orphans = old_data(table.location(), older_than.timestamp()) - referenced(table)
            delete_data(orphans)
            return len(orphans)

        return self.tables.job("remove_orphans", remove)

    def delete_rows(self, ref: TableRef, column: str, older_than: datetime) -> bool:
        """Delete rows whose time is before `older_than`."""
        keep = lambda row: row.record.at >= older_than.timestamp()  # noqa: E731
        planned = self.tables.job("plan", lambda: self.tables.head(ref, "main"))
        if all(map(keep, self.tables.rows(ref))):
            return False
        self.tables.job("delete rows", lambda: self.tables.commit(Target(ref, "main", {}), planned, keep=keep))
        return True
