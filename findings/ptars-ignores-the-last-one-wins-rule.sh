#!/usr/bin/env bash
# ptars returns what Protobuf's rules for repeated occurrences on the wire replace: oneofs, map keys, wrapped values.
#
# Versions: ptars 0.0.25, protobuf 7.36.2, pyarrow 26.0.0.
# Input:    a oneof whose members are both on the wire; a map with one key twice; and an Int32Value in two parts, of
#           which the second is empty. Such bytes come from concatenation, which is how messages are merged.
# Seen:     ptars returns both members of the oneof, both entries of the key, and 0 for the value. Google's
#           library returns the last member, the last entry, and the value of the first part.
# Expected: as Google's library: Protobuf's encoding guide ("Last One Wins") and language guide ("Oneof Features",
#           "Maps") require it of parsers.
# Matters:  a table with a column for each member then shows a payment as both "card" and "invoice", and a map column
#           has a key twice, which SQL engines refuse.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  ptars==0.0.25 protobuf==7.36.2 pyarrow==26.0.0
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from ptars import HandlerPool, PtarsConfig

FILE = """
name: "payment.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/wrappers.proto"
message_type { name: "Payment"
  oneof_decl { name: "method" }
  field { name: "card" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "invoice" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "notes" number: 3 type: TYPE_MESSAGE type_name: ".shop.Payment.NotesEntry" label: LABEL_REPEATED }
  field { name: "tip" number: 4 type: TYPE_MESSAGE type_name: ".google.protobuf.Int32Value" label: LABEL_OPTIONAL }
  nested_type { name: "NotesEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL } } }
"""
pool = descriptor_pool.DescriptorPool()
wrappers_file = descriptor_pb2.FileDescriptorProto()
wrappers_pb2.DESCRIPTOR.CopyToProto(wrappers_file)
pool.Add(wrappers_file)
pool.Add(text_format.Parse(FILE, descriptor_pb2.FileDescriptorProto()))
descriptor = pool.FindMessageTypeByName("shop.Payment")
Payment = message_factory.GetMessageClass(descriptor)
handler = HandlerPool([descriptor.file], PtarsConfig()).get_for_message(descriptor)
first, second = Payment(card="4000"), Payment(invoice="17")
for part, note in ((first, "draft"), (second, "final")):
    part.notes["state"] = note
    part.tip.SetInParent()
first.tip.value = 5
body = first.SerializeToString() + second.SerializeToString()
merged = Payment.FromString(body)
by_google = (merged.card, merged.invoice, dict(merged.notes), merged.tip.value)
row = handler.array_to_record_batch(pa.array([body], pa.binary())).to_pylist()[0]
by_ptars = (row["card"], row["invoice"], row["notes"], row["tip"])
print(f"Google's library: card, invoice, notes, tip = {by_google}")
print(f"ptars:            card, invoice, notes, tip = {by_ptars}")
if by_google != ("", "17", {"state": "final"}, 5) or by_ptars != (
    "4000", "17", [("state", "draft"), ("state", "final")], 0
):
    sys.exit("The behaviour changed.")
PYTHON
