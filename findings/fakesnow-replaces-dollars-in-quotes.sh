#!/usr/bin/env bash
# fakesnow takes a dollar sign in quoted text and in quoted names for a session variable, and refuses the statement.
#
# Versions: fakesnow 0.12.1, snowflake-connector-python 4.8.1, duckdb 2.0.0.
# Input:    SELECT 'paid in $us', and a quoted column name "$schema" (a usual property of JSON documents).
# Seen:     both statements raise ProgrammingError: Session variable '$US' (or '$SCHEMA') does not exist. A digit after
#           the dollar sign, as in 'US$100', is returned unchanged.
# Expected: the text and the column: Snowflake replaces session variables outside of quotes only (Snowflake, String
#           constants; Double-quoted identifiers).
# Matters:  a query that Snowflake runs fails in tests, and one that is corrected for tests reads another column.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  fakesnow==0.12.1 snowflake-connector-python==4.8.1 duckdb==2.0.0
"$folder/venv/bin/python" -B -W ignore - <<'PYTHON'
import sys

import fakesnow

STATEMENTS = "SELECT 'paid in $us'", 'SELECT 1 AS "$schema"', "SELECT 'US$100'"


def result(cursor, statement):
    try:
        return cursor.execute(statement).fetchall()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


with fakesnow.patch():
    import snowflake.connector

    cursor = snowflake.connector.connect(database="shop", schema="sales").cursor()
    results = [result(cursor, statement) for statement in STATEMENTS]
for statement, seen in zip(STATEMENTS, results, strict=True):
    print(f"{statement}: {seen}")
if not (
    "Session variable '$US' does not exist" in str(results[0])
    and "Session variable '$SCHEMA' does not exist" in str(results[1])
    and results[2] == [("US$100",)]
):
    sys.exit("The behaviour changed.")
PYTHON
