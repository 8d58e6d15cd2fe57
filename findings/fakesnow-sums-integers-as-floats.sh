#!/usr/bin/env bash
# fakesnow sums integers and decimals as floating-point numbers, so that large sums are wrong by a few units.
#
# Versions: fakesnow 0.12.1 with duckdb 2.0.0 and snowflake-connector-python 4.8.1.
# Input:    sum(x) over 9007199254740993, and over 0.1 and 0.2 as NUMBER(38, 2).
# Seen:     9007199254740992.0 and 0.30000000000000004, both as float. DuckDB, in which fakesnow runs the statement,
#           returns 9007199254740993 and 0.30.
# Expected: exact decimals: in Snowflake's documentation SUM over a NUMBER returns a NUMBER.
# Cause:    the argument of SUM is cast to DOUBLE, as Snowflake does for text.
# Matters:  sums of integers and decimals are how a lake and a warehouse are reconciled. In tests with fakesnow equal
#           tables differ, and tables that differ by one unit can be equal.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  fakesnow==0.12.1 snowflake-connector-python==4.8.1 duckdb==2.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys
from decimal import Decimal

import duckdb
import fakesnow
import snowflake.connector

statements = [
    "SELECT sum(x) FROM (VALUES (9007199254740993)) t(x)",
    "SELECT sum(x) FROM (VALUES (0.1::DECIMAL(38, 2)), (0.2::DECIMAL(38, 2))) t(x)",
]
with fakesnow.patch():
    cursor = snowflake.connector.connect(database="lake", schema="shop").cursor()
    by_fakesnow = [cursor.execute(statement).fetchone()[0] for statement in statements]
by_duckdb = [duckdb.connect().execute(statement).fetchone()[0] for statement in statements]
print(f"fakesnow: {by_fakesnow}")
print(f"DuckDB:   {by_duckdb}")
if by_fakesnow != [9007199254740992.0, 0.30000000000000004] or by_duckdb != [9007199254740993, Decimal("0.30")]:
    sys.exit("The behaviour changed.")
PYTHON
