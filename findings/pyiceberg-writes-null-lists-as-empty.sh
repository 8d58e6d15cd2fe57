#!/usr/bin/env bash
# pyiceberg writes a null list of structs, and a null map to structs, as an empty one.
#
# Versions: pyiceberg 0.12.0, pyarrow 26.0.0.
# Input:    columns of list<struct>, map<string, struct> and list<int>, each null in one row and empty in another.
# Seen:     the Parquet file that pyiceberg writes has an empty list and an empty map where the input is null. The list
#           of integers keeps its null. pyarrow reads the file, so the loss is in the file and not in pyiceberg's scan.
# Expected: null, as a file has it that pyarrow writes from the same table.
# Matters:  "not sent" and "sent without elements" are different states of an order or an address list. After an
#           overwrite through pyiceberg the difference is gone for all engines.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("shop")
item = pa.struct([("id", pa.int32())])
rows = pa.table({
    "structs": pa.array([None, [], [{"id": 1}]], pa.list_(item)),
    "mapped": pa.array([None, [], [("a", {"id": 1})]], pa.map_(pa.string(), item)),
    "numbers": pa.array([None, [], [1]], pa.list_(pa.int32())),
})
table = catalog.create_table("shop.orders", schema=rows.schema)
table.append(rows)
[path] = [task.file.file_path for task in table.scan().plan_files()]
pq.write_table(rows, f"{folder}/control.parquet")
nulls = {}
for column in rows.column_names:
    nulls[column] = tuple(
        pq.read_table(file)[column].null_count
        for file in (f"{folder}/control.parquet", path.removeprefix("file://"))
    )
    print(f"{column}: {nulls[column][0]} null in pyarrow's file, {nulls[column][1]} in pyiceberg's")
if nulls != {"structs": (1, 0), "mapped": (1, 0), "numbers": (1, 1)}:
    sys.exit("The behaviour changed.")
PYTHON
