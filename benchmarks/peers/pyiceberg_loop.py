"""A plain loop: confluent-kafka reads, fastavro decodes, pyiceberg appends, with the offsets in the snapshot."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable

from ingest import FIELDS

from peers.contender import COMMIT_SECONDS, NAMESPACE, Stack, Work

OFFSETS = "loop.offsets"
MAX_RECORDS = 500_000
"""Maximum records of one commit: those of about two seconds, or a few hundred megabytes of Python objects."""


def work(stack: Stack) -> Work:
    """Import the libraries and return the loop."""
    import fastavro
    import pyarrow as pa
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from pyiceberg.catalog import load_catalog

    registry = SchemaRegistryClient({"url": stack.registry})
    catalog = load_catalog(
        "lake", type="sql", uri=f"sqlite:///{stack.catalog}", **{"s3.endpoint": stack.s3, "s3.region": stack.region}
    )
    types = {"string": pa.string(), "int": pa.int32()}
    arrow = pa.schema(
        [(name, types[type_]) for name, type_ in FIELDS.items()]
        + [pa.field("kafka_partition", pa.int32()), pa.field("kafka_offset", pa.int64())]
    )

    def ingest(topic: str, name: str, ended: Callable[[], bool]) -> None:
        table = catalog.load_table((NAMESPACE, name))
        snapshot = table.current_snapshot()
        stored = json.loads(snapshot.summary.additional_properties[OFFSETS]) if snapshot else {}
        consumer = Consumer({"bootstrap.servers": stack.kafka, "group.id": "loop", "enable.auto.commit": False})
        partitions = consumer.list_topics(topic).topics[topic].partitions
        offsets = {partition: stored.get(str(partition), 0) for partition in partitions}
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in offsets.items()])
        schemas: dict[int, object] = {}
        while not ended():
            rows, deadline = [], time.monotonic() + COMMIT_SECONDS
            while len(rows) < MAX_RECORDS and time.monotonic() < deadline and not ended():
                messages = consumer.consume(10_000, timeout=0.2)
                if not messages and rows:
                    break
                for message in messages:
                    if message.error():
                        raise RuntimeError(message.error().str())
                    value = message.value()
                    id_ = int.from_bytes(value[1:5], "big")
                    if id_ not in schemas:
                        schemas[id_] = fastavro.parse_schema(json.loads(registry.get_schema(id_).schema_str))
                    row = fastavro.schemaless_reader(io.BytesIO(value[5:]), schemas[id_], None)
                    row["kafka_partition"], row["kafka_offset"] = message.partition(), message.offset()
                    rows.append(row)
                    offsets[message.partition()] = message.offset() + 1
            if rows:
                table.append(
                    pa.Table.from_pylist(rows, schema=arrow), snapshot_properties={OFFSETS: json.dumps(offsets)}
                )
        consumer.close()

    return ingest
