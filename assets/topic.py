"""A declared topic as its chain of assets: kafka → iceberg → glue → snowflake."""

from __future__ import annotations

import dagster as dg

from assets.dead_letters import dead_letters_asset
from assets.freshness import freshness_checks
from assets.glue import registration_asset, registration_check
from assets.iceberg import table_asset
from assets.kafka import topic_asset
from assets.ledger import ledger_asset, ledger_check
from assets.maintenance import maintenance_asset
from assets.snowflake import snowflake_asset, snowflake_check
from lakehouse.config import Config, Route, Topic


def route_definitions(config: Config, route: Route) -> dg.Definitions:
    """The chain of a route: the same assets as a topic's, with a partition a topic."""
    return dg.Definitions(assets=_chain(config, route), asset_checks=freshness_checks(config, route))


def _chain(config: Config, entry: Topic) -> list[dg.AssetsDefinition]:
    return [
        topic_asset(config, entry),
        table_asset(config, entry),
        registration_asset(config, entry),
        snowflake_asset(config, entry),
        *([dead_letters_asset(config, entry)] if entry.keeps_dead_letters else []),
        ledger_asset(config, entry),
        maintenance_asset(config, entry),
    ]


def topic_definitions(config: Config, topic: Topic) -> dg.Definitions:
    """Everything Dagster knows of one topic. To add a target system, add its module and its lines here."""
    return dg.Definitions(
        assets=_chain(config, topic),
        asset_checks=[
            *freshness_checks(config, topic),
            ledger_check(config, topic),
            registration_check(config, topic),
            snowflake_check(config, topic),
        ],
    )
