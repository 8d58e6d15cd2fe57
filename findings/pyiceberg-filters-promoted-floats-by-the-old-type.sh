#!/usr/bin/env bash
# pyiceberg filters a column that was promoted from float to double with a constant that it rounds to float.
#
# Versions: pyiceberg 0.12.0, pyarrow 26.0.0, polars 2.1.0 as the control.
# Input:    a float column with 0.1 and 5.0, promoted to double by a schema update, and the filter "x > 0.1".
# Seen:     without a filter pyiceberg returns 0.10000000149011612 and 5.0, with it only 5.0. polars' scan_iceberg
#           returns both rows from the same metadata. For a file that is written after the update pyiceberg does too.
# Expected: both: the column is a double, and 0.10000000149011612 is greater than 0.1. The Iceberg specification
#           ("Schema Evolution") allows the promotion, which changes no value.
# Matters:  a producer's change of a field from float to double is compatible in Avro, so the promotion happens without
#           anybody's decision. Which rows a query returns then depends on the age of the file.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.0 polars==2.1.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import polars as pl
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import DoubleType

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("shop")
floats = pa.table({"x": pa.array([0.1, 5.0], pa.float32())})
table = catalog.create_table("shop.readings", schema=floats.schema)
table.append(floats)
with table.update_schema() as update:
    update.update_column("x", DoubleType())


def scans():
    rows, matching = table.scan().to_arrow(), table.scan(row_filter="x > 0.1").to_arrow()
    by_polars = pl.scan_iceberg(table.metadata_location).filter(pl.col("x") > 0.1).collect()
    return [sorted(column) for column in (rows["x"].to_pylist(), matching["x"].to_pylist(), by_polars["x"].to_list())]


old = scans()
table.append(pa.table({"x": floats["x"].cast(pa.float64())}))
both = scans()
for name, (rows, by_pyiceberg, by_polars) in {"old file": old, "old and new file": both}.items():
    print(f"{name}: rows {rows}; x > 0.1: pyiceberg {by_pyiceberg}, polars {by_polars}")
tenth = floats["x"][0].as_py()
if old != [[tenth, 5.0], [5.0], [tenth, 5.0]] or both[1:] != [[tenth, 5.0, 5.0], [tenth, tenth, 5.0, 5.0]]:
    sys.exit("The behaviour changed.")
PYTHON
