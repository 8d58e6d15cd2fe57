#!/usr/bin/env bash
# pyiceberg repeats an append that another append overtook, unless the other one was to another branch of the table.
#
# Versions: pyiceberg 0.12.0 with pyarrow 22.0.0, sqlalchemy 2.0.44 and SQLite.
# Input:    two appends, each prepared on the same state of a table: both to one branch, and each to its own branch.
# Seen:     to one branch, both are applied. To two branches, the second raises ValueError: Cannot add snapshot with
#           sequence number 2 older than last sequence number 2.
# Expected: both are applied, since commit.retry.num-retries is 4 by default; or CommitFailedException.
# Cause:    the commit requires the snapshot of its branch, which has not moved. Then the snapshot is added to the
#           metadata of the other commit, which checks the order of snapshots with an error that is not repeated.
# Matters:  programs that write and audit on branches commit to one table at the same time. The error names no other
#           program, and handlers of CommitFailedException miss it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[pyarrow,sql-sqlite]==0.12.0' pyarrow==22.0.0 sqlalchemy==2.0.44
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("shop")
rows = pa.table({"number": pa.array([1], pa.int64())})


def appended(name, branches):
    """Prepare an append for each branch on the same state of a table, apply them, and return what became of them."""
    table = catalog.create_table(f"shop.{name}", rows.schema)
    table.append(rows)
    for branch in ("red", "blue"):
        table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, branch).commit()
    handles = [catalog.load_table(f"shop.{name}") for _ in branches]
    outcomes = []
    for handle, branch in zip(handles, branches, strict=True):
        try:
            handle.append(rows, branch=branch)
            outcomes.append("applied")
        except Exception as error:
            outcomes.append(f"{type(error).__name__}: {str(error)[:48]}")
    return outcomes


same, different = appended("same", ["red", "red"]), appended("different", ["red", "blue"])
print("two appends to one branch:  ", same)
print("two appends to two branches:", different)
expected = ["applied", "ValueError: Cannot add snapshot with sequence number 2 older"]
if same != ["applied"] * 2 or different != expected:
    sys.exit("The behaviour changed.")
PYTHON
