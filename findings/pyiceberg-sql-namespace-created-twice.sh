#!/usr/bin/env bash
# pyiceberg's SQL catalog fails to create a namespace "if not exists" when another process creates it at the same time.
#
# Versions: pyiceberg 0.12.0 with sqlalchemy 2.1.9 and SQLite.
# Input:    create_namespace_if_not_exists("shop") by four catalogs on one database at once, in up to 50 new databases.
# Seen:     some calls raise sqlalchemy.exc.IntegrityError, because of the unique constraint on namespace properties.
# Expected: no error. The method ignores NamespaceAlreadyExistsError, which create_namespace documents.
# Cause:    create_namespace asks whether the namespace exists, and inserts it in another transaction.
# Matters:  programs call it when they start. Of two that start together, one ends with an error of the database, which
#           is no error of pyiceberg and which callers therefore do not expect.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[sql-sqlite]==0.12.0' sqlalchemy==2.1.9
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.catalog.sql import SqlCatalog

CATALOGS = 4


def create(catalog, start):
    start.wait()
    try:
        catalog.create_namespace_if_not_exists("shop")
    except Exception as error:
        return f"{type(error).__module__}.{type(error).__name__}"
    return "no error"


outcomes = Counter()
for number in range(50):
    settings = {"uri": f"sqlite:///{sys.argv[1]}/{number}.db", "warehouse": f"file://{sys.argv[1]}"}
    catalogs = [SqlCatalog("lake", **settings) for _ in range(CATALOGS)]
    start = threading.Barrier(CATALOGS)
    with ThreadPoolExecutor(CATALOGS) as pool:
        outcomes.update(pool.map(create, catalogs, [start] * CATALOGS))
    if len(outcomes) > 1:
        break
print(dict(outcomes))
if "sqlalchemy.exc.IntegrityError" not in outcomes:
    sys.exit("The behaviour changed.")
PYTHON
