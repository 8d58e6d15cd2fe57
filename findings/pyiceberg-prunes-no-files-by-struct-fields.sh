#!/usr/bin/env bash
# pyiceberg writes no bounds of fields within structs, even if the table declares them, so scans read all files.
#
# Versions: pyiceberg 0.12.0, pyarrow 26.0.0.
# Input:    a table with the int columns "n" and "place.n" and the property
#           write.metadata.metrics.column.place.n=full, and two appends: n is 1 in the first file, 2 in the second.
# Seen:     both files have bounds of "n" and none of "place.n". A scan for "n = 2" reads one file, and one for
#           "place.n = 2" reads both.
# Expected: bounds of "place.n", as Iceberg's own writer stores by default (Iceberg, Configuration: write properties).
# Matters:  tables that Spark and pyiceberg write in turn are pruned by fields of structs only where Spark wrote, and
#           change events or CloudEvents have most of their fields in structs.
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
from pyiceberg.conversions import from_bytes
from pyiceberg.types import IntegerType

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("shop")
types = pa.schema([("n", pa.int32()), ("place", pa.struct([("n", pa.int32())]))])
properties = {"write.metadata.metrics.column.place.n": "full"}
table = catalog.create_table("shop.sales", types, properties=properties)
for n in (1, 2):
    table.append(pa.Table.from_pylist([{"n": n, "place": {"n": n}}], types))
ids = {name: table.schema().find_field(name).field_id for name in ("n", "place.n")}
files = [task.file for task in table.scan().plan_files()]
bounds = {
    name: sorted(from_bytes(IntegerType(), file.lower_bounds[id_]) for file in files if id_ in file.lower_bounds)
    for name, id_ in ids.items()
}
planned = {name: len(list(table.scan(row_filter=f"{name} = 2").plan_files())) for name in ids}
print(f"bounds: {bounds}, files planned: {planned}")
if bounds != {"n": [1, 2], "place.n": []} or planned != {"n": 1, "place.n": 2}:
    sys.exit("The behaviour changed.")
PYTHON
