"""Compiled decoders of Protobuf messages (ptars), and the schemas that they are created with.

ptars compares the names of fields without case and underscores (prost-reflect, camel-case names), so that `a_b` and
`ab` conflict. Therefore each field has a name made of its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from lakehouse.formats.protobuf import protobuf_format

if TYPE_CHECKING:
    from ptars._lib import MessageHandler

PLAIN = "lakehouse_plain"
"""Package for copies of those well-known types that ptars would convert lossily."""

NATIVE = ("google/protobuf/struct.proto", "google/protobuf/descriptor.proto")
"""Files of types that have no columns. Their fields keep their names."""

LOSSY = [f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers")]
"""Files of types that ptars would convert lossily, as it would those of `google/type/`."""


def name(number: int) -> str:
    """Return the name of the column of a field in the result of `structs`."""
    return f"f{number}"


def structs(bodies: pa.Array, descriptors: bytes, message: str) -> pa.StructArray:
    """Return messages as ptars reads them.

    Raises:
        ValueError: A message does not decode (ArrowInvalid is a subclass).
    """
    try:
        return _handler(descriptors, message).array_to_record_batch(bodies).to_struct_array()
    except Exception:
        raise
    except BaseException as error:
        # ptars panics on a map entry without a value. PanicException is not an Exception and cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError("ptars cannot read a message") from error


@lru_cache(maxsize=128)
def _handler(descriptors: bytes, message: str) -> MessageHandler:
    """Return the compiled decoder of a message; cached per worker process."""
    from ptars import HandlerPool, PtarsConfig

    files = FileDescriptorSet.FromString(descriptors)
    pool, moved = DescriptorPool(), set[str]()
    for file in files.file:
        _make_plain(file, moved)
        pool.Add(file)
    descriptor = pool.FindMessageTypeByName(message)
    return HandlerPool([descriptor.file], PtarsConfig(list_value_name="element")).get_for_message(descriptor)


def _make_plain(file: Any, moved: set[str]) -> None:
    """Rename the fields in a file descriptor, and replace types that ptars would convert lossily.

    Timestamps and similar types become ordinary messages: ptars counts nanoseconds in 64 bits, which end in the year
    2262, and reads only the last part of a wrapper in two parts. JSON values, which are recursive, become bytes.

    Args:
        file: The file, after those that it imports.
        moved: The types that are in another package now, as references name them. Those of the file are added.
    """
    if file.name in LOSSY or file.name.startswith("google/type/"):
        moved.update(_types(f".{file.package}", file))
        file.package = PLAIN + "." + file.package

    def visit(messages: Any) -> None:
        for message in messages:
            visit(message.nested_type)
            entry = message.options.map_entry
            del message.reserved_name[:]
            for field in message.field:
                if not entry and file.name not in NATIVE:
                    field.name = name(field.number)
                    field.ClearField("json_name")
                if (
                    field.type_name.removeprefix(".") in protobuf_format.JSON
                    and file.name != "google/protobuf/struct.proto"
                ):
                    field.type = field.TYPE_BYTES
                    field.ClearField("type_name")
                    if field.label == field.LABEL_OPTIONAL and not field.HasField("oneof_index") and not entry:
                        # Optional bytes distinguish an empty value from an absent one.
                        field.oneof_index, field.proto3_optional = len(message.oneof_decl), True
                        message.oneof_decl.add(name=f"_{field.name}")
                elif field.type_name in moved:
                    field.type_name = f".{PLAIN}{field.type_name}"

    visit(file.message_type)


def _types(scope: str, container: Any) -> Iterator[str]:
    """Yield the full names of the types of a file or message, nested ones included."""
    nested = container.message_type if isinstance(container, FileDescriptorProto) else container.nested_type
    for message in nested:
        yield f"{scope}.{message.name}"
        yield from _types(f"{scope}.{message.name}", message)
    yield from (f"{scope}.{enum.name}" for enum in container.enum_type)
