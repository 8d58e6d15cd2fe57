"""The bytes that the broker sends while the reference decoder reads a batch, in relation to the batch."""

import json
import os
import random
import struct
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO

import fastavro
import pytest

from lakehouse.pipeline.redrive import redrive
from lakehouse.pipeline.replay import replay
from resources.spark.servers import Connect
from spark.engine import SparkEngines
from tests.support.servers.kafka_proxy import KafkaProxy
from tests.support.topics import Stream, register, with_checks

ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": "int"},
        {"name": "body", "type": ["null", "string"], "default": None},
    ],
}
EVENT = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
CHECKS = {"cheap": {"type": "range", "column": "price", "max": 900, "severity": "quarantine"}}

MOST = 1.3
"""Maximum bytes that the broker sends for each byte of a batch: keys, values and headers."""


def encoder(schema):
    """Return a function that encodes a value by a schema, which is parsed once."""
    parsed = fastavro.parse_schema(schema)

    def encoded(value):
        body = BytesIO()
        fastavro.schemaless_writer(body, parsed, value)
        return body.getvalue()

    return encoded


class Measured(Stream):
    """A stream whose broker is behind a proxy, and whose records are decoded by the reference decoder.

    One of 20 records each does not decode, fails a check, has a schema of another subject, and has its schema id in a
    header. With checks, change events have no schema ids in headers: they move rows, and leave bodies unchanged.
    """

    def __post_init__(self):
        super().__post_init__()
        self.is_event, self.moves_rows = self.topic.mode == "debezium", bool(self.topic.checks)
        schema, self.bytes = EVENT if self.is_event else ROW, 0
        self.schema_id = self.schema(json.dumps(schema))
        self.foreign_id = register(f"other-{self.namespace}", json.dumps(schema | {"doc": "of another subject"}))
        self.key_id = register(f"{self.name}-key", json.dumps(KEY)) if self.is_event else None
        self.value, self.key = encoder(schema), encoder(KEY)

    @contextmanager
    def proxied(self):
        with KafkaProxy(os.environ["KAFKA_BOOTSTRAP_SERVERS"]).running() as self.proxy:
            self.spark = Connect(remote=self.resources.spark.remote, native="off")
            yield
            self.spark.close()

    @property
    def systems(self):
        kafka = self.resources.kafka.model_copy(update={"bootstrap_servers": self.proxy.address})
        return replace(super().systems, kafka=kafka, engines=SparkEngines(self.spark))

    def produce_batch(self, count, number):
        random_bytes, messages = random.Random(number).randbytes, []
        for n in range(count):
            row = {"id": n % (count - 1000), "price": 901 if n % 20 == 1 else n % 900, "body": random_bytes(80).hex()}
            schema_id, headers = self.foreign_id if n % 20 == 2 else self.schema_id, {}
            frame = struct.pack(">bI", 0, schema_id)
            if n % 20 == 3 and self.is_event and self.moves_rows:
                row["body"] = "__debezium_unavailable_value"
                headers["__debezium.oldkey"] = self.framed_key(n + 20)
            elif n % 20 == 3:
                headers["__value_schema_id"], frame = frame, b""
            value = self.value({"after": row, "op": "c"} if self.is_event else row)
            value = value[:40] if n % 20 == 0 else value
            messages.append({"key": self.framed_key(row["id"]), "value": frame + value, "headers": headers})
        self.bytes = sum(len(m["key"]) + len(m["value"]) + len(b"".join(m["headers"].values())) for m in messages)
        # Brokers send the part of a batch that fills a response, and then all of it again.
        self.produce(messages, **{"batch.size": 50_000})

    def framed_key(self, id_):
        return struct.pack(">bI", 0, self.key_id) + self.key({"id": id_}) if self.is_event else b"%d" % id_

    def ratio(self, act):
        """Return the bytes that the broker sends, for each byte of the newest batch."""
        before = self.proxy.sent
        act()
        return (self.proxy.sent - before) / self.bytes


@pytest.mark.parametrize(
    ("mode", "count", "checks"),
    [
        ("append", 21_000, CHECKS),
        ("append", 15_000, CHECKS),
        ("upsert", 15_000, CHECKS),
        ("dedup", 15_000, CHECKS),
        ("debezium", 15_000, CHECKS),
        ("debezium", 15_000, {}),
    ],
)
def test_broker_sends_a_batch_once(resources, mode, count, checks):
    of_key = {} if mode == "debezium" else {"key_format": "none"}
    stream = Measured(resources, settings={"mode": mode, "key": "id", "checks": checks, **of_key})
    with stream.proxied():
        ratios = []
        for number in range(2):
            stream.produce_batch(count, number)
            ratios.append(stream.ratio(stream.ingest))
        stream.bytes *= 2
        ratios.append(stream.ratio(lambda: replay(stream.namespace, stream.topic, stream.systems, "earliest")))
        stream.topic = with_checks(stream.topic, {})
        ratios.append(stream.ratio(lambda: redrive(stream.namespace, stream.topic, stream.systems)))

    assert max(ratios) <= MOST
    assert stream.dead_letters()
