#!/usr/bin/env bash
# ptars moves Protobuf timestamps after the year 2262 to 2262-04-11, and those before 1677 to the smallest integer.
#
# Versions: ptars 0.0.25, protobuf 7.36.2, pyarrow 26.0.0.
# Input:    google.protobuf.Timestamp of 9999-12-31T23:59:59Z and of 0001-01-01T00:00:00Z, both within the documented
#           range of the type, and of 2024-01-01 as a control.
# Seen:     no error; the first becomes 9223372036854775807 nanoseconds, which is 2262-04-11, the second the smallest
#           64-bit integer, which pandas shows as "not a time". Google's library reads both.
# Expected: the time in a unit that holds it, or an error. timestamp.proto defines the range as the years 1 to 9999.
# Cause:    times become Arrow's timestamp[ns], saturated at the ends of 64 bits.
# Matters:  9999-12-31 is the usual "valid until further notice". All such rows get one wrong time without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  ptars==0.0.25 protobuf==7.36.2 pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, timestamp_pb2
from ptars import HandlerPool, PtarsConfig

FILE = """
name: "price.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
message_type { name: "Price" field {
  name: "until" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL } }
"""
pool = descriptor_pool.DescriptorPool()
timestamp_file = descriptor_pb2.FileDescriptorProto()
timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp_file)
pool.Add(timestamp_file)
pool.Add(text_format.Parse(FILE, descriptor_pb2.FileDescriptorProto()))
descriptor = pool.FindMessageTypeByName("shop.Price")
Price = message_factory.GetMessageClass(descriptor)
handler = HandlerPool([descriptor.file], PtarsConfig()).get_for_message(descriptor)
seen = []
for text in ("2024-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"):
    written = Price()
    written.until.FromJsonString(text)
    body = written.SerializeToString()
    column = handler.array_to_record_batch(pa.array([body], pa.binary()))["until"]
    seen.append(column.cast(pa.int64())[0].as_py())
    print(f"{text}: Google's library {Price.FromString(body).until.ToJsonString()}, ptars {column.type} {seen[-1]}")
if seen != [1704067200 * 10**9, 2**63 - 1, -(2**63)]:
    sys.exit("The behaviour changed.")
PYTHON
