#!/usr/bin/env bash
# confluent-kafka's JSONSerializer refuses a price of 19.99 for a schema that asks for multiples of 0.01.
#
# Versions: confluent-kafka 2.16.1 with jsonschema 4.26.0; fastjsonschema 2.22.3 and jsonschema-rs 0.61.2 as controls.
# Input:    {"price": p} for {"type": "number", "multipleOf": 0.01}, with p of 19.99, 0.07, 4.35 and 10.5.
# Seen:     19.99, 0.07 and 4.35 are refused ("19.99 is not a multiple of 0.01"), 10.5 is accepted. Both controls accept
#           all four, and all three refuse 19.995.
# Expected: accepted. JSON Schema Validation, section 6.2.1, asks for an integer as the result of the division, and
#           19.99 / 0.01 = 1999 for the decimal numbers in the documents.
# Cause:    jsonschema divides binary floating-point numbers.
# Matters:  the usual way to say "an amount in cents" stops a Python producer, at values that depend on rounding, and a
#           consumer that validates with jsonschema rejects records that a producer in another language validated.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'confluent-kafka[json]==2.16.1' jsonschema==4.26.0 fastjsonschema==2.22.3 jsonschema-rs==0.61.2
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import json
import sys

import fastjsonschema
import jsonschema_rs
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

schema = {"title": "Order", "type": "object", "properties": {"price": {"type": "number", "multipleOf": 0.01}}}
serialize = JSONSerializer(json.dumps(schema), SchemaRegistryClient.new_client({"url": "mock://registry"}))
context = SerializationContext("orders", MessageField.VALUE)
draft7 = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
fast, rust = fastjsonschema.compile(draft7), jsonschema_rs.validator_for(draft7)


def accepts(validate, record, error):
    try:
        validate(record)
    except error:
        return False
    return True


seen = {}
for price in (19.99, 0.07, 4.35, 10.5, 19.995):
    record = {"price": price}
    seen[price] = (
        accepts(lambda value: serialize(value, context), record, SerializationError),
        accepts(fast, record, fastjsonschema.JsonSchemaValueException),
        rust.is_valid(record),
    )
    print(f"{price}: accepted by JSONSerializer {seen[price][0]}, fastjsonschema {seen[price][1]},"
          f" jsonschema-rs {seen[price][2]}")
differ = (False, True, True)
if seen != {19.99: differ, 0.07: differ, 4.35: differ, 10.5: (True, True, True), 19.995: (False, False, False)}:
    sys.exit("The behaviour changed.")
PYTHON
