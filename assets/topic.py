"""A declared topic as its chain of assets: kafka → iceberg → glue → snowflake, and beside Glue a REST catalog."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

from assets.dead_letters import dead_letters_asset
from assets.engines import asset_of, engines_check
from assets.freshness import freshness_check
from assets.iceberg import table_asset
from assets.kafka import topic_asset
from assets.ledger import ledger_asset, ledger_check
from assets.maintenance import maintenance_asset
from assets.readers import reader_asset, reader_check
from assets.standing import Standing, standing_checks
from assets.streaming.check import streaming_check
from assets.tableflow import tableflow_asset
from lakehouse.config.loader import Config
from lakehouse.config.topic import Route, Topic
from lakehouse.readers import configured
from lakehouse.readers.hops import hops_of


def route_definitions(config: Config, route: Route) -> dg.Definitions:
    """The chain of a route: the same assets as a topic's, with a partition a topic."""
    return dg.Definitions(assets=_chain(config, route), asset_checks=_checks(config, route, {}))


def _chain(config: Config, entry: Topic) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    if entry.engine == "tableflow":
        return [topic_asset(config, entry), tableflow_asset(config, entry)]
    return [
        topic_asset(config, entry),
        table_asset(config, entry),
        *(reader_asset(config, entry, reader) for reader in configured(config)),
        *([dead_letters_asset(config, entry)] if entry.keeps_dead_letters else []),
        ledger_asset(config, entry),
        maintenance_asset(config, entry),
    ]


def topic_definitions(config: Config, topic: Topic) -> dg.Definitions:
    """Return everything that Dagster knows of one topic."""
    further = {"iceberg": [ledger_check(config, topic)]}
    further |= {reader.name: [reader_check(config, topic, reader)] for reader in configured(config)}
    further[asset_of(config)].append(engines_check(config, topic))
    return dg.Definitions(assets=_chain(config, topic), asset_checks=_checks(config, topic, further))


def _checks(config: Config, entry: Topic, further: Mapping[str, list[Standing]]) -> list[dg.AssetChecksDefinition]:
    """The checks of each hop's asset: whether it is fresh, and those of its own."""
    streamed = [hop for hop in hops_of(config, entry) if hop != "kafka" and entry.continuous]
    checks = {
        hop: [
            freshness_check(config, entry, hop),
            *([streaming_check(entry, hop)] if hop in streamed else []),
            *further.get(hop, ()),
        ]
        for hop in hops_of(config, entry)
    }
    return [standing_checks(entry, hop, found) for hop, found in checks.items()]
