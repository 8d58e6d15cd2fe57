"""The asset of an Iceberg table: everything new in the topic, audited on a branch, then published."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets.automation import unless_continuous
from assets.entry import code_links, group, topic_of
from assets.failures import explained
from assets.shown import as_table
from assets.step import asset_spec, step
from lakehouse.config.checks import CONSERVATION, KEY_NOT_NULL, MIRRORED
from lakehouse.config.loader import Config
from lakehouse.config.sensitive import hidden_ids, shown
from lakehouse.config.topic import Topic
from lakehouse.core import arrow_values
from lakehouse.core.counts import OUTCOMES
from lakehouse.core.markdown import escaped
from lakehouse.pipeline.audit import AuditFailed, Finding
from lakehouse.pipeline.clients import CLIENTS, Clients
from lakehouse.pipeline.ingestion import Published, ingest
from lakehouse.pipeline.maintenance import size
from lakehouse.pipeline.mirror import mirrored
from lakehouse.pipeline.replay import replay
from resources.pauses import require_unpaused
from resources.snapshots import live_rows

if TYPE_CHECKING:
    from pyiceberg.table import Table

AUDITS = {
    CONSERVATION: "Each record read is a row, or a dead letter, or …: exactly one. Iceberg committed as many rows.",
    KEY_NOT_NULL: "No row has a null in a key column.",
}


PREVIEW = 5
"""Rows of a preview."""


class Replay(dg.Config):
    """What a materialization reads again before it takes what is new; by default nothing."""

    replay_since: str = Field(
        "",
        description="Read again from here: earliest, a time such as 2026-01-31T00:00:00Z, or offsets as 0:12,1:40, "
        "which read the partitions that they name.",
    )
    replay_branch: str = Field("", description="Write what was read again to this branch of the table, not to main.")


def table_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """`iceberg/<topic>`, with its audit as blocking checks: a batch that fails is not published."""
    key, namespace = dg.AssetKey(["iceberg", entry.name]), config.namespace

    spec = asset_spec(
        entry,
        "iceberg",
        deps=[["kafka", entry.name]],
        description=entry.description,
        kinds={"iceberg", "spark", "s3"},
        automation_condition=unless_continuous(entry),
        metadata={
            "dagster/table_name": f"{namespace}.{group(entry)}",
            "dagster/storage_kind": "iceberg",
            **code_links(config, entry),
        },
    )

    @step(
        spec,
        pool=f"iceberg_{group(entry)}",
        resources=CLIENTS,
        check_specs=[*_audit_specs(key, entry), *declared_specs(key, entry)],
        config=Replay,
    )
    def iceberg_table(
        context: dg.AssetExecutionContext, clients: Any, config: Replay
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
        systems = Clients.of(clients)
        systems.spark.tell(context.log.info)
        published: list[Published] = []
        replayed: dict[str, Any] = {}
        with explained(entry):
            topic = topic_of(entry, context)
            if config.replay_since:
                require_unpaused(systems.catalog, namespace, topic.name)
                again = replay(namespace, topic, systems, config.replay_since, config.replay_branch or None)
                replayed = {"replayed_records": again.counts.consumed, "replayed_rows": again.counts.rows}
                context.log.info(
                    f"{topic.name}: {again.counts.consumed:,} records read again from {config.replay_since}"
                )
            try:
                for batch in ingest(namespace, topic, systems):
                    published.append(batch)
                    context.log.info(said(topic, batch))
            except AuditFailed as failure:
                # Yielding a failed check does not stop this function: only the exception keeps main untouched.
                yield from check_results(failure.findings)
                raise
            found = [batch.findings for batch in published] or [_nothing_new(topic)]
            yield from check_results(_worst(found))
            yield from check_results(mirrored(namespace, topic, systems))
            _, table = systems.catalog.resolve_table(namespace, topic)
            metadata = _metadata(published) | replayed | (table_metadata(table, topic) if table else {})
        yield dg.MaterializeResult(
            metadata=metadata,
            data_version=dg.DataVersion(str(table.metadata.current_snapshot_id) if table else "empty"),
        )

    return iceberg_table


def _audit_specs(key: dg.AssetKey, entry: Topic) -> Iterator[dg.AssetCheckSpec]:
    for name, said in AUDITS.items():
        yield dg.AssetCheckSpec(name, asset=key, blocking=True, description=said)
    if entry.dead_letter_topic:
        description = f"Every dead letter is also in topic {entry.dead_letter_topic}."
        yield dg.AssetCheckSpec(MIRRORED, asset=key, description=description)


def declared_specs(key: dg.AssetKey, entry: Topic) -> Iterator[dg.AssetCheckSpec]:
    """The checks that lakehouse.yaml declares."""
    for name, check in entry.checks.items():
        yield dg.AssetCheckSpec(name, asset=key, blocking=check.severity == "blocking", description=check.said)


def check_results(findings: list[Finding]) -> Iterator[dg.AssetCheckResult]:
    """What was found, as Dagster shows it: a failing row by its key, and the query that finds all of them."""
    for finding in findings:
        metadata: dict[str, Any] = dict(finding.numbers)
        if finding.result:
            metadata["sql"] = dg.TextMetadataValue(finding.result.sql)
            if sample := finding.result.sample:
                metadata["sample"] = as_table(list(sample[0]), [list(row.values()) for row in sample])
        yield dg.AssetCheckResult(
            check_name=finding.check,
            passed=finding.passed,
            severity=dg.AssetCheckSeverity.ERROR if finding.severity == "blocking" else dg.AssetCheckSeverity.WARN,
            description=escaped(finding.said),
            metadata=metadata,
        )


def _worst(batches: list[list[Finding]]) -> list[Finding]:
    """One finding a check: of the first batch that fails it, else of the newest."""
    by_check: dict[str, Finding] = {}
    for finding in (finding for batch in batches for finding in batch):
        if finding.check not in by_check or by_check[finding.check].passed:
            by_check[finding.check] = finding
    return list(by_check.values())


def _nothing_new(topic: Topic) -> list[Finding]:
    """Checks that always report: one that stays silent would not block."""
    blocking = [Finding(name, True, "nothing new to audit") for name in AUDITS]
    declared = [Finding(name, True, "nothing new to check", {}, c.severity) for name, c in topic.checks.items()]
    return blocking + declared


def said(topic: Topic, batch: Published) -> str:
    """A published batch as a sentence of a log."""
    counts = batch.counts
    rate = counts.consumed / batch.seconds if batch.seconds else 0
    rest = (name for name in OUTCOMES[2:] if getattr(counts, name))
    others = "".join(f", {getattr(counts, name):,} {name.replace('_', ' ')}" for name in rest)
    return (
        f"{topic.name}: {counts.consumed:,} records → {counts.rows:,} rows{others} "
        f"in {batch.seconds:.1f} s ({rate:,.0f} records/s), snapshot {batch.snapshot_id}"
    )


def table_metadata(table: "Table", topic: Topic) -> dict[str, Any]:
    """The table as the catalog page shows it: rows, bytes, columns and where they are from, and its newest rows."""
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
    record = [column.name for column in columns if column.name not in topic.metadata.names.values()]
    source = dg.AssetKey(["kafka", topic.name])
    metadata: dict[str, Any] = {
        "dagster/row_count": live_rows(table),
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "dagster/column_lineage": dg.TableColumnLineage({name: [dg.TableColumnDep(source, name)] for name in record}),
    }
    if table.current_snapshot():
        rows = table.scan(selected_fields=tuple(shown(topic, table)), limit=PREVIEW).to_arrow()
        metadata["preview"] = as_table(rows.column_names, [list(row.values()) for row in arrow_values.rows(rows)])
        metadata["bytes"] = size(table).data_bytes
    return metadata


def _plain(type_: str) -> str:
    """pyiceberg's text of a type without the ids of nested fields: `struct<city: string>`."""
    return re.sub(r"\d+: ([^:<>]+): (?:optional|required) ", r"\1: ", type_)


def _metadata(published: list[Published]) -> dict[str, Any]:
    """Numbers of this run (Dagster plots them) and where it ended."""
    metadata: dict[str, Any] = {name: sum(getattr(batch.counts, name) for batch in published) for name in OUTCOMES}
    metadata |= {"batches": len(published), "seconds": round(sum(batch.seconds for batch in published), 2)}
    if published:
        last = published[-1]
        metadata |= {
            "snapshot_id": str(last.snapshot_id),
            "next_offsets": {str(p): o for p, o in sorted(last.batch.end.items())},
        }
    return metadata
