#!/usr/bin/env bash
# confluent-kafka's AvroSerializer writes an int beyond 32 bits, and readers disagree about what was written.
#
# Versions: confluent-kafka 2.16.1, fastavro 1.13.1; pyruhvro 0.4.0 as a second reader.
# Input:    3000000000 for a field of type int, without a union.
# Seen:     the serializer raises no error and writes the 5 bytes 80f882ad16. confluent-kafka's own deserializer returns
#           3000000000, pyruhvro -1294967296. A field of type ["null", "int"] is refused with an error.
# Expected: an error, as with the union; in the Avro specification ("Primitive Types") int has 32 bits.
# Matters:  the producer's tests pass, since its own reader returns the value, while a consumer in another language
#           stores a different number. Only the length of the varint reveals it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'confluent-kafka[avro]==2.16.1' fastavro==1.13.1 pyruhvro==0.4.0 pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import json
import sys

import pyarrow as pa
import pyruhvro
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

registry = SchemaRegistryClient.new_client({"url": "mock://registry"})


def serializer(type_):
    schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "quantity", "type": type_}]})
    return schema, AvroSerializer(registry, schema)


record = {"quantity": 3_000_000_000}
schema, serialize = serializer("int")
context = SerializationContext("orders", MessageField.VALUE)
message = serialize(record, context)
by_confluent = AvroDeserializer(registry)(message, context)["quantity"]
by_pyruhvro = pa.record_batch(pyruhvro.deserialize_array([message[5:]], schema))["quantity"][0].as_py()
_, serialize_union = serializer(["null", "int"])
try:
    union = serialize_union(record, SerializationContext("orders-union", MessageField.VALUE)).hex()
except Exception as error:
    union = type(error).__name__
print(f"int: written as {message[5:].hex()}, read as {by_confluent} by confluent-kafka, {by_pyruhvro} by pyruhvro")
print(f'["null", "int"]: {union}')
if (message[5:].hex(), by_confluent, by_pyruhvro, union) != ("80f882ad16", 3_000_000_000, -1_294_967_296, "ValueError"):
    sys.exit("The behaviour changed.")
PYTHON
