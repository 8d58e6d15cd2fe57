#!/usr/bin/env bash
# confluent-kafka's JSONSerializer writes NaN as null or as NaN, depending on an unrelated package in the environment.
#
# Versions: confluent-kafka 2.16.1, which imports orjson where it is installed; orjson 3.13.0; duckdb 2.0.0.
# Input:    {"price": nan} for the schema {"type": "number"}, in an environment without and with orjson.
# Seen:     no error in either, although the serializer validates the record. Without orjson the body is {"price":NaN},
#           which confluent-kafka's deserializer returns as NaN, and which DuckDB's json_valid calls valid. With orjson
#           it is {"price":null}, which the deserializer refuses by the schema: "None is not of type 'number'".
# Expected: an error in both. RFC 8259, section 6, does not permit NaN, and the schema does not permit null.
# Matters:  orjson arrives as a dependency of another package, and the same producer then sends null in place of text
#           that most consumers cannot parse. A reader of the topic must expect both for one value.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
install() {
  python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check "$@"
}
python3 -m venv --without-pip "$folder/venv"
install 'confluent-kafka[json]==2.16.1' duckdb==2.0.0
cat > "$folder/write.py" <<'PYTHON'
import json
import math

import duckdb
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

registry = SchemaRegistryClient.new_client({"url": "mock://registry"})
schema = json.dumps({"title": "Order", "type": "object", "properties": {"price": {"type": "number"}}})
serialize, deserialize = JSONSerializer(schema, registry), JSONDeserializer(schema)
context = SerializationContext("orders", MessageField.VALUE)
for price in (1.5, math.nan):
    message = serialize({"price": price}, context)
    body = message[5:].decode()
    try:
        result = deserialize(message, context)
    except SerializationError as error:
        result = error
    valid = duckdb.connect().execute("SELECT json_valid(?)", [body]).fetchone()[0]
    print(f"{price}: {body}, json_valid {valid}, read back: {result}")
PYTHON
without=$("$folder/venv/bin/python" -B -W ignore "$folder/write.py")
install orjson==3.13.0
with=$("$folder/venv/bin/python" -B -W ignore "$folder/write.py")
printf 'without orjson:\n%s\nwith orjson:\n%s\n' "$without" "$with"
expected_without="1.5: {\"price\":1.5}, json_valid True, read back: {'price': 1.5}
nan: {\"price\":NaN}, json_valid True, read back: {'price': nan}"
expected_with="1.5: {\"price\":1.5}, json_valid True, read back: {'price': 1.5}
nan: {\"price\":null}, json_valid True, read back: None is not of type 'number'"
if [[ $without != "$expected_without" || $with != "$expected_with" ]]; then
  echo "The behaviour changed." >&2
  exit 1
fi
