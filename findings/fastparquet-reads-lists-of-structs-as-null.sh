#!/usr/bin/env bash
# fastparquet reads a list of structs, and a list of lists, as null in every row, without an error.
#
# Versions: fastparquet 2026.9.0; pyarrow 26.0.0 writes the file, duckdb 2.0.0 is the control.
# Input:    two rows with a list of numbers, a list of structs and a list of lists, none of them null.
# Seen:     the numbers are right, and the other two columns are None in both rows. DuckDB reads all values.
# Expected: the values, or an error that the type is not supported.
# Matters:  order lines are a list of structs. A job that checks a table's files with fastparquet reports that all of
#           them are missing, or passes because "all are null" is consistent.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  fastparquet==2026.9.0 pyarrow==26.0.0 duckdb==2.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import duckdb
import fastparquet
import pyarrow as pa
import pyarrow.parquet as pq

path = f"{sys.argv[1]}/orders.parquet"
columns = {
    "numbers": pa.array([[1], [2, 3]], pa.list_(pa.int32())),
    "structs": pa.array([[{"id": 1}], [{"id": 2}, {"id": 3}]], pa.list_(pa.struct([("id", pa.int32())]))),
    "lists": pa.array([[[1]], [[2], [3]]], pa.list_(pa.list_(pa.int32()))),
}
pq.write_table(pa.table(columns), path)
frame = fastparquet.ParquetFile(path).to_pandas()
connection = duckdb.connect()
seen, control = {}, {}
for name, values in columns.items():
    seen[name] = [value if value is None else [int(item) for item in value] for value in frame[name]]
    rows = connection.execute(f"SELECT {name} FROM read_parquet('{path}')").fetchall()
    control[name] = [row[0] for row in rows] == values.to_pylist()
    print(f"{name}: fastparquet {seen[name]}, DuckDB reads the values: {control[name]}")
expected = {"numbers": [[1], [2, 3]], "structs": [None, None], "lists": [None, None]}
if seen != expected or not all(control.values()):
    sys.exit("The behaviour changed.")
PYTHON
