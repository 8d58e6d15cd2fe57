#!/usr/bin/env bash
# pyiceberg neither appends nor adds a file whose rows have a date or a time after the year 9999.
#
# Versions: pyiceberg 0.12.0 with pyarrow 22.0.0, sqlalchemy 2.0.44 and SQLite.
# Input:    a column of each type `date`, `timestamp` and `timestamptz` with one value, the first moment of the year
#           10000; the specification limits these types only by their 32 and 64 bits. The rows are appended, and a Parquet
#           file with them that pyarrow wrote is added.
# Seen:     `append` and `add_files` raise OverflowError ("date value out of range") for each of the three types.
# Expected: the rows are in the table, as pyarrow and Iceberg's Java library write and read such values.
# Cause:    the statistics of the file are converted to Python's date and datetime, which end with the year 9999.
# Matters:  one such value, which means "never" in many systems, prevents the commit of a whole file of rows; a program
#           that takes a value for valid because Parquet accepts it fails at each attempt.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[pyarrow,sql-sqlite]==0.12.0' pyarrow==22.0.0 sqlalchemy==2.0.44
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("shop")
DAY = 2_932_897  # 10000-01-01 in days since 1970-01-01
MICROSECONDS = DAY * 86_400 * 1_000_000
values = {
    "date": pa.array([DAY], pa.date32()),
    "timestamp": pa.array([MICROSECONDS], pa.timestamp("us")),
    "timestamptz": pa.array([MICROSECONDS], pa.timestamp("us", "UTC")),
}


def outcome(operation, *arguments):
    try:
        operation(*arguments)
    except OverflowError as error:
        return f"OverflowError: {error}"
    return "no error"


seen = set()
for name, column in values.items():
    rows, file = pa.table({"until": column}), f"{folder}/{name}.parquet"
    pq.write_table(rows, file)
    assert pq.read_table(file).equals(rows), "pyarrow reads what it wrote"
    table = catalog.create_table(f"shop.{name}_", rows.schema)
    outcomes = outcome(table.append, rows), outcome(table.add_files, [file])
    print(f"{name}: append: {outcomes[0]}; add_files: {outcomes[1]}")
    seen.update(outcomes)
if seen != {"OverflowError: date value out of range"}:
    sys.exit("The behaviour changed.")
PYTHON
