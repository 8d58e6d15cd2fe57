#!/usr/bin/env bash
# A dataset filter of pyarrow loses the rows with NaN of a Parquet file.
#
# Versions: pyarrow 26.0.0.
# Input:    a Parquet file of two doubles, 1.0 and NaN, filtered by is_nan(x) and by x != 1.0.
# Seen:     the dataset returns no row for either filter. The same filters on the same rows in memory return one.
# Expected: the row with NaN. parquet.thrift (ColumnOrder) states that minimum and maximum do not count NaN and must be
#           ignored by a reader that looks for NaN.
# Cause:    both statistics are 1.0, so the row group is simplified to "x is 1.0".
# Matters:  a check that no NaN arrived passes on a file that has one. pyiceberg scans files in the same way.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import math
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

path = f"{sys.argv[1]}/prices.parquet"
rows = pa.table({"x": [1.0, math.nan]})
pq.write_table(rows, path)
dataset, column = ds.dataset(path), pc.field("x")
counts = {}
for name, condition in {"is_nan(x)": pc.is_nan(column), "x != 1.0": column != 1.0}.items():
    counts[name] = dataset.to_table(filter=condition).num_rows, rows.filter(condition).num_rows
    print(f"{name}: {counts[name][0]} rows of the dataset, {counts[name][1]} in memory")
print(f"rows of the dataset without a filter: {dataset.to_table()['x'].to_pylist()}")
if counts != {"is_nan(x)": (0, 1), "x != 1.0": (0, 1)}:
    sys.exit("The behaviour changed.")
PYTHON
