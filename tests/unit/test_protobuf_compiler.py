"""Protobuf schemas are untrusted text: compiling one runs none of it, and costs a bounded amount."""

import base64
import builtins
import json

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from lakehouse.core.errors import SchemaError
from lakehouse.formats import protobuf, protobuf_compiler
from lakehouse.formats.budget import MAX_CHARACTERS
from lakehouse.formats.schema import RegisteredSchema

ORDER = 'syntax = "proto3"; message Order { int64 id = 1; }'
MODULES = [
    "grpc_tools.py",
    "grpc_tools/__init__.py",
    "grpc_tools/protoc.py",
    "runpy.py",
    "site.py",
    "sitecustomize.py",
    "usercustomize.py",
    "json.py",
    "importlib/__init__.py",
    "google/__init__.py",
]


def python_and_protobuf(statement: str) -> str:
    """A text that is a valid Protobuf file, and a Python module that executes a statement."""
    assert '"' not in statement
    return f'syntax = "proto3" // exec("{statement}") or """\n;\nmessage Dep {{ string a = 1; }}\n// """\n'


def compiled(text: str, *references: tuple[str, str]):
    return protobuf.compiled(RegisteredSchema(1, text, "PROTOBUF", references))


def test_payload_is_python_and_protobuf():
    """The other tests prove nothing unless their payload runs as Python and compiles as Protobuf."""
    payload = python_and_protobuf("import builtins; builtins.protobuf_payload_ran = True")
    with pytest.raises(TypeError):  # after the payload, the module divides by None
        exec(compile(payload, "payload", "exec"), {})  # noqa: S102 (of this test)
    assert vars(builtins).pop("protobuf_payload_ran")
    assert compiled('syntax = "proto3"; import "dep.proto"; message M { Dep d = 1; }', ("dep.proto", payload))


@pytest.mark.parametrize("name", MODULES)
def test_reference_named_like_a_module_is_refused_and_not_run(name, tmp_path):
    marker = tmp_path / "marker"
    with pytest.raises(SchemaError, match="reference"):
        compiled(ORDER, (name, python_and_protobuf(f"open('{marker}', 'w')")))
    assert not marker.exists()


@pytest.mark.parametrize("name", [name.removesuffix(".py") + ".proto" for name in MODULES])
def test_reference_is_not_run(name, tmp_path):
    marker = tmp_path / "marker"
    payload = python_and_protobuf(f"open('{marker}', 'w')")
    files = compiled(f'syntax = "proto3"; import "{name}"; message Order {{ Dep dep = 1; }}', (name, payload))
    assert [message.name for file in files.file for message in file.message_type] == ["Dep", "Order"]
    assert not marker.exists()


@pytest.mark.parametrize(
    "names",
    [
        [""],
        ["."],
        [".."],
        ["d/"],
        ["/etc/x.proto"],
        ["../x.proto"],
        ["a/../x.proto"],
        ["a//x.proto"],
        ["./x.proto"],
        ["-I.proto"],
        ["--plugin=x.proto"],
        ["@arguments.proto"],
        ["a b.proto"],
        ["a\0.proto"],
        ["a\n.proto"],
        ["a.proto\n"],
        ["a\\b.proto"],
        ["ä.proto"],
        [".hidden.proto"],
        [f"{'a' * 300}.proto"],
        ["a.proto", "a.proto/b.proto"],
        ["out"],
    ],
)
def test_unusual_reference_names_are_schema_errors(names):
    with pytest.raises(SchemaError, match="reference"):
        compiled(ORDER, *((name, 'syntax = "proto3";') for name in names))


def test_nested_reference_names_compile():
    reference = 'syntax = "proto3"; package acme.common_v1; message Money { int64 cents = 1; }'
    text = (
        'syntax = "proto3"; import "acme/common-v1/money.v2.proto"; message Order { acme.common_v1.Money price = 1; }'
    )
    fields = protobuf.reader([RegisteredSchema(1, text, "PROTOBUF", (("acme/common-v1/money.v2.proto", reference),))])
    assert [(field.name, [part.name for part in field.fields]) for field in fields] == [("price", ["cents"])]


def test_reference_cannot_redefine_well_known_types():
    """`google.protobuf.Timestamp` becomes a timestamp by its name, so its definition must be Google's."""
    name = "google/protobuf/timestamp.proto"
    forged = 'syntax = "proto3"; package google.protobuf; message Timestamp { string seconds = 1; }'
    text = f'syntax = "proto3"; import "{name}"; message Order {{ google.protobuf.Timestamp at = 1; }}'
    published = compiled(text).file[0]
    assert compiled(text, (name, forged)).file[0] == published


@pytest.mark.parametrize(
    ("imported", "type_", "columns"),
    [
        ("confluent/type/decimal.proto", "confluent.type.Decimal", ["value", "precision", "scale"]),
        ("confluent/types/decimal.proto", "confluent.type.Decimal", ["value", "precision", "scale"]),
        ("confluent/type/variant.proto", "confluent.type.Variant", ["metadata", "value"]),
        ("google/type/money.proto", "google.type.Money", ["currency_code", "units", "nanos"]),
        ("google/type/latlng.proto", "google.type.LatLng", ["latitude", "longitude"]),
    ],
)
def test_what_clients_do_not_register_as_references_compiles(imported, type_, columns):
    text = f'syntax = "proto3"; import "{imported}"; message Order {{ {type_} it = 1; }}'
    [field] = protobuf.reader([RegisteredSchema(1, text, "PROTOBUF")])
    assert [part.name for part in field.fields] == columns


def test_options_of_confluent_compile_without_a_reference():
    text = 'import "confluent/meta.proto"; message Order { int64 id = 1 [(confluent.field_meta).doc = "its id"]; }'
    assert [field.name for field in protobuf.reader([RegisteredSchema(1, f'syntax = "proto3"; {text}', "PROTOBUF")])]


def test_editions_are_refused():
    with pytest.raises(SchemaError, match="'edition', which is not read"):
        protobuf.reader([RegisteredSchema(1, 'edition = "2023"; message M { int32 id = 1; }', "PROTOBUF")])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message M { int32 a = 1; int32 a = 2; }", 'line 2, column 32: "a" is already defined in "M"'),
        ('import "confluent/none.proto";', "confluent/none.proto: File not found"),
        ('import "dep.proto";', 'dep.proto:2:1: "int" is not defined'),
    ],
)
def test_message_of_the_compiler_has_no_folder_in_it(text, reason):
    with pytest.raises(SchemaError) as refusal:
        compiled(f'syntax = "proto3";\n{text}', ("dep.proto", 'syntax = "proto3"; message D {\nint a = 1; }'))
    assert reason in str(refusal.value)
    assert "/tmp" not in str(refusal.value)
    assert "lakehouse-protobuf" not in str(refusal.value)


@pytest.mark.parametrize("place", ["text", "reference", "references together"])
def test_size_is_bounded(place):
    big = 'syntax = "proto3";\n' + "// padding\n" * (MAX_CHARACTERS // 11 + 1)
    half = big[: len(big) // 2]
    texts = {
        "text": (big,),
        "reference": (ORDER, ("a.proto", big)),
        "references together": (ORDER, ("a.proto", half), ("b.proto", half)),
    }
    with pytest.raises(SchemaError, match="characters"):
        compiled(*texts[place])


def test_lone_surrogate_is_a_schema_error():
    with pytest.raises(SchemaError, match="UTF-8"):
        compiled(json.loads(r'"syntax = \"proto3\"; // \ud800"') + "\nmessage Order { int64 id = 1; }")


def test_compiler_has_no_environment(tmp_path, monkeypatch):
    """Python would read a module path, and a start-up file, from the worker's environment."""
    (tmp_path / "grpc_tools.py").write_text("raise SystemExit('a module of the environment was imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert compiled('syntax = "proto3"; message FromEnvironment { int64 id = 1; }')


def test_descriptor_with_hostile_dependency_names_is_a_schema_error():
    root = FileDescriptorProto(name="x.proto", syntax="proto3", dependency=['a.proto"; import "b.proto'])
    root.message_type.add(name="Order").field.add(name="id", number=1, type=3, label=1)
    with pytest.raises(SchemaError, match="reference"):
        compiled(base64.b64encode(root.SerializeToString()).decode())


def test_descriptor_that_contradicts_itself_is_a_schema_error():
    root = FileDescriptorProto(name="x.proto", syntax="proto3")
    message = root.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="id", number=1, type=3, label=1)
    with pytest.raises(SchemaError):
        protobuf.reader([RegisteredSchema(1, base64.b64encode(root.SerializeToString()).decode(), "PROTOBUF")])


def test_compiler_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(protobuf_compiler, "MAX_SECONDS", 0.01)
    with pytest.raises(SchemaError, match="seconds"):
        compiled('syntax = "proto3"; message TakesTooLong { int64 id = 1; }')
