"""The ledger in Dagster: a check in every run of the table, and an asset that reconciles the ledger and shows it."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.asset_factory import asset_spec, table_op
from assets.check_definition import CheckDefinition
from assets.entry import group, topic_of
from assets.failures import dagster_failures
from assets.text_table import as_table
from lakehouse.config.checks import LEDGER
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.offsets.counts import OUTCOMES
from lakehouse.core.offsets.ledger import totals
from lakehouse.pipeline.clients import CLIENTS, Clients
from lakehouse.pipeline.ledger import ledger_page
from resources.by_key import Resources

if TYPE_CHECKING:
    from lakehouse.pipeline.ledger.reconciliation import ReconciliationReport


class Depth(dg.Config):
    """Depth of the reconciliation."""

    whole_log: bool = False
    """Also compare with every record in the topic's log, which reads the topic once."""


def ledger_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """Return the asset `ledger/<topic>`, a reconciliation, whose check `reconciled` fails on any difference."""
    key, namespace = dg.AssetKey(["ledger", entry.name]), config.namespace

    spec = asset_spec(
        entry,
        "ledger",
        deps=[["iceberg", entry.name]],
        description=f"Records that each commit of {group(entry)} ingested, reconciled with rows and dead letters.",
        kinds={"iceberg", "spark"},
    )

    @table_op(
        spec,
        pool=f"ledger_{group(entry)}",
        resources=CLIENTS,
        check_specs=[
            dg.AssetCheckSpec("reconciled", asset=key, description="Rows and dead letters match the commits.")
        ],
        config=Depth,
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
            asset_key=["iceberg", topic.name],
            passed=report.is_consistent,
            description=ledger_page.summary(report.entries, report.findings),
            metadata={"commits": len(report.entries)} | _findings(report),
        )

    description = "Every commit accounts for each record it consumed, and begins where the one before it ended."
    return CheckDefinition(LEDGER, description, frozenset({"catalog"}), verify_ledger)


def _findings(report: "ReconciliationReport") -> dict[str, Any]:
    return {"findings": as_table(*ledger_page.findings_table(report.findings))} if report.findings else {}
