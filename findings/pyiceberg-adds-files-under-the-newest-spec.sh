#!/usr/bin/env bash
# pyiceberg adds a file of an earlier partition spec under the newest one, and scans do not find its rows.
#
# Versions: pyiceberg 0.12.0, pyarrow 26.0.0.
# Input:    a table partitioned by the text column "a", a file of it with a = 'x' and b = 'y', described with its
#           spec_id and partition. Before it is added, another client replaces the partition field by "b".
# Seen:     append_data_file succeeds. The file is in the manifest of the new spec, so its partition is b = 'x': a scan
#           for b = 'y' returns no row.
# Expected: the row, or an error. A manifest has files of one spec (Iceberg specification, Manifests).
# Matters:  whoever writes files first and commits them later loses rows from queries, without any error.
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
table = catalog.create_table("shop.sales", pa.schema([("a", pa.string()), ("b", pa.string())]))
with table.update_spec() as update:
    update.add_identity("a")
table.append(pa.table({"a": ["x"], "b": ["y"]}))
[file] = [task.file for task in table.scan().plan_files()]
before = file.spec_id
table.delete()
with table.update_spec() as update:
    update.remove_field("a")
    update.add_identity("b")
with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
    append.append_data_file(file)
[added] = [task.file for task in table.scan().plan_files()]
matches = {text: table.scan(row_filter=f"b = '{text}'").to_arrow().num_rows for text in ("x", "y")}
rows = table.scan().to_arrow().to_pylist()
print(f"spec before {before}, after {added.spec_id}, rows by b: {matches}, all rows: {rows}")
if added.spec_id == before or matches != {"x": 0, "y": 0}:
    sys.exit("The behaviour changed.")
PYTHON
