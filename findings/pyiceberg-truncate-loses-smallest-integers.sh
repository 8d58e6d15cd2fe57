#!/usr/bin/env bash
# pyiceberg does not find the smallest integers in a table partitioned by truncate.
#
# Versions: pyiceberg 0.12.0, pyiceberg-core 0.11.0, pyarrow 26.0.0.
# Input:    an int column partitioned by truncate(10, x), with the values -2147483648 and 5.
# Seen:     a scan returns both rows, but "x < 0" and "x = -2147483648" return none.
# Expected: the row with -2147483648, a valid value of Iceberg's int.
# Cause:    the truncated value, -2147483650, does not fit into 32 bits. The writer (Rust) wraps it to 2147483646, and
#           the planner of the scan (Python) calculates -2147483650, so the partition is pruned.
# Matters:  the smallest integer is a common mark for "no value" in records of Java and C programs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[sql-sqlite]==0.12.0' pyiceberg-core==0.11.0 pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import TruncateTransform
from pyiceberg.types import IntegerType, NestedField

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("shop")
table = catalog.create_table(
    "shop.readings",
    Schema(NestedField(1, "x", IntegerType())),
    partition_spec=PartitionSpec(PartitionField(1, 1000, TruncateTransform(10), "tens")),
)
table.append(pa.table({"x": pa.array([-(2**31), 5], pa.int32())}))
partitions = sorted(task.file.partition[0] for task in table.scan().plan_files())
print(f"partitions: {partitions}")
matches = {}
for condition in ("x is not null", "x < 0", "x = -2147483648", "x >= 0"):
    matches[condition] = sorted(table.scan(row_filter=condition).to_arrow()["x"].to_pylist())
    print(f"{condition}: {matches[condition]}")
if partitions != [0, 2147483646] or list(matches.values()) != [[-2147483648, 5], [], [], [5]]:
    sys.exit("The behaviour changed.")
PYTHON
