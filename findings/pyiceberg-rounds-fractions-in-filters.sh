#!/usr/bin/env bash
# pyiceberg rounds a fraction in a filter on an integer column, so that it returns and deletes other rows.
#
# Versions: pyiceberg 0.12.0, pyarrow 26.0.0.
# Input:    an int column with 1 and 2, and filters with the constant 1.5.
# Seen:     "x > 1.5" returns no row, "x = 1.5" returns 2, and Table.delete("x = 1.5") deletes the row with 2.
# Expected: "x > 1.5" returns 2, "x = 1.5" matches nothing. pyarrow's own comparison in the same process returns that.
# Cause:    the constant is converted to the type of the column, and the conversion rounds 1.5 to 2.
# Matters:  a threshold on a column of counts or cents, from a report or an erasure request, selects the wrong records
#           without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("shop")
rows = pa.table({"x": pa.array([1, 2], pa.int32())})
table = catalog.create_table("shop.counts", schema=rows.schema)
table.append(rows)
greater, equal = (table.scan(row_filter=f"x {sign} 1.5").to_arrow()["x"].to_pylist() for sign in (">", "="))
control = [rows.filter(condition)["x"].to_pylist() for condition in (pc.field("x") > 1.5, pc.field("x") == 1.5)]
table.delete("x = 1.5")
left = table.scan().to_arrow()["x"].to_pylist()
print(f"x > 1.5: {greater}, in pyarrow {control[0]}")
print(f"x = 1.5: {equal}, in pyarrow {control[1]}")
print(f"rows after the deletion of x = 1.5: {left}")
if (greater, equal, control, left) != ([], [2], [[2], []], [1]):
    sys.exit("The behaviour changed.")
PYTHON
