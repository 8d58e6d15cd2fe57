"""Format `protobuf`: columns of Protobuf schemas.

Sources: Protocol Buffers language guide (proto3, proto2) and encoding; Confluent Schema Registry, wire format and
Protobuf serializer. docs/types.md has the rules as a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from lakehouse.core.errors import SchemaError
from lakehouse.formats.budget import Budget, require_characters, require_fields
from lakehouse.formats.columns import distinct
from lakehouse.formats.format import MessageSchema, RegisteredFormat
from lakehouse.formats.json import json_text
from lakehouse.formats.protobuf.protobuf_compiler import ROOT, compile_sources, descriptor, require_plain_names
from lakehouse.formats.protobuf.protobuf_messages import Kind, MessageField, merged, require_distinct
from lakehouse.formats.schema import RegisteredSchema, Shape

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from pyiceberg.types import IcebergType, StructType

JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
WRAPPERS = "BoolValue BytesValue DoubleValue FloatValue Int32Value Int64Value StringValue UInt32Value UInt64Value"


class ProtobufFormat(RegisteredFormat):
    """Protobuf messages in the Confluent wire format."""

    name = "protobuf"
    decoder = "spark.codecs.protobuf_codec:decoder"
    schema_type = "PROTOBUF"
    suffix = ".proto"

    def reader(self, schema: MessageSchema) -> tuple[MessageField, ...]:
        return reader(schema.read_by, schema.record)

    def columns(self, reader: tuple[MessageField, ...]) -> Shape:
        return columns(reader)

    def parse(self, schema: RegisteredSchema) -> FileDescriptorSet:
        return compiled(schema)

    def names(self, schema: RegisteredSchema) -> tuple[str, ...]:
        try:
            return (message(schema).full_name,)
        except SchemaError:
            return ()

    def is_named(self, schema: RegisteredSchema, record: str) -> bool:
        return has(schema, record)

    def is_same(self, schema: RegisteredSchema, versions: Sequence[RegisteredSchema], record: str) -> bool:
        return has(schema, record) if record else super().is_same(schema, versions, record)


def columns(fields: Sequence[MessageField]) -> Shape:
    """Return the columns of a return value of `reader`."""
    previous_names: dict[str, tuple[str, ...]] = {}

    def struct(fields: Sequence[MessageField], path: str) -> StructType:
        from pyiceberg.types import NestedField, StructType

        columns = [
            NestedField(1, f.name, type_(f, f"{path}{f.name}"), required=False, doc=json_text.comment(f))
            for f in fields
        ]
        distinct(columns)
        return StructType(*columns)

    def type_(field: MessageField, path: str) -> IcebergType:
        from pyiceberg import types as t

        if field.previous_names:
            previous_names[path] = field.previous_names
        match field.kind:
            case "struct" if field.fields:
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
            "struct": t.BooleanType(),
            "binary": t.BinaryType(),
            "timestamp": t.TimestamptzType(),
        }.get(field.kind, t.StringType())

    if not fields:
        raise SchemaError(
            "The Protobuf message has no fields, so it has no columns. Choose another one of the schema by `record` in "
            "lakehouse.yaml, or add a field to it"
        )
    return Shape(struct(fields, ""), previous_names)


def reader(schemas: Sequence[RegisteredSchema], record: str = "") -> tuple[MessageField, ...]:
    """Return the fields of a message over all versions of its schema.

    Fields of the newest version come first; those that only older versions have follow, since records of old writers
    may have them. A number that had another name is a rename (lakehouse.formats.protobuf.protobuf_messages).

    Args:
        schemas: The versions, oldest first.
        record: The message's full name; if empty, the message is the first of the file.
    """
    for schema in schemas if record else ():
        require_distinct(message(schema, record))
    newest, fields = message(schemas[-1], record), message_fields(schemas[-1], record)
    for older in reversed(schemas[:-1]):
        if (name := message(older, record).full_name) != newest.full_name:
            raise SchemaError(
                f"The first message of the Protobuf schema is '{newest.full_name}', but was '{name}' in an older "
                f"version (TYPE_MISMATCH): two types of messages cannot share columns. Set 'record' to the full name "
                f"of one of them, or register a version in which '{name}' comes first"
            )
        fields = merged(fields, message_fields(older, record))
    require_fields("Protobuf", fields)
    return fields


def message_fields(schema: RegisteredSchema, record: str = "") -> tuple[MessageField, ...]:
    """Return the fields of a message in one version of its schema."""
    return _MessageWalk().fields(message(schema, record))


def message(schema: RegisteredSchema, record: str = "") -> Descriptor:
    """Return the descriptor of the message `record`, or if it is empty of the file's first message.

    Raises:
        SchemaError: The file has no such message.
    """
    pool, files = DescriptorPool(), compiled(schema)
    if any(file.syntax == "editions" for file in files.file):
        raise SchemaError(
            "The Protobuf schema has an 'edition', which is not supported. Declare its 'syntax' as proto2 or proto3"
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
        if record:
            raise SchemaError(f"The Protobuf schema has no message '{record}'. Correct 'record'") from error
        raise SchemaError(
            "The Protobuf schema defines no message, so it has no columns. Add a message to it"
        ) from error


def has(schema: RegisteredSchema, record: str) -> bool:
    """Return whether a schema defines a message with the full name."""
    try:
        return bool(message(schema, record))
    except SchemaError:
        return False


def compiled(schema: RegisteredSchema) -> FileDescriptorSet:
    """Return the descriptors of the schema and all its imports, with its own last."""
    return _compiled(schema.text, schema.references)


@lru_cache(maxsize=256)
def _compiled(text: str, references: tuple[tuple[str, str], ...]) -> FileDescriptorSet:
    require_characters("Protobuf", len(text) + sum(len(referenced) for _, referenced in references))
    root = descriptor(text, ROOT)
    if root is None:
        return compile_sources(text, dict(references))
    dependencies = list(root.dependency)
    require_plain_names(dependencies)
    imports = "".join(f'import "{name}";' for name in dependencies)
    imported = compile_sources(f'syntax = "proto3";{imports}', dict(references))
    return FileDescriptorSet(file=[*imported.file[:-1], root])


class _MessageWalk:
    """Fields of a message and its nested messages, collected recursively."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.budget = Budget("Protobuf")

    def fields(self, descriptor: Descriptor) -> tuple[MessageField, ...]:
        name = descriptor.full_name
        if name in self.open:
            raise SchemaError(
                f"Protobuf message '{name}' contains itself, but Iceberg has no recursive types. Remove the "
                f"recursion, or register the field as bytes"
            )
        if extensions := descriptor.file.pool.FindAllExtensions(descriptor):
            raise SchemaError(
                f"Protobuf message '{name}' has the extension '{extensions[0].full_name}', which is not supported. "
                f"Make it a field of the message"
            )
        self.budget.spend_field(len(descriptor.fields))
        self.open.append(name)
        with self.budget.level():
            fields = tuple(
                replace(
                    self.field(field),
                    oneof=field.containing_oneof.name if field.containing_oneof else "",
                    required=field.is_required,
                )
                for field in descriptor.fields
            )
        self.open.pop()
        return fields

    def field(self, field: FieldDescriptor) -> MessageField:
        if not field.is_repeated:
            return self.one(field)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            self.budget.spend_field(2)
            return MessageField(field.name, field.number, "map", tuple(self.one(part) for part in entry.fields))
        self.budget.spend_field()
        return MessageField(field.name, field.number, "list", (replace(self.one(field), name="element", number=1),))

    def one(self, field: FieldDescriptor) -> MessageField:
        """Return a field as if it were not repeated."""
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
            return MessageField(field.name, field.number, kind)
        if field.type == field.TYPE_ENUM:
            self.budget.spend_entries(len(field.enum_type.values))
            symbols = tuple((value.number, value.name) for value in field.enum_type.values)
            return MessageField(field.name, field.number, "enum", symbols=symbols, closed=field.enum_type.is_closed)
        if field.type == field.TYPE_GROUP:
            raise SchemaError(
                f"Protobuf field '{field.full_name}' is a group, which is not supported. Make it a message"
            )
        message = field.message_type.full_name
        if message == "google.protobuf.Timestamp":
            return MessageField(field.name, field.number, "timestamp")
        if message in JSON:
            return MessageField(field.name, field.number, "json", message=message)
        wrapped = field.message_type.fields_by_name.get("value")
        if wrapped is not None and message in [f"google.protobuf.{name}" for name in WRAPPERS.split()]:
            # A registered schema may define such a type itself, even one that contains itself.
            with self.budget.level():
                return replace(self.one(wrapped), name=field.name, number=field.number)
        return MessageField(field.name, field.number, "struct", self.fields(field.message_type), message=message)
