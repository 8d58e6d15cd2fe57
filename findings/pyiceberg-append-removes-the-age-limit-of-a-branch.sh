#!/usr/bin/env bash
# pyiceberg removes the retention settings of a branch when it appends to the branch.
#
# Versions: pyiceberg 0.12.0 with pyarrow 22.0.0, sqlalchemy 2.0.44 and SQLite.
# Input:    a branch that is created with max_ref_age_ms, max_snapshot_age_ms and min_snapshots_to_keep; one append to
#           the branch.
# Seen:     after the append, all three are null.
# Expected: they are as before. Iceberg's Java library keeps them when it commits to a branch.
# Cause:    the commit sets the reference to the new snapshot with its name, type and snapshot only.
# Matters:  the branch no longer expires, so that its snapshots and files are kept forever, and snapshots that it had to
#           keep may expire.
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
table = catalog.create_table("shop.orders", rows.schema)
table.append(rows)
limits = {"max_ref_age_ms": 86_400_000, "max_snapshot_age_ms": 3_600_000, "min_snapshots_to_keep": 5}
table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "review", **limits).commit()


def kept():
    branch = catalog.load_table("shop.orders").metadata.refs["review"]
    return {name: getattr(branch, name) for name in limits}


before = kept()
catalog.load_table("shop.orders").append(rows, branch="review")
print("before the append:", before)
print("after the append: ", kept())
if before != limits or set(kept().values()) != {None}:
    sys.exit("The behaviour changed.")
PYTHON
