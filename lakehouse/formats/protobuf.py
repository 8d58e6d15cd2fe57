"""Protobuf schemas as columns.

Sources: Protocol Buffers language guide (proto3, proto2) and encoding; Confluent Schema Registry, wire format and
Protobuf serializer. docs/types.md has the rules as a table.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from lakehouse.core.errors import SchemaError
from lakehouse.formats import json_text
from lakehouse.formats.budget import Budget, require_characters, require_fields
from lakehouse.formats.columns import distinct
from lakehouse.formats.format import MessageSchema, RegisteredFormat
from lakehouse.formats.protobuf_compiler import compile_sources, require_plain_names
from lakehouse.formats.protobuf_versions import merged
from lakehouse.formats.schema import RegisteredSchema, Shape

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from pyiceberg.types import IcebergType, StructType

JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
WRAPPERS = "BoolValue BytesValue DoubleValue FloatValue Int32Value Int64Value StringValue UInt32Value UInt64Value"

Kind = Literal[
    "int", "long", "decimal", "float", "double", "boolean", "string", "binary", "enum", "struct", "timestamp", "json",
    "list", "map",
]  # fmt: skip


@dataclass(frozen=True)
class Field:
    """A field of a message, or what a list or map holds.

    `fields` are a struct's, a list's one element, or a map's key and value; `symbols` an enum's numbers and names, and
    it is `closed` if other numbers are no values of it; `former` the names that its number had in earlier versions.
    Fields with the same `oneof` exclude each other; a `required` one is in every message.
    """

    name: str
    number: int
    kind: Kind
    fields: tuple[Field, ...] = ()
    symbols: tuple[tuple[int, str], ...] = ()
    message: str = ""
    former: tuple[str, ...] = ()
    closed: bool = False
    oneof: str = ""
    required: bool = False


class ProtobufFormat(RegisteredFormat):
    """Protobuf messages in the Confluent wire format."""

    name = "protobuf"
    decoder = "spark.protobuf:decoder"
    schema_type = "PROTOBUF"
    suffix = ".proto"

    def reader(self, schema: MessageSchema) -> tuple[Field, ...]:
        """Return the fields over all versions."""
        return reader(schema.read_by, schema.record)

    def columns(self, reader: tuple[Field, ...]) -> Shape:
        """Return a column a field."""
        return columns(reader)

    def parse(self, schema: RegisteredSchema) -> FileDescriptorSet:
        """Compile a schema."""
        return compiled(schema)

    def names(self, schema: RegisteredSchema) -> tuple[str, ...]:
        """Return the full name of the file's first message."""
        try:
            return (message(schema).full_name,)
        except SchemaError:
            return ()

    def is_named(self, schema: RegisteredSchema, record: str) -> bool:
        """Return whether the file has a message of that full name."""
        return has(schema, record)

    def is_same(self, schema: RegisteredSchema, versions: Sequence[RegisteredSchema], record: str) -> bool:
        """Return whether the file has the message that the entry names, or begins with the topic's own."""
        return has(schema, record) if record else super().is_same(schema, versions, record)


def shape(schemas: Sequence[RegisteredSchema], record: str = "") -> Shape:
    """The columns of a message, by the versions of its schema, oldest first.

    The newest version says what there is; fields of older ones follow, since records of old writers may have them. A
    number that had another name is a rename (lakehouse.formats.protobuf_versions).

    Parameters: `record` is the message's full name; without, it is the first of the file.
    Raises: SchemaError for what is no message, is recursive, or does not compile.
    """
    return columns(reader(schemas, record))


def columns(fields: Sequence[Field]) -> Shape:
    """The columns of fields, as `reader` returns them.

    Raises: SchemaError for a message without fields, or two columns of one name.
    """
    former: dict[str, tuple[str, ...]] = {}

    def struct(fields: Sequence[Field], path: str) -> StructType:
        from pyiceberg.types import NestedField, StructType

        made = [
            NestedField(1, f.name, type_(f, f"{path}{f.name}"), required=False, doc=json_text.comment(f))
            for f in fields
        ]
        if not made:
            raise SchemaError(f"Protobuf message at '{path.rstrip('.') or 'the top'}' has no fields, so no columns")
        distinct(made)
        return StructType(*made)

    def type_(field: Field, path: str) -> IcebergType:
        from pyiceberg import types as t

        if field.former:
            former[path] = field.former
        match field.kind:
            case "struct":
                return struct(field.fields, f"{path}.")
            case "list":
                return t.ListType(1, type_(field.fields[0], f"{path}.element"), element_required=False)
            case "map":
                key, value = field.fields
                return t.MapType(1, type_(key, f"{path}.key"), 2, type_(value, f"{path}.value"), value_required=False)
        return {
            "int": t.IntegerType(),
            "long": t.LongType(),
            "decimal": t.DecimalType(20, 0),
            "float": t.FloatType(),
            "double": t.DoubleType(),
            "boolean": t.BooleanType(),
            "binary": t.BinaryType(),
            "timestamp": t.TimestamptzType(),
        }.get(field.kind, t.StringType())

    return Shape(struct(fields, ""), former)


def reader(schemas: Sequence[RegisteredSchema], record: str = "") -> tuple[Field, ...]:
    """The fields of a message over all versions of its schema, as `shape` describes them."""
    newest, fields = message(schemas[-1], record), message_fields(schemas[-1], record)
    for older in reversed(schemas[:-1]):
        if (name := message(older, record).full_name) != newest.full_name:
            raise SchemaError(
                f"The first message of the Protobuf schema is '{newest.full_name}', and was '{name}' in an older "
                f"version: two types of message cannot share columns. Set 'record' to the full name of one of them, or "
                f"register a version in which '{name}' comes first"
            )
        fields = merged(fields, message_fields(older, record))
    require_fields("Protobuf", fields)
    return fields


def message_fields(schema: RegisteredSchema, record: str = "") -> tuple[Field, ...]:
    """The fields of a message in one version of its schema."""
    return _Walk().fields(message(schema, record))


def message(schema: RegisteredSchema, record: str = "") -> Descriptor:
    """The message that a table is made of: `record`, or the file's first.

    Raises: SchemaError when it is not there.
    """
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, files = DescriptorPool(), compiled(schema)
    if any(file.syntax == "editions" for file in files.file):
        raise SchemaError(
            "The Protobuf schema has an 'edition', which is not read. Declare its 'syntax' as proto2 or proto3"
        )
    try:
        for file in files.file:
            pool.Add(file)
    except TypeError as error:
        raise SchemaError(f"The Protobuf schema contradicts itself: {error}. Register its source again") from error
    try:
        if record:
            return pool.FindMessageTypeByName(record)
        root = files.file[-1]
        return pool.FindMessageTypeByName(".".join(filter(None, (root.package, root.message_type[0].name))))
    except (KeyError, IndexError) as error:
        raise SchemaError(f"The Protobuf schema has no message '{record or 'at all'}'. Correct 'record'") from error


def has(schema: RegisteredSchema, record: str) -> bool:
    """Whether a schema defines a message of that full name."""
    try:
        return bool(message(schema, record))
    except SchemaError:
        return False


def message_index(descriptor: Descriptor) -> bytes:
    """What the wire format has between the schema id and the message, for a message of this type.

    Which message of the file it is, as its place among its siblings, from the outermost in: zigzag varints, their
    number first; the first of the file is a single zero (Confluent, Wire format: message indexes).
    """
    path: list[int] = []
    while (parent := descriptor.containing_type) is not None:
        path.insert(0, [m.name for m in parent.nested_types].index(descriptor.name))
        descriptor = parent
    path.insert(0, list(descriptor.file.message_types_by_name).index(descriptor.name))
    return b"\x00" if path == [0] else b"".join(_varint(2 * n) for n in (len(path), *path))


def compiled(schema: RegisteredSchema) -> FileDescriptorSet:
    """The schema and everything it imports as descriptors, itself last.

    Raises: SchemaError with what the compiler says.
    """
    return _compiled(schema.text, schema.references)


@lru_cache(maxsize=256)
def _compiled(text: str, references: tuple[tuple[str, str], ...]) -> FileDescriptorSet:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.message import DecodeError

    require_characters("Protobuf", len(text) + sum(len(referenced) for _, referenced in references))
    try:
        # A client may register the descriptor itself in place of its source.
        root = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return compile_sources(text, dict(references))
    dependencies = list(root.dependency)
    require_plain_names(dependencies)
    imports = "".join(f'import "{name}";' for name in dependencies)
    imported = compile_sources(f'syntax = "proto3";{imports}', dict(references))
    return FileDescriptorSet(file=[*imported.file[:-1], root])


def _varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


class _Walk:
    """One walk over the fields of a message and the messages in it."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.budget = Budget("Protobuf")

    def fields(self, descriptor: Descriptor) -> tuple[Field, ...]:
        name = descriptor.full_name
        if name in self.open:
            raise SchemaError(f"Protobuf message '{name}' contains itself; Iceberg has no recursive types")
        self.budget.spend_field(len(descriptor.fields))
        self.open.append(name)
        with self.budget.level():
            found = tuple(
                replace(
                    self.field(field),
                    oneof=field.containing_oneof.name if field.containing_oneof else "",
                    required=field.is_required,
                )
                for field in descriptor.fields
            )
        self.open.pop()
        return found

    def field(self, field: FieldDescriptor) -> Field:
        if not field.is_repeated:
            return self.one(field)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            self.budget.spend_field(2)
            return Field(field.name, field.number, "map", tuple(self.one(part) for part in entry.fields))
        self.budget.spend_field()
        return Field(field.name, field.number, "list", (replace(self.one(field), name="element", number=1),))

    def one(self, field: FieldDescriptor) -> Field:
        """A field as if it were not repeated."""
        kinds: dict[int, Kind] = {
            field.TYPE_INT32: "int",
            field.TYPE_SINT32: "int",
            field.TYPE_SFIXED32: "int",
            field.TYPE_INT64: "long",
            field.TYPE_SINT64: "long",
            field.TYPE_SFIXED64: "long",
            field.TYPE_UINT32: "long",
            field.TYPE_FIXED32: "long",
            field.TYPE_UINT64: "decimal",
            field.TYPE_FIXED64: "decimal",
            field.TYPE_FLOAT: "float",
            field.TYPE_DOUBLE: "double",
            field.TYPE_BOOL: "boolean",
            field.TYPE_STRING: "string",
            field.TYPE_BYTES: "binary",
        }
        if kind := kinds.get(field.type):
            return Field(field.name, field.number, kind)
        if field.type == field.TYPE_ENUM:
            self.budget.spend_entries(len(field.enum_type.values))
            symbols = tuple((value.number, value.name) for value in field.enum_type.values)
            return Field(field.name, field.number, "enum", symbols=symbols, closed=field.enum_type.is_closed)
        if field.type == field.TYPE_GROUP:
            raise SchemaError(f"Protobuf field '{field.full_name}' is a group, which is not read. Make it a message")
        of = field.message_type.full_name
        if of == "google.protobuf.Timestamp":
            return Field(field.name, field.number, "timestamp")
        if of in JSON:
            return Field(field.name, field.number, "json", message=of)
        wrapped = field.message_type.fields_by_name.get("value")
        if wrapped is not None and of in [f"google.protobuf.{name}" for name in WRAPPERS.split()]:
            # Whoever registers a schema may define a wrapper of its own, even one that contains itself.
            with self.budget.level():
                return replace(self.one(wrapped), name=field.name, number=field.number)
        return Field(field.name, field.number, "struct", self.fields(field.message_type), message=of)
