#!/usr/bin/env bash
# DuckDB rounds a time with nanoseconds, so that its date, day and hour are those of the next day.
#
# Versions: duckdb 2.0.0; pyarrow 26.0.0 as the control.
# Input:    the TIMESTAMP_NS 2023-12-31 23:59:59.9999999.
# Seen:     DuckDB's cast to DATE, year(), hour() and date_trunc('day') return 2024-01-01, 2024, 0 and 2024-01-01, while
#           the same value is less than 2024-01-01 in a comparison. pyarrow returns 2023-12-31, 2023, 23 and 2023-12-31.
# Expected: 2023-12-31, which is also the day of the comparison and of Iceberg's day transform.
# Matters:  timestamp_ns is a type of Iceberg's version 3, and tables are partitioned by day. Rows of the last half
#           microsecond then have another day in a query than in the partition, and a reconciliation by day differs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  duckdb==2.0.0 pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

text = "2023-12-31 23:59:59.9999999"
by_duckdb = duckdb.connect().execute(
    "SELECT t::DATE::VARCHAR, year(t), hour(t), date_trunc('day', t)::DATE::VARCHAR, t < TIMESTAMP_NS '2024-01-01'"
    " FROM (SELECT ?::TIMESTAMP_NS AS t)", [text]
).fetchone()
value = pa.array([text]).cast(pa.timestamp("ns"))
by_pyarrow = tuple(
    result[0].as_py() for result in (
        value.cast(pa.date32()).cast(pa.string()),
        pc.year(value),
        pc.hour(value),
        pc.floor_temporal(value, unit="day").cast(pa.date32()).cast(pa.string()),
        pc.less(value, pa.array(["2024-01-01"]).cast(pa.timestamp("ns"))),
    )
)
print("date, year, hour, start of the day, is before 2024:")
print(f"DuckDB  {by_duckdb}")
print(f"pyarrow {by_pyarrow}")
if by_duckdb != ("2024-01-01", 2024, 0, "2024-01-01", True) or by_pyarrow != (
    "2023-12-31", 2023, 23, "2023-12-31", True
):
    sys.exit("The behaviour changed.")
PYTHON
