"""Protobuf schemas of the tests, and their classes of the official runtime."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

SHARED = """
syntax = "proto3";
package shop.shared;
message Money { string currency = 1; int64 units = 2; }
"""

EVERYTHING = """
syntax = "proto3";
package shop;
import "shared/money.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";
import "google/type/date.proto";
enum Side { BUY = 0; SELL = 1; }
message Inner { int32 y = 1; repeated string z = 2; optional string w = 3; message Deep { bool v = 1; } Deep deep = 4; }
message Everything {
  int32 i32 = 1; int64 i64 = 2; uint32 u32 = 3; uint64 u64 = 4; sint32 s32 = 5; sint64 s64 = 6;
  fixed32 f32 = 7; fixed64 f64 = 8; sfixed32 sf32 = 9; sfixed64 sf64 = 10;
  float single = 11; double double = 12; bool flag = 13; string text = 14; bytes raw = 15; Side side = 16;
  Inner inner = 17; repeated int64 numbers = 18; repeated Inner inners = 19; repeated Side sides = 20;
  map<string, int64> counts = 21; map<uint64, Inner> by_number = 22; map<bool, Side> by_flag = 23;
  oneof choice { string name = 24; int32 number = 25; Inner other = 26; }
  optional int32 maybe = 27;
  google.protobuf.Timestamp at = 28; repeated google.protobuf.Timestamp ats = 29;
  google.protobuf.Duration took = 30; google.protobuf.StringValue text_value = 31;
  google.protobuf.UInt64Value u64_value = 32; google.protobuf.Struct json = 33; google.protobuf.Any any = 34;
  google.type.Date day = 35; shop.shared.Money money = 36;
}
"""


@cache
def message_class(text: str, name: str) -> type[Any]:
    """Return the class of a message of a schema, which may import SHARED."""
    with TemporaryDirectory() as folder:
        Path(folder, "shared").mkdir()
        Path(folder, "shared/money.proto").write_text(SHARED)
        Path(folder, "it.proto").write_text(text)
        import google.type

        includes = [folder, os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")]
        includes.append(str(Path(list(google.type.__path__)[0]).parent.parent))
        out = f"--descriptor_set_out={folder}/out"
        assert protoc.main(["", *(f"-I{i}" for i in includes), "--include_imports", out, "it.proto"]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(folder, "out").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
