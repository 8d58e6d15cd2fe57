"""Message indexes of Protobuf, which clients number in two ways: with and without the entries of maps."""

import struct

import pytest

from lakehouse.core.errors import SchemaError
from lakehouse.formats.protobuf.protobuf_format import message
from lakehouse.formats.protobuf.protobuf_messages import other_indexes, own_indexes
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas.decoding import side_schema
from spark.engine import codec_of

FILE = """syntax = "proto3"; message First { int32 x = 1; } message Outer { map<string, int32> counts = 1;
message Inner { int32 x = 1; message Deep { int32 x = 1; } } } message Last { int32 x = 1; }"""
TWO = """syntax = "proto3"; message Outer { map<string, int32> counts = 1; message A { int32 x = 1; }
message B { int32 x = 1; } }"""


def schema(text):
    return RegisteredSchema(1, text, "PROTOBUF")


@pytest.mark.parametrize(
    ("record", "indexes"),
    [
        ("First", {"00"}),
        ("Outer", {"0202"}),
        ("Outer.Inner", {"040202", "040200"}),
        ("Outer.Inner.Deep", {"06020200", "06020000"}),
        ("Last", {"0204"}),
    ],
)
def test_message_has_indexes_of_both_ways_to_number_it(record, indexes):
    selected = message(schema(FILE), record)
    assert {index.hex() for index in own_indexes(selected)} == indexes
    everything = {"00", "0202", "040202", "040200", "06020200", "06020000", "0204"}
    assert {index.hex() for index in other_indexes(selected)} == everything - indexes


@pytest.mark.parametrize("index", ["040202", "040200"])
def test_explain_message_numbered_in_either_way_is_good(index):
    codec = codec_of(side_schema("protobuf", [schema(FILE)], "Outer.Inner").side)
    head = struct.pack(">bI", 0, 1)
    assert codec.explain(head + bytes.fromhex(index) + b"\x08\x01") is None
    assert "does not select message 'Outer.Inner'" in codec.explain(head + b"\x02\x04\x08\x01")


def test_message_with_index_of_another_message_is_refused():
    """A client that counts the map writes B as the others write no message, and A as the others write B."""
    with pytest.raises(SchemaError, match="'Outer.A' in two ways, .* Declare the maps below the nested messages"):
        side_schema("protobuf", [schema(TWO)], "Outer.A")
    below = TWO.replace("map<string, int32> counts = 1;", "").replace("} }", "} map<string, int32> counts = 1; }")
    assert codec_of(side_schema("protobuf", [schema(below)], "Outer.A").side).columns == ["x"]
