#!/usr/bin/env bash
# pyiceberg reads a column of UUIDs but cannot filter by it, nor upsert by it.
#
# Versions: pyiceberg 0.12.0, pyarrow 26.0.0.
# Input:    a uuid column of one value, and a filter with this value.
# Seen:     the scan with the filter raises ArrowNotImplementedError ("Function 'equal' has no kernel matching input
#           types (extension<arrow.uuid>, ...)"), and so does an upsert by the column ("Keys of type
#           extension<arrow.uuid>"). The scan without a filter, and a filter with another value, which the bounds
#           exclude, return their rows.
# Expected: the row; uuid is a primitive type of the Iceberg specification ("Primitive Types").
# Cause:    pyarrow's kernels do not accept its own extension type.
# Matters:  Avro's logical type uuid, and the key of many topics, becomes this type. The error depends on the value: it
#           appears only when a file may contain it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys
import uuid

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("shop")
key, other = uuid.UUID(int=5), uuid.UUID(int=6)
rows = pa.table({"id": pa.array([key.bytes], pa.binary(16)).cast(pa.uuid()), "state": ["new"]})
table = catalog.create_table("shop.orders", schema=rows.schema)
table.append(rows)


def attempt(operation):
    try:
        return operation()
    except pa.ArrowNotImplementedError as error:
        return f"ArrowNotImplementedError: {error}"


seen = {
    "without a filter": attempt(lambda: table.scan().to_arrow()["id"].to_pylist()),
    "filter by another value": attempt(lambda: table.scan(row_filter=f"id = '{other}'").to_arrow().num_rows),
    "filter by the value": attempt(lambda: table.scan(row_filter=f"id = '{key}'").to_arrow().num_rows),
    "upsert": attempt(lambda: table.upsert(rows, join_cols=["id"]).rows_updated),
}
for name, outcome in seen.items():
    print(f"{name}: {outcome}")
free, excluded, matching, upsert = seen.values()
if (free, excluded) != ([key], 0) or "'equal' has no kernel" not in str(matching) or "Keys of type" not in str(upsert):
    sys.exit("The behaviour changed.")
PYTHON
