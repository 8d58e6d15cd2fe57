#!/usr/bin/env bash
# DuckDB counts NaN in a Parquet file as equal to zero.
#
# Versions: duckdb 2.0.0, pyarrow 26.0.0.
# Input:    a Parquet file of two doubles, -0.0 and NaN.
# Seen:     "x = 0" matches 2 rows and "isnan(x)" none, although the same query without a filter returns -0.0 and NaN.
#           After a copy into a DuckDB table the same filters match one row each.
# Expected: one row each, since NaN differs from zero, and parquet.thrift (ColumnOrder) asks readers not to conclude
#           anything about NaN from minimum and maximum.
# Cause:    the statistics are -0.0 and 0.0, which are equal, so DuckDB appears to assume this value for all rows.
# Matters:  a file of a batch may hold only zeros and NaN, for instance idle sensors. Sums and counts by value then
#           differ between DuckDB and the other engines on the same snapshot.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  duckdb==2.0.0 pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import math
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

path = f"{sys.argv[1]}/values.parquet"
pq.write_table(pa.table({"x": [-0.0, math.nan]}), path)
connection = duckdb.connect()
connection.execute(f"CREATE TABLE copy AS SELECT * FROM read_parquet('{path}')")
print("all rows of the file:", connection.execute(f"SELECT x FROM read_parquet('{path}')").fetchall())
counts = {}
for condition in ("x = 0", "isnan(x)"):
    counts[condition] = tuple(
        connection.execute(f"SELECT count(*) FROM {source} WHERE {condition}").fetchone()[0]
        for source in (f"read_parquet('{path}')", "copy")
    )
    print(f"{condition}: {counts[condition][0]} rows of the file, {counts[condition][1]} of the copy")
if counts != {"x = 0": (2, 1), "isnan(x)": (0, 1)}:
    sys.exit("The behaviour changed.")
PYTHON
