#!/usr/bin/env bash
# The two parsers of protobuf for Python differ on a map entry with an unknown field: the default one has no such entry.
#
# Versions: protobuf 7.36.2.
# Input:    a map<string, int64> with one entry that has key, value, and a field with number 3.
# Seen:     the parser in C (upb), which is the default, returns an empty map, and writes the entry again when it
#           serializes the message. The parser in Python returns the entry with its key and value.
# Expected: the entry: a map is encoded as a repeated message with fields 1 and 2 (Protocol Buffers, language guide,
#           "Maps", Backwards Compatibility), and unknown fields of a message do not make it absent.
# Matters:  a count or a price in a map disappears without an error, depending on how the package was installed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  protobuf==7.36.2
cat > "$folder/read.py" <<'PYTHON'
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.internal import api_implementation

FILE = """
name: "stock.proto" syntax: "proto3"
message_type { name: "Stock"
  field { name: "counts" number: 1 type: TYPE_MESSAGE type_name: ".Stock.CountsEntry" label: LABEL_REPEATED }
  nested_type { name: "CountsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL } } }
"""
pool = descriptor_pool.DescriptorPool()
pool.Add(text_format.Parse(FILE, descriptor_pb2.FileDescriptorProto()))
Stock = message_factory.GetMessageClass(pool.FindMessageTypeByName("Stock"))
entry = b"\x0a\x05apple" + b"\x10\x07" + b"\x18\x01"
stock = Stock.FromString(b"\x0a" + bytes([len(entry)]) + entry)
print(api_implementation.Type(), dict(stock.counts))
PYTHON
read() { PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=$1 "$folder/venv/bin/python" -B -W ignore "$folder/read.py"; }
by_c=$(read upb)
by_python=$(read python)
printf '%s\n' "$by_c" "$by_python"
if [ "$by_c" != "upb {}" ] || [ "$by_python" != "python {'apple': 7}" ]; then
  echo "The behaviour changed."
  exit 1
fi
