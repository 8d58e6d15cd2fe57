"""The chain of assets of a declared topic: kafka → iceberg → one asset for each reader."""

from collections.abc import Mapping

import dagster as dg

from assets.factories import CheckDefinition, asset_checks
from assets.freshness import freshness_check
from assets.streaming.check import streaming_check
from assets.topics import confluent_state
from assets.topics.iceberg_asset import table_asset, tableflow_asset
from assets.topics.kafka_asset import topic_asset
from assets.topics.reader_assets import asset_of, engines_check, reader_asset, reader_check
from assets.topics.upkeep_assets import dead_letters_asset, ledger_asset, ledger_check, maintenance_asset
from lakehouse.config.model import Config, Route, Topic
from lakehouse.pipeline.table_location import is_stored_by_confluent
from lakehouse.readers import configured
from lakehouse.readers.reader_lag import stages_of


def entry_definitions(config: Config, entry: Topic) -> dg.Definitions:
    """Return the assets and checks of an entry of lakehouse.yaml."""
    return route_definitions(config, entry) if isinstance(entry, Route) else topic_definitions(config, entry)


def route_definitions(config: Config, route: Route) -> dg.Definitions:
    """Return the chain of a route: the assets of a topic, with one partition for each topic."""
    return dg.Definitions(assets=_chain(config, route), asset_checks=_checks(config, route, {}))


def _chain(config: Config, entry: Topic) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    if not entry.is_ingested:
        known = () if is_stored_by_confluent(config, entry) else configured(config)
        readers = (reader_asset(config, entry, reader) for reader in known)
        return [topic_asset(config, entry), tableflow_asset(config, entry), *readers]
    return [
        topic_asset(config, entry),
        table_asset(config, entry),
        *(reader_asset(config, entry, reader) for reader in configured(config)),
        *([dead_letters_asset(config, entry)] if entry.keeps_dead_letters else []),
        ledger_asset(config, entry),
        maintenance_asset(config, entry),
    ]


def topic_definitions(config: Config, topic: Topic) -> dg.Definitions:
    """Return the assets and checks of one topic."""
    further = {"iceberg": [ledger_check(config, topic)]}
    further |= {reader.name: [reader_check(config, topic, reader)] for reader in configured(config)}
    if place := asset_of(config):
        further[place].append(engines_check(config, topic, place))
    return dg.Definitions(assets=_chain(config, topic), asset_checks=_checks(config, topic, further))


def _checks(
    config: Config, entry: Topic, further: Mapping[str, list[CheckDefinition]]
) -> list[dg.AssetChecksDefinition]:
    """Return the checks of the asset of each stage: freshness, its own checks, and those of Confluent Cloud."""
    stages = stages_of(config, entry)
    streamed = [stage for stage in stages if stage != "kafka" and entry.continuous]
    checks = {
        stage: [
            freshness_check(config, entry, stage),
            *([streaming_check(entry, stage)] if stage in streamed else []),
            *further.get(stage, ()),
        ]
        for stage in stages
    }
    for system, check in confluent_state.checks(config, entry).items():
        checks.setdefault(system, []).append(check)
    return [asset_checks(entry, system, of_system) for system, of_system in checks.items()]
