"""Dagster attributes of an entry of lakehouse.yaml: a topic, or a route, whose assets have one partition per topic."""

import importlib.util
import warnings
from contextlib import suppress
from pathlib import Path

import dagster as dg

from lakehouse.config.loader import Config
from lakehouse.config.sources.derived import Derived
from lakehouse.config.topic import Route, Topic
from lakehouse.core.errors import ConfigError
from lakehouse.core.tables import naming


def partitions(entry: Topic) -> dg.DynamicPartitionsDefinition | None:
    """Return the partitions of a route's assets, which the sensor `topic_offsets` adds; None for a topic."""
    return dg.DynamicPartitionsDefinition(name=f"topics_{entry.name}") if isinstance(entry, Route) else None


def group(entry: Topic) -> str:
    """Return the group name of an entry's assets, which also names its pools: the table or the route."""
    return naming.table_name(entry.name) if isinstance(entry, Route) else entry.table


def code_links(config: Config, entry: Topic) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Return links to the declaration of an entry and, for a derived topic, to the source of its transform."""
    places = [(config.file, entry.line or 1, config.file.name)]
    if isinstance(entry.source, Derived):
        module, _, function = entry.source.transform.partition(":")
        spec = importlib.util.find_spec(module)
        if spec and spec.origin:
            text = Path(spec.origin).read_text().partition(f"def {function}(")[0]
            places.append((Path(spec.origin), text.count("\n") + 1, entry.source.transform))
    with warnings.catch_warnings():
        # Code references are beta in Dagster 1.13.
        warnings.simplefilter("ignore", dg.BetaWarning)
        links = [dg.LocalFileCodeReference(file_path=str(f), line_number=line, label=name) for f, line, name in places]
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=links)}


def topics_of(entry: Topic, instance: dg.DagsterInstance) -> list[Topic]:
    """Return the topics of an entry: the topic itself, or the topics that the route has so far."""
    if not isinstance(entry, Route):
        return [entry]
    topics: list[Topic | None] = []
    for name in instance.get_dynamic_partitions(f"topics_{entry.name}"):
        # After a change of the route's template, one invalid table name must not hide the other topics.
        with suppress(ConfigError):
            topics.append(entry.topic_named(name))
    return [topic for topic in topics if topic]


def topic_of(entry: Topic, context: dg.AssetExecutionContext) -> Topic:
    """Return the topic of a run.

    Raises:
        ConfigError: The route's pattern no longer matches the partition.
    """
    if not isinstance(entry, Route):
        return entry
    topic = entry.topic_named(context.partition_key)
    if topic is None:
        raise ConfigError(
            f"The pattern of route '{entry.name}' no longer matches topic '{context.partition_key}'. Nothing was "
            f"changed. Delete the partition"
        )
    return topic
