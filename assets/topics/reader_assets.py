"""The asset of a table in a reader (lakehouse.readers), and the checks that compare it with the published table."""

import time

import dagster as dg

from assets.entry import group, topic_of, unless_continuous
from assets.factories import CheckDefinition, asset_spec, dagster_failures, table_op
from assets.results import as_table, registration_metadata
from assets.run_log import run_log
from lakehouse.config.model import Config, Topic
from lakehouse.core.log_entry import LogEntry
from lakehouse.core.offsets.lag import snapshots_behind
from lakehouse.core.sql import SPARK
from lakehouse.core.tables.naming import TableRef
from lakehouse.core.text import escaped
from lakehouse.pipeline.table_location import table_of, table_resources
from lakehouse.readers import configured
from lakehouse.readers.engine_totals import TableTotals, differences
from lakehouse.readers.freshness import StageLag
from lakehouse.readers.reader import Reader
from resources.iceberg.catalog import published_table
from resources.iceberg.snapshots import commits, live_rows_at
from resources.protocols import Resources


def reader_asset(config: Config, entry: Topic, reader: Reader) -> dg.AssetsDefinition:
    """Return the asset `<reader>/<topic>`."""
    spec = asset_spec(
        entry,
        reader.name,
        deps=[[entry.name, reader.upstream]],
        description=f"{entry.description} {reader.description}".strip(),
        kinds=set(reader.kinds),
        automation_condition=unless_continuous(entry),
        metadata={"dagster/table_name": reader.table_name(TableRef(config.namespace, group(entry)))},
    )

    @table_op(
        spec,
        pool=f"{reader.name}_{group(entry)}",
        resources={"catalog", reader.resource, *table_resources(config, entry)},
    )
    def publication(context: dg.AssetExecutionContext, resources: Resources) -> dg.MaterializeResult:
        with dagster_failures(entry):
            topic = topic_of(entry, context)
            ref, table = resources.catalog.chain(table_of(config, topic, resources)).require_published()
            registration = reader.publish_tables(topic, ref, table, resources)
        message = f"{reader.label} shows {reader.table_name(ref)} at snapshot {registration.snapshot_id}"
        run_log(context)(LogEntry(message, topic=topic.name, reader=reader.name))
        return dg.MaterializeResult(
            metadata=registration_metadata(registration), data_version=dg.DataVersion(str(registration.snapshot_id))
        )

    return publication


def reader_check(config: Config, topic: Topic, reader: Reader) -> CheckDefinition:
    """Return the check that a reader exposes a published snapshot within the topic's maximum lag.

    If the reader counts rows, the check also compares the count with that of the snapshot.
    """

    def compare(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resources = context.resources
        ref, _ = resources.catalog.chain(table_of(config, topic, resources)).require_published()
        registration = reader.require(topic, ref, resources, count=True)
        # The table is loaded after the reader answered, because a snapshot may be published meanwhile.
        table = published_table(resources.catalog, ref)
        behind = snapshots_behind(commits(table), registration.snapshot_id, int(time.time() * 1000))
        lag = StageLag(topic.name, reader.name, topic.max_lag_seconds, behind, registration.snapshot_id)
        expected = None
        if registration.rows is not None and registration.snapshot_id is not None and behind:
            with resources.catalog.translate_errors():
                expected = live_rows_at(table, registration.snapshot_id)
        counts, comparison = {}, ""
        if registration.rows is not None:
            counts = {f"{reader.name}_rows": registration.rows, "iceberg_rows": expected}
            comparison = f"; {registration.rows:,} rows, Iceberg {expected:,}" if expected is not None else ""
        return dg.AssetCheckResult(
            check_name=reader.check,
            asset_key=[topic.name, reader.name],
            passed=lag.is_fresh and expected == registration.rows,
            description=escaped(lag.description + comparison),
            metadata={
                f"{reader.name}_snapshot_id": str(registration.snapshot_id),
                "iceberg_snapshot_id": str(table.metadata.current_snapshot_id),
                "metadata_location": registration.metadata_location,
                **counts,
            },
        )

    needs = frozenset({"catalog", reader.resource}) | table_resources(config, topic)
    return CheckDefinition(
        reader.check, reader.check_description, needs, compare, blocking=reader.is_blocking, is_of_snapshot=True
    )


AGREE = "engines_agree"


def engines_check(config: Config, topic: Topic, place: str) -> CheckDefinition:
    """Return the check that compares row counts and sums in the snapshot that each reader exposes.

    It sums the columns of integers and decimals. Each engine reads these columns once, so the check costs one query on
    the whole table per engine.

    Args:
        config: The configuration.
        topic: The topic.
        place: The name of the reader whose asset has the check.
    """
    readers = configured(config)

    def agree(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resources = context.resources
        ref, _ = resources.catalog.chain(table_of(config, topic, resources)).require_published()
        totals = {
            reader.name: reader.query_totals(topic, ref, resources)
            for reader in readers
            # The checks of another reader's asset report a missing table.
            if reader.name == place or reader.current(ref, resources)
        }
        # The history is read after the queries, because a snapshot may be published during them.
        history = commits(published_table(resources.catalog, ref))
        problems, compared = [], []
        for stage, queried in totals.items():
            behind = snapshots_behind(history, queried.snapshot_id, int(time.time() * 1000))
            lag = StageLag(topic.name, stage, topic.max_lag_seconds, behind, queried.snapshot_id)
            if not lag.is_fresh:
                problems.append(lag.description)
            if behind is not None:
                reference = _in_spark(ref, queried, resources)
                problems += differences(reference, queried)
                compared.append(reference)
            compared.append(queried)
        return dg.AssetCheckResult(
            check_name=AGREE,
            asset_key=[topic.name, place],
            passed=not problems,
            description=escaped("; ".join(problems))
            or f"{compared[-1].rows:,} rows and {len(compared[-1].sums)} sums are the same everywhere",
            metadata={"totals": _as_table(compared)},
        )

    engines = ", ".join(reader.engine for reader in readers)
    description = (
        f"Spark and the readers ({engines}) return the same row counts and sums for the snapshot that each exposes."
    )
    return CheckDefinition(
        AGREE,
        description,
        frozenset({"catalog", "spark", *(reader.resource for reader in readers)}) | table_resources(config, topic),
        agree,
        is_of_snapshot=True,
    )


def asset_of(config: Config) -> str | None:
    """Return the name of the reader whose asset has the check; None if the environment has no reader.

    It ends the chain of the first reader: a run publishes there last.
    """
    last = None
    for reader in configured(config):
        if last in (None, reader.upstream):
            last = reader.name
    return last


def _in_spark(ref: TableRef, queried: TableTotals, resources: Resources) -> TableTotals:
    """Return the totals that Spark, which wrote the table, computes for the snapshot that another engine queried."""
    quoted = {column: SPARK.identifier(column) for column in queried.scales}
    sums = "".join(f", SUM(CAST({quoted[column]} AS DECIMAL(38,{n})))" for column, n in queried.scales.items())
    table = f"{ref.spark_path()} VERSION AS OF {queried.snapshot_id}"
    session = resources.spark.session(resources.catalog.spark_settings())
    [row] = session.sql(f"SELECT COUNT(*){sums} FROM {table}").collect()  # noqa: S608 (all quoted)
    return TableTotals.of("Spark", queried.snapshot_id, queried.scales, tuple(row))


def _as_table(queried_totals: list[TableTotals]) -> dg.TableMetadataValue:
    columns = list(dict.fromkeys(column for queried in queried_totals for column in queried.sums))
    return as_table(
        ["engine", "snapshot", "rows", *(f"sum of {column}" for column in columns)],
        [[a.engine, a.snapshot_id, f"{a.rows:,}", *(a.sums.get(column) for column in columns)] for a in queried_totals],
    )
