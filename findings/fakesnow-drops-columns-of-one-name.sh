#!/usr/bin/env bash
# fakesnow returns rows with fewer values than columns if two columns of a result have one name.
#
# Versions: fakesnow 0.12.1 with duckdb 2.0.0 and snowflake-connector-python 4.8.1.
# Input:    SELECT 1 AS id, 2 AS id, and a join of two tables that returns the id of both.
# Seen:     the description of the cursor lists two columns and the row is (2,). DuckDB returns (1, 2).
# Expected: (1, 2). Snowflake permits equal names in a result, and the Python DB API (PEP 249, description and
#           fetchone) has one value for each described column.
# Matters:  comparing a table with its copy joins both by key and selects the same columns of each. The test then
#           compares a column with a value of another, or fails where Snowflake works.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  fakesnow==0.12.1 snowflake-connector-python==4.8.1 duckdb==2.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import duckdb
import fakesnow
import snowflake.connector

statements = [
    "SELECT 1 AS id, 2 AS id",
    "SELECT l.id, r.id FROM (SELECT 1 AS id) l JOIN (SELECT 2 AS id) r ON TRUE",
]
seen = []
with fakesnow.patch():
    cursor = snowflake.connector.connect(database="lake", schema="shop").cursor()
    for statement in statements:
        row = cursor.execute(statement).fetchone()
        names = [column.name for column in cursor.description]
        control = duckdb.connect().execute(statement).fetchone()
        print(f"columns {names}: fakesnow {row}, DuckDB {control}")
        seen.append((names, row, control))
if seen != [(["ID", "ID"], (2,), (1, 2))] * 2:
    sys.exit("The behaviour changed.")
PYTHON
