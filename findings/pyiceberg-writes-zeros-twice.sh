#!/usr/bin/env bash
# pyiceberg writes rows twice if a partition column holds 0.0 and -0.0, and refuses NaN.
#
# Versions: pyiceberg 0.12.0, pyarrow 26.0.0.
# Input:    an append of two doubles, 0.0 and -0.0, to a table partitioned by identity(x); then one of 1.0 and NaN.
# Seen:     the first append of 2 rows adds 4 (the summary of the snapshot says so too). The second raises
#           "ZeroDivisionError: division by zero" and adds nothing.
# Expected: 2 rows each. The Iceberg specification ("Partition Transforms") allows identity on every primitive type
#           except geometry, geography and variant. The same rows without partitions are appended once.
# Cause:    the distinct values are found by their bits, and the rows of a value by "=", for which the zeros are equal
#           and NaN equals nothing.
# Matters:  a retried or audited batch is compared by the number of rows, and -0.0 is what rounding of small negative
#           amounts leaves in Java, Python and C.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import math
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, NestedField

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("shop")
schema = Schema(NestedField(1, "x", DoubleType()))
zeros = pa.table({"x": [0.0, -0.0]})
partitioned = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x_value"))
rows = {}
for name, spec in {"plain": UNPARTITIONED_PARTITION_SPEC, "partitioned": partitioned}.items():
    table = catalog.create_table(f"shop.{name}", schema, partition_spec=spec)
    table.append(zeros)
    rows[name] = table.scan().to_arrow()["x"].to_pylist()
    print(f"{name}: {len(zeros)} rows appended, {table.current_snapshot().summary['added-records']} in the summary,"
          f" {rows[name]} in the table")
try:
    table.append(pa.table({"x": [1.0, math.nan]}))
    refused = None
except ZeroDivisionError as error:
    refused = str(error)
print(f"append of 1.0 and NaN: {refused}")
if (len(rows["plain"]), len(rows["partitioned"]), refused) != (2, 4, "division by zero"):
    sys.exit("The behaviour changed.")
PYTHON
