#!/usr/bin/env bash
# A map that has a key twice gets three answers from three Parquet readers, and DuckDB refuses the column.
#
# Versions: duckdb 2.0.0, pyarrow 26.0.0, polars 2.1.0.
# Input:    a Parquet file of two rows with the maps (a, 1), (a, 2) and (b, 3).
# Seen:     DuckDB returns 1 for labels['a'], and an error for the column: "Map keys must be unique." polars returns 2,
#           pyarrow both entries.
# Expected: 2; Parquet's LogicalTypes.md ("Maps") makes the last of several values of a key the value.
# Matters:  Avro and Protobuf can encode such maps, and a writer that goes through Arrow passes them on. One record then
#           blocks the column in one engine, and has another value in each of the others.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  duckdb==2.0.0 pyarrow==26.0.0 polars==2.1.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

path = f"{sys.argv[1]}/labels.parquet"
maps = pa.array([[("a", 1), ("a", 2)], [("b", 3)]], pa.map_(pa.string(), pa.int32()))
pq.write_table(pa.table({"labels": maps}), path)
connection = duckdb.connect()


def query(expression):
    try:
        return connection.execute(f"SELECT {expression} FROM read_parquet('{path}')").fetchall()
    except duckdb.Error as error:
        return str(error)


column, value = query("labels"), query("labels['a']")
by_pyarrow = pq.read_table(path)["labels"].to_pylist()
by_polars = pl.read_parquet(path)["labels"].to_list()
print(f"DuckDB, labels:      {column}")
print(f"DuckDB, labels['a']: {value}")
print(f"pyarrow:             {by_pyarrow}")
print(f"polars:              {by_polars}")
if "Map keys must be unique" not in column or value != [(1,), (None,)] or (by_pyarrow, by_polars) != (
    [[("a", 1), ("a", 2)], [("b", 3)]], [{"a": 2}, {"b": 3}]
):
    sys.exit("The behaviour changed.")
PYTHON
