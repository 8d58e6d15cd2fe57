"""The two positions between which a batch is: the newest one in the table, and the end of the topic's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.core.offsets.batch import Batch, Log, Positions
from lakehouse.core.tables.table_ref import TableRef
from resources.iceberg.catalog import Catalog
from resources.iceberg.snapshots import last_batch
from resources.kafka.kafka import Kafka

if TYPE_CHECKING:
    from pyiceberg.table import Table


def current_position(catalog: Catalog, first: TableRef) -> tuple[TableRef, Table | None, Batch | None]:
    """Return the table that currently receives a topic's records, as loaded, and the newest batch in it.

    A table that continues a rolled-over table begins at the last batch of its predecessor.

    Raises:
        UnclearState: The tables or their tokens are inconsistent.
        Unreachable: The catalog does not answer.
    """
    tables = list(catalog.successive_tables(first))
    batches = [batch for _, table in tables if (batch := last_batch(table))]
    return *tables[-1], batches[-1] if batches else None


def first_offsets(catalog: Catalog, first: TableRef, newest: Batch) -> Positions:
    """Return the offsets at which the table that receives a topic's records begins; none unless the topic rolled over
    to it.

    Args:
        catalog: The catalog.
        first: The topic's first table.
        newest: The newest batch. If its topic was recreated since the roll-over, no table before has its records.

    Raises:
        UnclearState: The tables or their tokens are inconsistent.
        Unreachable: The catalog does not answer.
    """
    *earlier, _ = catalog.successive_tables(first)
    batches = [batch for _, table in earlier if (batch := last_batch(table))]
    last = batches[-1] if batches else None
    is_same_topic = last and (last.cluster_id, last.topic_id) == (newest.cluster_id, newest.topic_id)
    return last.end if last and is_same_topic else {}


def read_log(kafka: Kafka, topic: str, *, committed: bool = True) -> Log:
    """Return the topic's identity, and its offsets immediately after.

    Args:
        kafka: The cluster.
        topic: The name of the topic.
        committed: Whether to exclude records of open transactions; see `Kafka.offsets`.

    Raises:
        LakehouseError: The topic does not exist.
        Unreachable: Kafka does not answer.
    """
    # Read the id first: if the topic is recreated before its offsets are read, publication finds that the id is old.
    id_ = topic_id(kafka, topic)
    offsets = kafka.offsets([topic], committed=committed)[topic]
    return Log(
        cluster_id=kafka.cluster_id(),
        topic=topic,
        topic_id=id_,
        start={partition: bounds.start for partition, bounds in offsets.items()},
        end={partition: bounds.end for partition, bounds in offsets.items()},
    )


def topic_id(kafka: Kafka, topic: str) -> str:
    """Return the id of a topic.

    Raises:
        LakehouseError: The topic does not exist.
        Unreachable: Kafka does not answer.
    """
    if (described := kafka.describe([topic]).get(topic)) is None:
        raise kafka.missing_topic_error(topic)
    return described.topic_id
