#!/usr/bin/env bash
# pyiceberg deletes a row with NaN that does not match the filter of the deletion.
#
# Versions: pyiceberg 0.12.0, pyarrow 26.0.0.
# Input:    a table with one file of two doubles, 1.0 and NaN, and Table.delete("x = 1.0").
# Seen:     a scan with the filter returns [1.0], but after the deletion the table is empty.
# Expected: NaN is not equal to 1.0 (the scan agrees), so the row with NaN stays.
# Cause:    the bounds in a manifest leave NaN out (Iceberg specification, "Data File Fields", lower_bounds and
#           upper_bounds), and nan_value_counts, which would reveal it, is optional. pyiceberg does not write the counts
#           and reads their absence as "no NaN", so both bounds are 1.0 and it drops the complete file.
# Matters:  producers send NaN in price or sensor columns, and an erasure by value then removes records of others
#           without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import math
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("shop")
rows = pa.table({"x": [1.0, math.nan]})
table = catalog.create_table("shop.prices", schema=rows.schema)
table.append(rows)
counts = [task.file.nan_value_counts for task in table.scan().plan_files()]
matching = table.scan(row_filter="x = 1.0").to_arrow()["x"].to_pylist()
table.delete("x = 1.0")
left = table.scan().to_arrow()["x"].to_pylist()
print(f"NaN counts in the manifest: {counts}")
print(f"rows that match the filter: {matching}")
print(f"rows after the deletion:    {left}")
if (counts, matching, left) != ([{}], [1.0], []):
    sys.exit("The behaviour changed.")
PYTHON
