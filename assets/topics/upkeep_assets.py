"""The assets that look after a table: its dead letters, its ledger and its maintenance, with the nightly schedules."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.entry import group, partitions, topic_of, when_missing
from assets.factories import CheckDefinition, asset_spec, dagster_failures, table_op
from assets.results import as_table
from lakehouse.config.checks import LEDGER
from lakehouse.config.model import Config, Route, Topic
from lakehouse.core.offsets.batch import OUTCOMES
from lakehouse.core.offsets.ledger import totals
from lakehouse.core.table_protocol import DEAD_LETTERS
from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.clients import CLIENTS, Clients
from lakehouse.pipeline.ledger import ledger_page
from resources.protocols import Resources

if TYPE_CHECKING:
    from lakehouse.pipeline.ledger.reconciliation import ReconciliationReport

AFTER_READERS = -1
"""Priority of steps that nobody waits for: in the first run of a table, readers expose its rows before."""


def dead_letters_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """Return the asset `<topic>/dead_letters`.

    It is materialized manually, after the producer, the schema or the registry was repaired.
    """
    spec = asset_spec(
        entry,
        "dead_letters",
        deps=[[entry.name, "iceberg"]],
        description=f"Records of {entry.name} that could not be decoded or that a check quarantined. `lakehouse "
        f"dead-letters` lists them. To decode them again, remove the reason, then materialize this asset.",
        kinds={"iceberg", "spark"},
        metadata={"dagster/table_name": str(TableRef(config.namespace, group(entry)).dead_letters)},
    )

    @table_op(spec, pool=f"iceberg_{group(entry)}", resources=CLIENTS)
    def dead_letters(context: dg.AssetExecutionContext, resources: Resources) -> dg.MaterializeResult:
        from lakehouse.pipeline.redrive import redrive

        with dagster_failures(entry):
            topic = topic_of(entry, context)
            result = redrive(config.namespace, topic, Clients.of(resources))
        context.log.info(result.describe())
        if result.recovered:
            # Only a materialization of the table triggers the assets downstream of it.
            partition = context.partition_key if context.has_partition_key else None
            key = [entry.name, "iceberg"]
            metadata = {"redriven": result.recovered}
            _, table = resources.catalog.chain(topic.table_in(config.namespace)).newest
            version = {"dagster/data_version": str(table.metadata.current_snapshot_id)} if table else {}
            context.log_event(dg.AssetMaterialization(key, partition=partition, metadata=metadata, tags=version))
        return dg.MaterializeResult(metadata={"attempted": result.attempted, "recovered": result.recovered})

    return dead_letters


class Depth(dg.Config):
    """Depth of the reconciliation."""

    whole_log: bool = False
    """Also compare with every record in the topic's log, which reads the topic once."""


def ledger_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """Return the asset `<topic>/ledger`, a reconciliation, whose check `reconciled` fails on any difference."""
    key, namespace = dg.AssetKey([entry.name, "ledger"]), config.namespace

    spec = asset_spec(
        entry,
        "ledger",
        deps=[[entry.name, "iceberg"]],
        description=f"Records that each commit of {group(entry)} ingested, reconciled with rows and dead letters. The "
        "job ledger does it every day at 03:17 UTC.",
        kinds={"iceberg", "spark"},
        automation_condition=when_missing(),
    )

    @table_op(
        spec,
        pool=f"ledger_{group(entry)}",
        resources=CLIENTS,
        check_specs=[
            dg.AssetCheckSpec("reconciled", asset=key, description="Rows and dead letters match the commits.")
        ],
        config=Depth,
        priority=AFTER_READERS,
    )
    def reconciled_ledger(
        context: dg.AssetExecutionContext, resources: Resources, config: Depth
    ) -> dg.MaterializeResult:
        from lakehouse.pipeline.ledger.reconciliation import reconcile

        with dagster_failures(entry):
            topic = topic_of(entry, context)
            report = reconcile(namespace, topic, Clients.of(resources), whole_log=config.whole_log)
        summary = ledger_page.summary(report.entries, report.findings)
        counts = totals(report.entries)
        pages = {
            "findings": ledger_page.findings_table(report.findings),
            "commits": ledger_page.commits(report.entries, report.findings),
            "partitions": ledger_page.partitions(report.entries, report.rows, report.letters),
        }
        return dg.MaterializeResult(
            metadata={
                "summary": summary,
                **{name: as_table(*page) for name, page in pages.items()},
                **{name: getattr(counts, name) for name in OUTCOMES},
            },
            check_results=[
                dg.AssetCheckResult(
                    check_name="reconciled",
                    passed=report.is_consistent,
                    description=summary,
                    metadata=_findings(report),
                )
            ],
        )

    return reconciled_ledger


def ledger_check(config: Config, topic: Topic) -> CheckDefinition:
    """Return the check that commits add up and follow each other without a gap. It is cheap: it reads only metadata."""

    def verify_ledger(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        from lakehouse.pipeline.ledger.reconciliation import check_ledger

        report = check_ledger(context.resources.catalog, config.namespace, topic)
        return dg.AssetCheckResult(
            check_name=LEDGER,
            asset_key=[topic.name, "iceberg"],
            passed=report.is_consistent,
            description=ledger_page.summary(report.entries, report.findings),
            metadata={"commits": len(report.entries)} | _findings(report),
        )

    description = "Every commit accounts for each record it consumed, and begins where the one before it ended."
    return CheckDefinition(LEDGER, description, frozenset({"catalog"}), verify_ledger)


def _findings(report: "ReconciliationReport") -> dict[str, Any]:
    return {"findings": as_table(*ledger_page.findings_table(report.findings))} if report.findings else {}


def maintenance_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """Return the asset `<topic>/maintenance`, which shares the writer's pool, so that only one of them runs."""
    spec = asset_spec(
        entry,
        "maintenance",
        deps=[[entry.name, "iceberg"]],
        description=f"Compacts {group(entry)}, expires its snapshots and deletes orphan files. The job maintenance "
        "does it every day at 02:17 UTC.",
        kinds={"iceberg", "spark"},
        automation_condition=when_missing(),
    )

    @table_op(spec, pool=f"iceberg_{group(entry)}", resources=("catalog", "spark"), priority=AFTER_READERS)
    def maintenance(context: dg.AssetExecutionContext, resources: Resources) -> dg.MaterializeResult:
        from lakehouse.pipeline.clients import engine_client
        from lakehouse.pipeline.maintenance import maintain

        metadata: dict[str, Any] = {}
        with dagster_failures(entry):
            topic = topic_of(entry, context)
            for result in maintain(config.namespace, topic, resources.catalog, engine_client(resources.spark)):
                context.log.info(
                    f"{result.table}: {', '.join(result.actions) or 'nothing to do'} ({result.seconds:.1f} s)"
                )
                if result.table.endswith(DEAD_LETTERS):
                    continue
                metadata |= {f"{name}_before": n for name, n in asdict(result.before).items()}
                metadata |= {name: n for name, n in asdict(result.after).items()}
                metadata |= {"actions": list(result.actions), "seconds": round(result.seconds, 2)}
        return dg.MaterializeResult(metadata=metadata)

    return maintenance


RUNNING = dg.DefaultScheduleStatus.RUNNING


def nightly(config: Config, prefix: str, cron: str, description: str) -> dg.Definitions:
    """Return jobs and schedules that materialize all assets under a key prefix, at the times of a cron expression."""
    topics = dg.AssetSelection.assets(*([topic, prefix] for topic in config.spark_topics))
    job = dg.define_asset_job(prefix, topics, description=description)
    schedules = [dg.ScheduleDefinition(job=job, cron_schedule=cron, description=description, default_status=RUNNING)]
    schedules += [_of_route(route, prefix, cron, description) for route in config.routes.values()]
    return dg.Definitions(jobs=[schedule.job for schedule in schedules], schedules=schedules)


def _of_route(route: Route, prefix: str, cron: str, description: str) -> dg.ScheduleDefinition:
    topics = partitions(route)
    assert topics is not None
    job = dg.define_asset_job(
        f"{prefix}_{naming.node_name(route.name)}",
        dg.AssetSelection.assets([route.name, prefix]),
        description=description,
    )

    @dg.schedule(
        name=f"{job.name}_schedule", job=job, cron_schedule=cron, description=description, default_status=RUNNING
    )
    def each_topic(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest]:
        keys = topics.get_partition_keys(dynamic_partitions_store=context.instance)
        at = context.scheduled_execution_time.isoformat()
        return [dg.RunRequest(run_key=f"{topic} {at}", partition_key=topic) for topic in keys]

    return each_topic
