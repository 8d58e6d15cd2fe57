"""The records because of which the next batch of a topic stops."""

from __future__ import annotations

from lakehouse.config.model import Topic
from lakehouse.core.offsets.batch import head, next_batch
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.batches.positions import read_log
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.schemas.decoding import resolve_schemas
from lakehouse.pipeline.schemas.schema_decision import decide_schema


def next_faults(namespace: str, topic: Topic, clients: Clients, most: int) -> list[tuple[int, int, str]]:
    """Return partition, offset and reason of the first records of the next batch that do not decode.

    Nothing is written.

    Args:
        namespace: The namespace of the table.
        topic: The topic.
        clients: Clients of the systems.
        most: The maximum number of offsets to read, from all partitions together.

    Raises:
        LakehouseError: The topic cannot be read or decoded at all.
    """
    chain = clients.catalog.chain(topic.table_in(namespace))
    ref, table = chain.newest
    batch = head(next_batch(chain.last_batch, read_log(clients.kafka, topic.topic), ref.name), most)
    schemas = decide_schema(topic, resolve_schemas(clients.schema_registry, topic), table).require_readable()
    base = table.metadata.current_snapshot_id if table else None
    return BatchContext(topic, ref, clients, batch, table, base, schemas).first_faults()
