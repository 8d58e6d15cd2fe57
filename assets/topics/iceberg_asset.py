"""The asset of an Iceberg table, which ingests the new records of its topic, audits them on a branch and publishes.

The asset of a table that Confluent's Tableflow writes observes and checks the table in its catalog. Tableflow publishes
without this project, so a failed check reports rows but cannot withhold them from readers.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets.entry import code_links, group, on_upstream_change, topic_of, unless_continuous
from assets.factories import asset_spec, dagster_failures, table_op
from assets.results import as_table, batch_entry, check_results
from assets.run_log import run_log
from assets.topics import confluent_state
from lakehouse.config.checks import DEAD_LETTER_TOPIC, KEY_NOT_NULL, RECORD_COUNT, SOURCE_SNAPSHOT
from lakehouse.config.model import Config, Topic
from lakehouse.config.sensitive import hidden_ids, visible_columns
from lakehouse.core.errors import LakehouseError
from lakehouse.core.log_entry import LogEntry
from lakehouse.core.offsets.batch import OUTCOMES
from lakehouse.core.text import escaped, pluralize
from lakehouse.pipeline.clients import CLIENTS, Clients
from lakehouse.pipeline.table_location import catalog_of, table_of, table_resources
from resources.confluent.confluent_cloud import ConfluentCloud
from resources.iceberg.pauses import require_unpaused
from resources.iceberg.snapshots import live_rows
from resources.protocols import Resources, find_resource

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.pipeline.commits.audit import CheckResult
    from lakehouse.pipeline.ingestion import Published


AUDITS = {
    RECORD_COUNT: "Each record has one outcome, such as row or dead letter, and Iceberg committed all counted rows.",
    KEY_NOT_NULL: "No row has a null in a key column.",
}


PREVIEW = 5
"""Number of rows in a preview."""


class Replay(dg.Config):
    """Records that a materialization replays before it ingests new ones; by default none."""

    replay_since: str = Field(
        "",
        description="Start of the replay: earliest, a time such as 2026-01-31T00:00:00Z, or offsets by partition such "
        "as 0:12,1:40, which replay only these partitions.",
    )
    replay_branch: str = Field(
        "", description="Branch of the table to which replayed records are written instead of main."
    )


def table_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """Return the asset `<topic>/iceberg`. Its audit runs as blocking checks: a batch that fails is not published."""
    key, namespace = dg.AssetKey([entry.name, "iceberg"]), config.namespace

    spec = asset_spec(
        entry,
        "iceberg",
        deps=[[entry.name, "kafka"]],
        description=entry.description,
        kinds={"iceberg", "spark", "s3"},
        automation_condition=unless_continuous(entry),
        metadata={
            "dagster/table_name": f"{namespace}.{group(entry)}",
            "dagster/storage_kind": "iceberg",
            **code_links(config, entry),
        },
    )

    @table_op(
        spec,
        pool=f"iceberg_{group(entry)}",
        resources=CLIENTS,
        check_specs=[*_audit_specs(key, entry), *declared_specs(key, entry)],
        config=Replay,
    )
    def iceberg_table(
        context: dg.AssetExecutionContext, resources: Resources, config: Replay
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
        from lakehouse.pipeline.commits.audit import AuditFailed
        from lakehouse.pipeline.dead_letters.dead_letter_topic import try_publish_dead_letters
        from lakehouse.pipeline.ingestion import ingest
        from lakehouse.pipeline.replay import replay

        clients = Clients.of(resources)
        log = run_log(context)
        resources.spark.on_progress(context.log.info)
        published: list[Published] = []
        replayed: dict[str, Any] = {}
        failure: Exception | None = None
        with dagster_failures(entry), clients.catalog.translate_errors():
            topic = topic_of(entry, context)
            try:
                if config.replay_since:
                    require_unpaused(clients.catalog, namespace, topic)
                    replay_result = replay(namespace, topic, clients, config.replay_since, config.replay_branch or None)
                    counts = replay_result.counts
                    replayed = {"replayed_records": counts.consumed, "replayed_rows": counts.rows}
                    message = (
                        f"{topic.name}: {pluralize(counts.consumed, 'record')} replayed from {config.replay_since}"
                    )
                    log(LogEntry(message, topic=topic.name))
                for batch in ingest(namespace, topic, clients):
                    published.append(batch)
                    log(batch_entry(topic, batch))
            except Exception as error:
                # A failed check alone does not stop the run. Only the exception fails it.
                if isinstance(error, AuditFailed):
                    yield from check_results(error.findings)
                if not published:
                    raise
                failure = error
            if not isinstance(failure, AuditFailed):
                findings = [batch.findings for batch in published] or [_nothing_new(topic)]
                yield from check_results(_worst(findings))
            yield from check_results(try_publish_dead_letters(namespace, topic, clients))
            _, table = clients.catalog.chain(topic.table_in(namespace)).newest
            metadata = _metadata(published) | replayed | (table_metadata(table, topic) if table else {})
            yield dg.MaterializeResult(
                metadata=metadata,
                data_version=dg.DataVersion(str(table.metadata.current_snapshot_id) if table else "empty"),
            )
            if failure:
                # The batches before it are published, and readers may show them.
                raise failure

    return iceberg_table


def _audit_specs(key: dg.AssetKey, entry: Topic) -> Iterator[dg.AssetCheckSpec]:
    for name, statement in AUDITS.items():
        yield dg.AssetCheckSpec(name, asset=key, blocking=True, description=statement)
    if entry.mode == "debezium":
        description = "The connector began no other snapshot of the source, which may leave rows that were deleted."
        yield dg.AssetCheckSpec(SOURCE_SNAPSHOT, asset=key, description=description)
    if entry.dead_letter_topic:
        description = f"Every dead letter is also in topic {entry.dead_letter_topic}."
        yield dg.AssetCheckSpec(DEAD_LETTER_TOPIC, asset=key, description=description)


def declared_specs(key: dg.AssetKey, entry: Topic) -> Iterator[dg.AssetCheckSpec]:
    """Yield the specs of the checks that lakehouse.yaml declares."""
    for name, check in entry.checks.items():
        yield dg.AssetCheckSpec(name, asset=key, blocking=check.severity == "blocking", description=check.statement)


def _worst(batches: "list[list[CheckResult]]") -> "list[CheckResult]":
    """Return one result for each check: that of the first batch that fails it, otherwise that of the newest batch."""
    by_check: dict[str, CheckResult] = {}
    for finding in (finding for batch in batches for finding in batch):
        if finding.check not in by_check or by_check[finding.check].passed:
            by_check[finding.check] = finding
    return list(by_check.values())


def _nothing_new(topic: Topic) -> "list[CheckResult]":
    """Return passed results for a run without new records: assets downstream stay blocked until each check reports."""
    from lakehouse.pipeline.commits.audit import CheckResult

    blocking = [CheckResult(name, True, "nothing new to audit") for name in AUDITS]
    declared = [CheckResult(name, True, "nothing new to check", {}, c.severity) for name, c in topic.checks.items()]
    return blocking + declared


def table_metadata(table: "Table", topic: Topic) -> dict[str, Any]:
    """Return the metadata of a table: row count, bytes, columns with their lineage, and a preview of rows."""
    from lakehouse.core.tables import arrow_values
    from lakehouse.pipeline.maintenance import size

    hidden = hidden_ids(topic, table)
    columns = [
        dg.TableColumn(
            field.name,
            _plain(str(field.field_type)),
            description=escaped(field.doc) if field.doc else None,
            constraints=dg.TableColumnConstraints(other=["sensitive"] if field.field_id in hidden else []),
        )
        for field in table.schema().fields
    ]
    from_record = [column.name for column in columns if column.name not in topic.metadata.names.values()]
    source = dg.AssetKey([topic.name, "kafka"])
    metadata: dict[str, Any] = {
        "dagster/row_count": live_rows(table),
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "dagster/column_lineage": dg.TableColumnLineage(
            {name: [dg.TableColumnDep(source, name)] for name in from_record}
        ),
    }
    if table.current_snapshot():
        rows = table.scan(selected_fields=tuple(visible_columns(topic, table)), limit=PREVIEW).to_arrow()
        metadata["preview"] = as_table(rows.column_names, [list(row.values()) for row in arrow_values.rows(rows)])
        metadata["bytes"] = size(table).data_bytes
    return metadata


def _plain(type_: str) -> str:
    """Return pyiceberg's text of a type without the ids of nested fields, such as `struct<city: string>`."""
    return re.sub(r"\d+: ([^:<>]+): (?:optional|required) ", r"\1: ", type_)


def _metadata(published: "list[Published]") -> dict[str, Any]:
    """Return the numbers of this run, which Dagster plots, and its last snapshot and offsets."""
    metadata: dict[str, Any] = {name: sum(getattr(batch.counts, name) for batch in published) for name in OUTCOMES}
    metadata |= {"batches": len(published), "seconds": round(sum(batch.seconds for batch in published), 2)}
    if published:
        last = published[-1]
        metadata |= {
            "snapshot_id": str(last.snapshot_id),
            "next_offsets": {str(p): o for p, o in sorted(last.batch.end.items())},
        }
    return metadata


def tableflow_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """Return the asset `<topic>/iceberg` of a table by Tableflow, with the declared checks on its newest snapshot."""
    key = dg.AssetKey([entry.name, "iceberg"])
    spec = asset_spec(
        entry,
        "iceberg",
        deps=[[entry.name, "kafka"]],
        description=f"{entry.description} Written by Confluent's Tableflow.".strip(),
        kinds={"iceberg", "confluent", "s3"},
        automation_condition=on_upstream_change(),
        metadata={"dagster/storage_kind": "iceberg", **code_links(config, entry)},
    )
    cloud = confluent_state.needed(config)

    @table_op(
        spec,
        pool=f"iceberg_{group(entry)}",
        resources={"catalog", "spark", *table_resources(config, entry), *cloud},
        check_specs=declared_specs(key, entry),
    )
    def tableflow_table(
        context: dg.AssetExecutionContext, resources: Resources
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
        from lakehouse.pipeline.clients import engine_client
        from lakehouse.pipeline.commits import column_checks

        with dagster_failures(entry):
            catalog = catalog_of(entry, resources)
            ref = table_of(config, entry, resources)
            table = catalog.load(ref)
            snapshot = table.current_snapshot() if table else None
            if table is None or snapshot is None:
                raise LakehouseError(
                    f"Tableflow has published no table '{'.'.join(ref.identifier)}' yet. Nothing was changed. It "
                    f"publishes minutes after the topic's first records; `lakehouse deploy plan` shows its state"
                )
            engine = engine_client(resources.spark).engine(catalog.spark_settings())
            results = column_checks.run_checks(engine, catalog, entry, entry.checks, table, snapshot.snapshot_id, {})
            context.log.info(f"{ref} is at snapshot {snapshot.snapshot_id}")
            yield from check_results(results)
            confluent = find_resource(resources, confluent_state.RESOURCE, ConfluentCloud)
            state = confluent_state.tableflow_state(confluent, entry).metadata if confluent else {}
            yield dg.MaterializeResult(
                metadata={"snapshot_id": str(snapshot.snapshot_id), **table_metadata(table, entry), **state},
                data_version=dg.DataVersion(str(snapshot.snapshot_id)),
            )

    return tableflow_table
