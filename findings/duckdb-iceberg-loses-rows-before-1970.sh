#!/usr/bin/env bash
# DuckDB's Iceberg extension does not find times before 1970 in tables partitioned by day or month.
#
# Versions: duckdb, duckdb-extension-iceberg and duckdb-extension-avro 1.5.5; the table is written by pyiceberg 0.12.0.
# Input:    the times 1969-01-01 12:00 and 2024-01-01 12:00, partitioned by day, month, year or hour.
# Seen:     a query without a filter returns both rows. "x = '1969-01-01 12:00:00'" returns no row with day and month,
#           and one with year and hour. The same filter for 2024 returns one row with each.
# Expected: one row for each, since partitions are not visible to readers. pyiceberg returns them, and the partition
#           values are -365 days and -12 months, as the Iceberg specification ("Partition Transforms") requires.
# Cause:    DuckDB appears to round the days and months of the constant up for times before 1970, and prunes the file.
# Matters:  dates of birth and placeholders such as 1900-01-01 are common in records, and a missing row looks like one
#           that was never ingested.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  duckdb==1.5.5 duckdb-extension-iceberg==1.5.5 duckdb-extension-avro==1.5.5 \
  'pyiceberg[sql-sqlite]==0.12.0' pyiceberg-core==0.11.0 pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys
from importlib.resources import files

import duckdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, YearTransform
from pyiceberg.types import NestedField, TimestampType

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("shop")
connection = duckdb.connect(config={"extension_directory": f"{folder}/extensions"})
for name in ("avro", "iceberg"):
    [extension] = files(f"duckdb_extension_{name}").joinpath("extensions").rglob("*.duckdb_extension")
    connection.execute(f"INSTALL '{extension}'")
    connection.execute(f"LOAD {name}")
old, new = "1969-01-01 12:00:00", "2024-01-01 12:00:00"
rows = pa.table({"x": pa.array([old, new]).cast(pa.timestamp("us"))})
seen = {}
for transform in (DayTransform(), MonthTransform(), YearTransform(), HourTransform()):
    spec = PartitionSpec(PartitionField(1, 1000, transform, "part"))
    table = catalog.create_table(f"shop.{transform}", Schema(NestedField(1, "x", TimestampType())), partition_spec=spec)
    table.append(rows)
    source = f"SELECT count(*) FROM iceberg_scan('{table.metadata_location}')"
    by_duckdb = [connection.execute(source + where).fetchone()[0]
                 for where in ("", f" WHERE x = '{old}'", f" WHERE x = '{new}'")]
    by_pyiceberg = table.scan(row_filter=f"x = '{old.replace(' ', 'T')}'").to_arrow().num_rows
    seen[str(transform)] = (*by_duckdb, by_pyiceberg)
    print(f"{transform}: all {by_duckdb[0]}, of 1969 {by_duckdb[1]}, of 2024 {by_duckdb[2]} in DuckDB;"
          f" of 1969 {by_pyiceberg} in pyiceberg")
pruned, complete = (2, 0, 1, 1), (2, 1, 1, 1)
if seen != {"day": pruned, "month": pruned, "year": complete, "hour": complete}:
    sys.exit("The behaviour changed.")
PYTHON
