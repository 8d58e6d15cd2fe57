#!/usr/bin/env bash
# In pyiceberg, IN with a second value no longer matches what = and IN with one value match.
#
# Versions: pyiceberg 0.12.0, pyarrow 26.0.0.
# Input:    a double column of -0.0, a float column of 0.1 and 0.5, and a long column of 1, null and 3.
# Seen:     zeros:  "x = 0.0" and "x in (0.0)" match, "x in (0.0, 7.0)" does not;
#           tenths: "x = 0.1" and "x in (0.1)" do not match, "x in (0.1, 0.2)" does;
#           nulls:  "x not in (3)" returns 1, "x not in (3, 7)" returns 1 and null.
# Expected: a second value, which no row has, changes nothing.
# Cause:    IN with one value becomes =, which compares numbers after promotion and drops null. IN with more becomes a
#           lookup in a hash table, by bits and in the type of the column, and NOT of it keeps null.
# Matters:  lists of values come from programs (keys of a batch, ids to erase), so that their length varies.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("shop")
columns = {
    "zeros": pa.array([-0.0], pa.float64()),
    "tenths": pa.array([0.1, 0.5], pa.float32()),
    "nulls": pa.array([1, None, 3], pa.int64()),
}
filters = {
    "zeros": ("x = 0.0", "x in (0.0)", "x in (0.0, 7.0)"),
    "tenths": ("x = 0.1", "x in (0.1)", "x in (0.1, 0.2)"),
    "nulls": ("x != 3", "x not in (3)", "x not in (3, 7)"),
}
matches = {}
for name, values in columns.items():
    rows = pa.table({"x": values})
    table = catalog.create_table(f"shop.{name}", schema=rows.schema)
    table.append(rows)
    for condition in filters[name]:
        matches[condition] = table.scan(row_filter=condition).to_arrow()["x"].to_pylist()
        print(f"{name}: {condition}: {matches[condition]}")
tenth = columns["tenths"][0].as_py()
if list(matches.values()) != [[-0.0], [-0.0], [], [], [], [tenth], [1], [1], [1, None]]:
    sys.exit("The behaviour changed.")
PYTHON
