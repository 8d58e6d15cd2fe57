"""A declared topic as its chain of assets: kafka → iceberg → glue → snowflake."""

from __future__ import annotations

import dagster as dg

from assets.dead_letters import dead_letters_asset
from assets.glue import registration_asset, registration_check
from assets.iceberg import freshness_check, table_asset
from assets.kafka import topic_asset
from assets.ledger import ledger_asset, ledger_check
from assets.maintenance import maintenance_asset
from assets.snowflake import snowflake_asset, snowflake_check
from lakehouse.config import Config, Route, Topic


def route_definitions(config: Config, route: Route) -> dg.Definitions:
    """The chain of a route: the same assets as a topic's, with a partition a topic."""
    return dg.Definitions(
        assets=[
            topic_asset(config, route),
            table_asset(config, route),
            registration_asset(config, route),
            snowflake_asset(config, route),
            *([dead_letters_asset(config, route)] if route.errors == "log" else []),
        ]
    )


def topic_definitions(config: Config, topic: Topic) -> dg.Definitions:
    """Everything Dagster knows of one topic. To add a target system, add its module and its lines here."""
    return dg.Definitions(
        assets=[
            topic_asset(config, topic),
            table_asset(config, topic),
            registration_asset(config, topic),
            snowflake_asset(config, topic),
            *([dead_letters_asset(config, topic)] if topic.errors == "log" else []),
            ledger_asset(config, topic),
            maintenance_asset(config, topic),
        ],
        asset_checks=[
            freshness_check(config, topic),
            ledger_check(config, topic),
            registration_check(config, topic),
            snowflake_check(config, topic),
        ],
    )
