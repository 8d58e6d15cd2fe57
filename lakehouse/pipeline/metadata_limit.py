"""The limit that some catalogs have for the size of a table's metadata, which describes each snapshot.

AWS Glue's REST endpoint refuses all requests for a table beyond it, so nothing could expire snapshots there afterwards.
"""

from pyiceberg.table import Table

from lakehouse.config.model import Topic
from lakehouse.core.errors import TransientError
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.maintenance import expire_by_number, is_large, metadata_bytes

RESERVE = 0.1
"""Fraction of the limit that is left for commits which expire snapshots."""


def exceeds(size: int, limit: int) -> bool:
    """Return whether the size of a metadata file in bytes is so near a limit that no batch may begin."""
    return size > limit * (1 - RESERVE)


def keep_within_limit(topic: Topic, ref: TableRef, table: Table | None, clients: Clients, limit: int | None) -> bool:
    """Expire snapshots of a table before its metadata reaches the limit of its catalog.

    Args:
        topic: The topic.
        ref: The name of the table.
        table: The table as loaded; None if it does not exist.
        clients: Clients of the systems.
        limit: The limit in bytes; None if the catalog has none.

    Returns:
        Whether snapshots were expired.

    Raises:
        TransientError: The metadata is near the limit, and no snapshot can expire yet.
    """
    size = metadata_bytes(table) if table and limit else 0
    if table is None or limit is None or not is_large(size):
        return False
    if topic.maintenance != "external" and expire_by_number(topic, ref, table, clients.engine.maintenance):
        return True
    if exceeds(size, limit):
        raise TransientError(
            f"The metadata file of {ref} has {size / 1e6:.1f} MB, and {clients.catalog.address} refuses tables with "
            f"more than {limit / 1e6:.0f} MB",
            "No batch was begun",
            f"Set a lower `max_lag_seconds` of '{topic.name}', for which readers need snapshots, or ingest fewer and "
            f"larger batches. Ingestion continues when snapshots have expired (`lakehouse maintain {topic.name}`)",
        )
    return False
