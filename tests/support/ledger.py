"""Tables whose ledger is compared with their rows."""

import json

from lakehouse.core.offsets.batch import Counts
from lakehouse.core.table_protocol import COUNTS


def ingest(stream):
    """Ingest, and set the table property of counts, as publications do."""
    published = stream.ingest()
    table = stream.table()
    counts = json.loads(table.properties.get(COUNTS, "{}"))
    for batch in published:
        batch_counts = {name: getattr(batch.counts, name, 0) for name in Counts.__dataclass_fields__}
        counts.setdefault(str(batch.snapshot_id), batch_counts)
    with table.transaction() as transaction:
        transaction.set_properties({COUNTS: json.dumps(counts)})
    return published


def spark(stream):
    r = stream.resources
    return r.spark.session(r.catalog.spark_settings())


def sql(stream, statement, name=None):
    """Run SQL on the stream's table, for which `{}` is a placeholder."""
    table = f"lake.{stream.namespace}.`{name or stream.topic.table}`"
    return spark(stream).sql(statement.format(table)).collect()
