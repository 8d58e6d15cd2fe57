"""A declared topic as its chain of assets: kafka → iceberg → glue → snowflake, and beside Glue a REST catalog."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

from assets.dead_letters import dead_letters_asset
from assets.engines import engines_check
from assets.freshness import freshness_check
from assets.glue import registration_asset, registration_check
from assets.hops import hops_of
from assets.iceberg import table_asset
from assets.kafka import topic_asset
from assets.ledger import ledger_asset, ledger_check
from assets.maintenance import maintenance_asset
from assets.rest import SYSTEM as REST_CATALOG
from assets.rest import rest_asset, rest_check
from assets.snowflake import snowflake_asset, snowflake_check
from assets.standing import Standing, standing_checks
from assets.streaming_check import streaming_check
from assets.tableflow import tableflow_asset
from lakehouse.config import Config
from lakehouse.streamed import HOPS
from lakehouse.topic import Route, Topic
from resources.build import is_configured


def route_definitions(config: Config, route: Route) -> dg.Definitions:
    """The chain of a route: the same assets as a topic's, with a partition a topic."""
    return dg.Definitions(assets=_chain(config, route), asset_checks=_checks(config, route, {}))


def _chain(config: Config, entry: Topic) -> list[dg.AssetsDefinition]:
    if entry.engine == "tableflow":
        return [topic_asset(config, entry), tableflow_asset(config, entry)]
    return [
        topic_asset(config, entry),
        table_asset(config, entry),
        registration_asset(config, entry),
        snowflake_asset(config, entry),
        *([rest_asset(config, entry)] if is_configured(config, REST_CATALOG) else []),
        *([dead_letters_asset(config, entry)] if entry.keeps_dead_letters else []),
        ledger_asset(config, entry),
        maintenance_asset(config, entry),
    ]


def topic_definitions(config: Config, topic: Topic) -> dg.Definitions:
    """Everything Dagster knows of one topic. To add a target system, add its module and its lines here."""
    further = {
        "iceberg": [ledger_check(config, topic)],
        "glue": [registration_check(config, topic)],
        "snowflake": [snowflake_check(config, topic), engines_check(config, topic)],
        "rest": [rest_check(config, topic)],
    }
    return dg.Definitions(assets=_chain(config, topic), asset_checks=_checks(config, topic, further))


def _checks(config: Config, entry: Topic, further: Mapping[str, list[Standing]]) -> list[dg.AssetChecksDefinition]:
    """The checks of each hop's asset: whether it is fresh, and those of its own."""
    streamed = {hop: [streaming_check(entry, hop)] for hop in HOPS if entry.continuous}
    return [
        standing_checks(
            entry, hop, [freshness_check(config, entry, hop), *streamed.get(hop, ()), *further.get(hop, ())]
        )
        for hop in hops_of(config, entry)
    ]
