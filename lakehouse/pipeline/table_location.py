"""The tables of topics, whoever writes them."""

from __future__ import annotations

from typing import Any

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.tables.table_ref import TableRef


def table_resources(topic: Topic) -> frozenset[str]:
    """Return the keys of the resources that `table_of` needs."""
    return frozenset({"glue", "kafka"} if topic.engine == "tableflow" else ())


def source_resources(config: Config, topic: Topic) -> frozenset[str]:
    """Return the keys of the resources that `table_of` needs for the table that a topic is derived from."""
    return table_resources(config.topic(topic.source.upstream)) if topic.source.upstream else frozenset()


def table_of(config: Config, topic: Topic, clients: Any) -> TableRef:
    """Return the table of a topic.

    Tableflow names a table after its topic, in a database that is named by the id of the Kafka cluster unless the
    resource `glue` names another.

    Args:
        config: The configuration.
        topic: The topic.
        clients: Has the resources `glue` and `kafka` as attributes if Tableflow creates the table.

    Raises:
        Unreachable: Kafka does not answer.
    """
    ref = topic.table_in(config.namespace)
    if topic.engine != "tableflow":
        return ref
    database = clients.glue.tableflow_database or clients.kafka.cluster_id()
    return TableRef(ref.namespace, ref.name, in_catalog=(database, topic.topic))
