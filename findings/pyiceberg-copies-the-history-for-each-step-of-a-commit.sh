#!/usr/bin/env bash
# pyiceberg copies the metadata of a table, with every snapshot, 23 times for one append.
#
# Versions: pyiceberg 0.12.0 with pyarrow 22.0.0 and SQLAlchemy 2.0.44.
# Input:    tables in a SQL catalog in SQLite that have 10 and 500 snapshots, and an append of one row to each.
# Seen:     an append copies each snapshot 23 times (`copy.deepcopy`), because `Transaction.table_metadata` returns a deep
#           copy whenever a step of the transaction reads it. It took 0.01 s with 10 snapshots and 0.24 s with 500.
# Expected: the number of copies of a snapshot does not depend on the number of steps; the steps of an append need the
#           newest snapshot only.
# Matters:  tables of streams have thousands of snapshots, so that each small commit takes seconds of CPU.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[pyarrow,sql-sqlite]==0.12.0' pyarrow==22.0.0 SQLAlchemy==2.0.44
"$folder/venv/bin/python" -B - "$folder" <<'PYTHON'
import sys
import time

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.snapshots import Snapshot

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("lake")
row = pa.table({"id": pa.array([1], pa.int64())})
copied = []
plain = Snapshot.__deepcopy__


def counted(self, memo=None):
    copied.append(self.snapshot_id)
    return plain(self, memo)


def append_to_table_with(snapshots):
    """Return the seconds of an append, and how often it copies the oldest snapshot."""
    name = f"lake.table_{snapshots}"
    catalog.create_table(name, row.schema).append(row)
    table = catalog.load_table(name)
    newest = table.current_snapshot()
    older = [newest.model_copy(update={"snapshot_id": n, "parent_snapshot_id": n - 1 or None}) for n in range(1, snapshots)]
    metadata = table.metadata.model_copy(update={"snapshots": [*older, newest]})
    location = f"{table.metadata_location}.with-history.metadata.json"
    ToOutputFile.table_metadata(metadata, table.io.new_output(location))
    catalog.drop_table(name)
    table = catalog.register_table(name, location)
    copied.clear()
    Snapshot.__deepcopy__ = counted
    began = time.perf_counter()
    table.append(row)
    seconds = time.perf_counter() - began
    Snapshot.__deepcopy__ = plain
    assert len(table.metadata.snapshots) == snapshots + 1
    return seconds, copied.count(1)


results = {snapshots: append_to_table_with(snapshots) for snapshots in (10, 500)}
for snapshots, (seconds, copies) in results.items():
    print(f"{snapshots} snapshots: {seconds:.2f} s, {copies} copies of the oldest one")
sys.exit(any(copies != 23 for _, copies in results.values()))
PYTHON
