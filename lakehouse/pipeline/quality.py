"""The checks that lakehouse.yaml declares for a table, run on one of its snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakehouse.config import checks
from lakehouse.config.checks import LONGEST_HISTORY, Check, RowCount, Scope
from lakehouse.config.sensitive import shown
from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.batch import Positions
from lakehouse.core.errors import LakehouseError
from lakehouse.pipeline.audit import Finding
from resources.catalog import Catalog
from resources.snapshots import counts_by_snapshot, history

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

    from spark.checks import Result


def findings(
    spark: SparkSession,
    catalog: Catalog,
    namespace: str,
    topic: Topic,
    declared: Mapping[str, Check],
    table: Table,
    snapshot_id: int,
    since: Positions,
) -> list[Finding]:
    """What declared checks of a topic find in a snapshot.

    Parameters: `since` is the first offset by partition of the rows to look at; with no partition, all rows are.
    Raises: ConfigError for a check that does not fit the table; LakehouseError when a table it refers to is empty.
    """
    from spark.checks import run

    if not declared:
        return []
    path = naming.spark_table(namespace, topic.table)
    others = referred(catalog, namespace, declared)
    scope = checks.scope(path, snapshot_id, since, topic.metadata.names, others)
    results = run(spark, declared, scope, {name: _shown(topic, check, table) for name, check in declared.items()})
    return [_finding(topic, name, check, results[name], table) for name, check in declared.items()]


def quarantine(
    decoded: DataFrame, namespace: str, topic: Topic, table: Table, since: Positions, checked: int, quarantined: int
) -> list[Finding]:
    """What a topic's quarantining checks kept from the table.

    Parameters: `decoded` is a batch that begins at `since`; `checked` are its rows, those in quarantine included, of
    which there are `quarantined`.
    """
    from spark.checks import set_aside

    letters = naming.spark_table(namespace, naming.dead_letter_table(topic.table))
    found = {}
    for name, check in topic.quarantine.items():
        sql = checks.in_quarantine(letters, name, since)
        columns = _shown(topic, check, table)
        found[name] = set_aside(decoded, name, columns, sql, checked, bool(quarantined))
    return [_finding(topic, name, check, found[name], table) for name, check in topic.quarantine.items()]


def fit(spark: SparkSession, namespace: str, topic: Topic) -> None:
    """Whether the quarantining checks fit the table: they are part of decoding, where an error would be a record's.

    Raises: ConfigError for the first that does not.
    """
    from spark.checks import validate

    table = naming.spark_table(namespace, topic.table)
    validate(spark, topic.quarantine, Scope(table, table, {}))


def referred(catalog: Catalog, namespace: str, declared: Mapping[str, Check]) -> dict[str, str]:
    """The newest snapshots of the tables that checks refer to, as SQL by name of the table.

    Raises: LakehouseError when one is empty.
    """
    return {
        table: _published(catalog, namespace, name, table) for name, check in declared.items() for table in check.tables
    }


def _published(catalog: Catalog, namespace: str, check: str, name: str) -> str:
    """The newest snapshot of another table, as SQL."""
    *_, (name, table) = catalog.successive_tables(namespace, name)
    snapshot = table.current_snapshot() if table else None
    if snapshot is None:
        raise LakehouseError(
            f"Check '{check}' refers to table {namespace}.{name}, which has nothing yet. Nothing was published. "
            f"Materialize that table first"
        )
    return f"{naming.spark_table(namespace, name)} VERSION AS OF {snapshot.snapshot_id}"


def _shown(topic: Topic, check: Check, table: Table) -> list[str]:
    """The columns of a sample: where the row is from, its key, and what the check looks at.

    Sensitive columns are left out; beside one that the check looks at, so are the others that it looks at. A query may
    give a value another name, so that of a table with sensitive columns only the origin is shown.

    Raises: ConfigError when `sensitive` names no column.
    """
    names, allowed = topic.metadata.names, shown(topic, table)
    origin = [names[name] for name in ("kafka_partition", "kafka_offset") if name in names]
    if topic.sensitive and not check.keeps_columns:
        return origin
    looked_at = check.columns or [name for name in allowed if name not in names.values()]
    if not set(looked_at) <= set(allowed):
        looked_at = ()
    return list(dict.fromkeys([*origin, *(name for name in (*topic.key, *looked_at) if name in allowed)]))


def _finding(topic: Topic, name: str, check: Check, result: Result, table: Table) -> Finding:
    numbers = {"rows_checked": result.checked, "failing_rows": result.failing}
    said, passed = f"{result.failing:,} of {result.checked:,} rows fail", result.failing == 0
    if isinstance(check, RowCount):
        low, high = check.expected(_rows_before(table))
        passed = low <= result.checked <= high
        said = f"{result.checked:,} rows, expected {low:,.0f} to {high:,.0f}"
        numbers = {"rows_checked": result.checked}
    elif check.severity == "quarantine":
        said = f"{result.failing:,} of {result.checked:,} rows are in quarantine"
        said += "" if passed else f": `lakehouse dead-letters {topic.name}` lists them"
    return Finding(name, passed, said, numbers, check.severity, result)


def _rows_before(table: Table) -> list[int]:
    """Rows of the newest batches on main."""
    noted = counts_by_snapshot(table)
    rows = [noted[snapshot.snapshot_id].get("rows", 0) for snapshot in history(table) if snapshot.snapshot_id in noted]
    return rows[:LONGEST_HISTORY]
