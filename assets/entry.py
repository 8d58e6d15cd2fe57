"""An entry of lakehouse.yaml in Dagster: a topic, or a route, whose assets have a partition a topic."""

from __future__ import annotations

import importlib.util
import warnings
from contextlib import suppress
from pathlib import Path

import dagster as dg

from lakehouse.config.loader import Config
from lakehouse.config.sources.derived import Derived
from lakehouse.config.topic import Route, Topic
from lakehouse.core import naming
from lakehouse.core.errors import ConfigError


def partitions(entry: Topic) -> dg.DynamicPartitionsDefinition | None:
    """The partitions of an entry's assets: a route's topics, as the sensor found them."""
    return dg.DynamicPartitionsDefinition(name=f"topics_{entry.name}") if isinstance(entry, Route) else None


def group(entry: Topic) -> str:
    """The group of an entry's assets, and what its pools are named after: its table, or the route."""
    return naming.table_name(entry.name) if isinstance(entry, Route) else entry.table


def code_links(config: Config, entry: Topic) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Where the entry is declared and, of a derived topic, where its transform is written, as links in the UI."""
    places = [(config.file, entry.line or 1, config.file.name)]
    if isinstance(entry.source, Derived):
        module, _, function = entry.source.transform.partition(":")
        spec = importlib.util.find_spec(module)
        if spec and spec.origin:
            text = Path(spec.origin).read_text().partition(f"def {function}(")[0]
            places.append((Path(spec.origin), text.count("\n") + 1, entry.source.transform))
    with warnings.catch_warnings():
        # Links are beta in Dagster 1.13; nothing depends on them.
        warnings.simplefilter("ignore", dg.BetaWarning)
        links = [dg.LocalFileCodeReference(file_path=str(f), line_number=line, label=name) for f, line, name in places]
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=links)}


def topics_of(entry: Topic, instance: dg.DagsterInstance) -> list[Topic]:
    """The topics of an entry: itself, or those that a route has so far."""
    if not isinstance(entry, Route):
        return [entry]
    found: list[Topic | None] = []
    for name in instance.get_dynamic_partitions(f"topics_{entry.name}"):
        # One that the route's template makes no table of any more keeps no other from being looked at.
        with suppress(ConfigError):
            found.append(entry.routed(name))
    return [topic for topic in found if topic]


def topic_of(entry: Topic, context: dg.AssetExecutionContext) -> Topic:
    """The topic that a run is about.

    Raises: ConfigError when the route's pattern does not match the partition any more.
    """
    if not isinstance(entry, Route):
        return entry
    topic = entry.routed(context.partition_key)
    if topic is None:
        raise ConfigError(
            f"Topic '{context.partition_key}' is none of route '{entry.name}' any more. Delete the partition"
        )
    return topic
