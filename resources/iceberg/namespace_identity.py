"""The identity of a catalog's namespace: a UUID among its properties.

Two environments may have namespaces of one name on one Kafka cluster, whose streams must not share a consumer group.
"""

import uuid

from lakehouse.core.polling import SYSTEM_CLOCK
from lakehouse.core.table_protocol import NAMESPACE_IDENTITY
from resources.iceberg.catalog import Catalog

SETTLED_SECONDS = 5.0
"""Time within which another process that found no identity has written one."""


def namespace_identity(catalog: Catalog, namespace: str) -> str:
    """Return the identity of a namespace, which is created with it.

    A namespace that something else created gets one from the first caller, who waits for others that do so at the same
    time: the last one to write decides. Catalogs compare no properties before they replace them, so a caller that takes
    longer than SETTLED_SECONDS to write leaves another one with a different identity until that starts again. Both
    serve all topics, and their commits exclude each other.

    Raises:
        Unreachable: The catalog does not answer.
    """
    with catalog.translate_errors():
        catalog.ensure_namespace(namespace)
        iceberg = catalog.iceberg()
        properties = iceberg.load_namespace_properties(namespace)
        if NAMESPACE_IDENTITY in properties:
            return str(properties[NAMESPACE_IDENTITY])
        try:
            iceberg.update_namespace_properties(namespace, updates={NAMESPACE_IDENTITY: str(uuid.uuid4())})
        except Exception:
            # Another caller may have been first, or the response to this request was lost: an identity is there.
            if NAMESPACE_IDENTITY not in iceberg.load_namespace_properties(namespace):
                raise
        SYSTEM_CLOCK.sleep(SETTLED_SECONDS)
        return str(iceberg.load_namespace_properties(namespace)[NAMESPACE_IDENTITY])
