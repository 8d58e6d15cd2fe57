"""Run the checks that lakehouse.yaml declares on a snapshot of a table."""

from collections.abc import Mapping
from dataclasses import replace

from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import index_by_id
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, FloatType

from lakehouse.config import checks
from lakehouse.config.checks import MAX_HISTORY, Check, References, RowCount, Scope, Unique
from lakehouse.config.model import Topic
from lakehouse.config.sensitive import visible_columns
from lakehouse.core.errors import LakehouseError
from lakehouse.core.offsets.batch import Positions
from lakehouse.core.sql import SPARK
from lakehouse.core.table_protocol import RECREATED
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.commits.audit import CheckResult
from lakehouse.pipeline.commits.footers import added_files
from lakehouse.pipeline.engine import Decided, Engine
from lakehouse.pipeline.engine_values import CheckedRows, Checking
from resources.iceberg.snapshots import counts_by_snapshot, history
from resources.iceberg.table_chain import TableChain
from resources.protocols import ReadableCatalog

SPARK_TYPES = {"long": "BIGINT", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP", "uuid": "STRING"}
"""Types of Spark SQL whose names differ from Iceberg's (Iceberg, Spark getting started: Type compatibility)."""


def batch_results(
    context: BatchContext, table: Table, snapshot_id: int, since: Positions, *, again: bool = False
) -> list[CheckResult]:
    """Run a topic's checks on the rows of a batch.

    Checks with `severity: quarantine` are left out, because the rows that fail them are not in the table.

    Args:
        context: The batch.
        table: The table that contains the snapshot.
        snapshot_id: The snapshot.
        since: The first offset of each partition (inclusive).
        again: Whether the rows were read before. Row count checks are left out then: the size of a replay is
            arbitrary.

    Raises:
        ConfigError: A check does not fit the table.
        LakehouseError: A table that a check refers to is empty.
    """
    topic = context.topic
    declared = {
        name: check
        for name, check in topic.checks.items()
        if name not in topic.quarantine and not (again and isinstance(check, RowCount))
    }
    return run_checks(context.engine, context.clients.catalog, topic, declared, table, snapshot_id, since)


def run_checks(
    engine: Engine,
    catalog: ReadableCatalog,
    topic: Topic,
    declared: Mapping[str, Check],
    table: Table,
    snapshot_id: int,
    since: Positions,
) -> list[CheckResult]:
    """Run declared checks on a snapshot.

    Args:
        engine: The engine.
        catalog: The catalog of the table.
        topic: The topic.
        declared: The checks by name.
        table: The table.
        snapshot_id: The snapshot.
        since: The first offset (inclusive) of the rows to check, by partition; all rows if empty.

    Raises:
        ConfigError: A check does not fit the table.
        LakehouseError: A table that a check refers to is empty.
    """
    if not declared:
        return []
    ref = TableRef(*table.name(), spark_catalog=catalog.spark_name)
    snapshots = referenced_snapshots(catalog, ref.namespace, declared)
    files = _new_files(table, snapshot_id) if since and RECREATED in table.properties else None
    scope = checks.scope(ref.spark_path(), snapshot_id, since, topic.metadata.names, snapshots, files)
    scope = replace(scope, earlier=_earlier(catalog, topic, declared, table), has_floats=_has_floats(table))
    results = engine.check(declared, scope, {name: _shown(topic, check, table) for name, check in declared.items()})
    return [_result(topic, name, check, results[name], table) for name, check in declared.items()]


def quarantine_results(
    decided: Decided, topic: Topic, ref: TableRef, table: Table, since: Positions, checked: int, quarantined: int
) -> list[CheckResult]:
    """Return the results of a topic's quarantining checks.

    Args:
        decided: The records of a batch.
        topic: The topic.
        ref: The table.
        table: The table as loaded.
        since: The first offset of the batch by partition.
        checked: The number of rows that were checked, including those in quarantine.
        quarantined: The number of rows in quarantine.
    """
    letters, results = ref.dead_letters.spark_path(), {}
    shown = {name: _shown(topic, check, table) for name, check in topic.quarantine.items()}
    samples = decided.quarantined(shown) if quarantined else {}
    for name in topic.quarantine:
        failing, sample = samples.get(name, (0, []))
        results[name] = CheckedRows(checked, failing, checks.quarantined_rows(letters, name, since), sample)
    return [_result(topic, name, check, results[name], table) for name, check in topic.quarantine.items()]


def validate_quarantine(engine: Engine, topic: Topic, ref: TableRef) -> None:
    """Require that the quarantining checks fit the table.

    They are part of decoding, where an error would be attributed to a record.

    Raises:
        ConfigError: A check does not fit.
    """
    path = ref.spark_path()
    engine.completes(Checking(topic.quarantine, Scope(path, path, {})))


def referenced_snapshots(catalog: ReadableCatalog, namespace: str, declared: Mapping[str, Check]) -> dict[str, str]:
    """Return the newest snapshots of the tables that checks refer to, as SQL by table name.

    Raises:
        LakehouseError: A table is empty.
    """
    columns: dict[str, dict[str, None]] = {}
    for check in declared.values():
        if isinstance(check, References):
            columns.setdefault(check.table, {})[check.table_column or check.column] = None
    return {
        table: _published(
            catalog, TableRef(namespace, table, spark_catalog=catalog.spark_name), name, tuple(columns.get(table, ()))
        )
        for name, check in declared.items()
        for table in check.tables
    }


def _published(catalog: ReadableCatalog, first: TableRef, check: str, columns: tuple[str, ...]) -> str:
    """Return the newest snapshot of another table as SQL; with columns, their values in all tables of its topic."""
    chain = catalog.chain(first)
    if chain.published is None:
        raise LakehouseError(
            f"Check '{check}' refers to table {first}, which is empty. Nothing was published. Materialize that table "
            f"first"
        )
    ref, table = chain.published
    newest = f"{ref.spark_path()} VERSION AS OF {table.metadata.current_snapshot_id}"
    earlier = _values(chain, table, columns) if columns else []
    if not earlier:
        return newest
    names = ", ".join(map(SPARK.identifier, columns))
    return f"({' UNION ALL '.join([f'SELECT {names} FROM {newest}', *earlier])})"


def _earlier(
    catalog: ReadableCatalog, topic: Topic, declared: Mapping[str, Check], table: Table
) -> dict[tuple[str, ...], str]:
    """Return queries for the values that `unique` checks compare with, in the tables before the newest one."""
    unique = [check.columns for check in declared.values() if isinstance(check, Unique)]
    if not unique:
        return {}
    chain = catalog.chain(topic.table_in(TableRef(*table.name()).namespace))
    queries = {columns: _values(chain, table, columns) for columns in unique}
    return {columns: " UNION ALL ".join(selects) for columns, selects in queries.items() if selects}


def _values(chain: TableChain, newest: Table, columns: tuple[str, ...]) -> list[str]:
    """Return a query for the values of columns, in the types of `newest`, for each other table that has them."""
    queries, types = [], {field.name: str(field.field_type) for field in newest.schema().fields}
    for ref, table in chain.existing:
        earlier_types = {field.name: str(field.field_type) for field in table.schema().fields}
        is_newest = table.metadata.table_uuid == newest.metadata.table_uuid
        if is_newest or not table.current_snapshot() or not {*columns} <= earlier_types.keys() & types.keys():
            continue
        values = (
            SPARK.identifier(name)
            if earlier_types[name] == types[name]
            else f"TRY_CAST({SPARK.identifier(name)} AS {SPARK_TYPES.get(types[name], types[name])})"
            for name in columns
        )
        queries.append(
            f"SELECT {', '.join(values)} FROM {ref.spark_path()} VERSION AS OF {table.metadata.current_snapshot_id}"
        )
    return queries


def _new_files(table: Table, snapshot_id: int) -> list[str]:
    """Return the data files of a snapshot that main does not have."""
    published = {snapshot.snapshot_id for snapshot in history(table)}
    new = [snapshot for snapshot in history(table, snapshot_id) if snapshot.snapshot_id not in published]
    files = (file for snapshot in new for file in added_files(table, snapshot))
    return [file.file_path for file in files if file.content == DataFileContent.DATA]


def _has_floats(table: Table) -> bool:
    return any(isinstance(field.field_type, FloatType | DoubleType) for field in index_by_id(table.schema()).values())


def _shown(topic: Topic, check: Check, table: Table) -> list[str]:
    """Return the columns of a sample: the row's origin, its key, and the columns that the check reads.

    Sensitive columns are left out. If the check reads one, its other columns are left out as well. A query may rename
    values, so for tables with sensitive columns only the origin is shown.

    Raises:
        ConfigError: An entry of `sensitive` is not a column.
    """
    names, allowed = topic.metadata.names, visible_columns(topic, table)
    origin = [names[name] for name in ("kafka_partition", "kafka_offset") if name in names]
    if topic.sensitive and not check.keeps_columns:
        return origin
    check_columns = check.columns or [name for name in allowed if name not in names.values()]
    if not set(check_columns) <= set(allowed):
        check_columns = ()
    return list(dict.fromkeys([*origin, *(name for name in (*topic.key, *check_columns) if name in allowed)]))


def _result(topic: Topic, name: str, check: Check, result: CheckedRows, table: Table) -> CheckResult:
    numbers = {"rows_checked": result.checked, "failing_rows": result.failing}
    message, passed = f"{result.failing:,} of {result.checked:,} rows fail", not (result.failing or result.error)
    if isinstance(check, RowCount):
        low, high = check.expected(_rows_before(table))
        passed = low <= result.checked <= high
        message = f"{result.checked:,} rows, expected {low:,.0f} to {high:,.0f}"
        numbers = {"rows_checked": result.checked}
    elif check.severity == "quarantine":
        message = f"{result.failing:,} of {result.checked:,} rows are in quarantine"
        message += "" if passed else f": `lakehouse dead-letters {topic.name}` lists them"
    elif result.errors:
        message += f", {result.errors:,} of them because the condition raises {result.error}"
    elif result.error:
        message = f"the check raises {result.error}, so failing rows are unknown"
    return CheckResult(name, passed, message, numbers, check.severity, result)


def _rows_before(table: Table) -> list[int]:
    """Return the row counts of the newest batches on main."""
    counts = counts_by_snapshot(table)
    rows = [
        counts[snapshot.snapshot_id].get("rows", 0) for snapshot in history(table) if snapshot.snapshot_id in counts
    ]
    return rows[:MAX_HISTORY]
