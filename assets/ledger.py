"""The ledger in Dagster: a check with every run of the table, and an asset that proves it and shows it as a page."""

from typing import Any

import dagster as dg

from assets.entry import group, topic_of
from assets.failures import explained
from assets.shown import as_table
from assets.standing import Standing
from assets.step import asset_spec, step
from lakehouse.config.checks import LEDGER
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.ledger import totals
from lakehouse.pipeline import ledger_page
from lakehouse.pipeline.clients import CLIENTS, Clients
from lakehouse.pipeline.proof import Proof, check, prove


class Depth(dg.Config):
    """How far the proof goes."""

    whole_log: bool = False
    """Also compare with every record that the topic's log still holds, which reads the topic once."""


def ledger_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """`ledger/<topic>`: the deep check as a page; its check `proven` fails when something does not add up."""
    key, namespace = dg.AssetKey(["ledger", entry.name]), config.namespace

    spec = asset_spec(
        entry,
        "ledger",
        deps=[["iceberg", entry.name]],
        description=f"What each commit of {group(entry)} took from the topic, proven against rows and dead letters.",
        kinds={"iceberg", "spark"},
    )

    @step(
        spec,
        pool=f"ledger_{group(entry)}",
        resources=CLIENTS,
        check_specs=[
            dg.AssetCheckSpec("proven", asset=key, description="Rows and dead letters are what the commits counted.")
        ],
        config=Depth,
    )
    def proven_ledger(context: dg.AssetExecutionContext, clients: Any, config: Depth) -> dg.MaterializeResult:
        with explained(entry):
            topic = topic_of(entry, context)
            proof = prove(namespace, topic, Clients.of(clients), whole_log=config.whole_log)
        said = ledger_page.summary(proof.entries, proof.findings)
        counts = totals(proof.entries)
        pages = {
            "findings": ledger_page.findings_table(proof.findings),
            "commits": ledger_page.commits(proof.entries, proof.findings),
            "partitions": ledger_page.partitions(proof.entries, proof.rows, proof.letters),
        }
        return dg.MaterializeResult(
            metadata={
                "summary": said,
                **{name: as_table(*page) for name, page in pages.items()},
                **{name: getattr(counts, name) for name in ledger_page.COUNTED},
            },
            check_results=[
                dg.AssetCheckResult(check_name="proven", passed=proof.holds, description=said, metadata=_found(proof))
            ],
        )

    return proven_ledger


def ledger_check(config: Config, topic: Topic) -> Standing:
    """The commits add up and follow each other without a gap: metadata only, so that it is cheap."""

    def adds_up(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        proof = check(context.resources.catalog, config.namespace, topic)
        return dg.AssetCheckResult(
            check_name=LEDGER,
            asset_key=["iceberg", topic.name],
            passed=proof.holds,
            description=ledger_page.summary(proof.entries, proof.findings),
            metadata={"commits": len(proof.entries)} | _found(proof),
        )

    said = "Every commit accounts for each record it consumed, and begins where the one before it ended."
    return Standing(LEDGER, said, frozenset({"catalog"}), adds_up)


def _found(proof: Proof) -> dict[str, Any]:
    return {"findings": as_table(*ledger_page.findings_table(proof.findings))} if proof.findings else {}
