"""The Protobuf compiler: untrusted schemas are never executed, and the cost of one is bounded."""

import base64
import builtins
import json

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from lakehouse.core.errors import SchemaError
from lakehouse.formats.budget import MAX_CHARACTERS
from lakehouse.formats.protobuf import protobuf_compiler, protobuf_format
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
    """Return a text that is both a valid Protobuf file and a Python module that executes a statement."""
    assert '"' not in statement
    return f'syntax = "proto3" // exec("{statement}") or """\n;\nmessage Dep {{ string a = 1; }}\n// """\n'


def compile_schema(text: str, *references: tuple[str, str]):
    return protobuf_format.compiled(RegisteredSchema(1, text, "PROTOBUF", references))


def test_payload_runs_as_python_and_compiles_as_protobuf():
    """Verify the payload of the other tests: it runs as Python and compiles as Protobuf."""
    payload = python_and_protobuf("import builtins; builtins.protobuf_payload_ran = True")
    with pytest.raises(TypeError):  # after the payload, the module divides by None
        exec(compile(payload, "payload", "exec"), {})  # noqa: S102 (the test's own payload)
    assert vars(builtins).pop("protobuf_payload_ran")
    assert compile_schema('syntax = "proto3"; import "dep.proto"; message M { Dep d = 1; }', ("dep.proto", payload))


@pytest.mark.parametrize("name", MODULES)
def test_compile_reference_named_like_module_is_refused(name, tmp_path):
    marker = tmp_path / "marker"
    with pytest.raises(SchemaError, match="reference"):
        compile_schema(ORDER, (name, python_and_protobuf(f"open('{marker}', 'w')")))
    assert not marker.exists()


@pytest.mark.parametrize("name", [name.removesuffix(".py") + ".proto" for name in MODULES])
def test_compile_reference_is_not_executed(name, tmp_path):
    marker = tmp_path / "marker"
    payload = python_and_protobuf(f"open('{marker}', 'w')")
    files = compile_schema(f'syntax = "proto3"; import "{name}"; message Order {{ Dep dep = 1; }}', (name, payload))
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
def test_compile_unusual_reference_name_is_refused(names):
    with pytest.raises(SchemaError, match="reference"):
        compile_schema(ORDER, *((name, 'syntax = "proto3";') for name in names))


def test_compile_nested_reference_name_succeeds():
    reference = 'syntax = "proto3"; package acme.common_v1; message Money { int64 cents = 1; }'
    text = (
        'syntax = "proto3"; import "acme/common-v1/money.v2.proto"; message Order { acme.common_v1.Money price = 1; }'
    )
    fields = protobuf_format.reader(
        [RegisteredSchema(1, text, "PROTOBUF", (("acme/common-v1/money.v2.proto", reference),))]
    )
    assert [(field.name, [part.name for part in field.fields]) for field in fields] == [("price", ["cents"])]


def test_compile_reference_cannot_redefine_well_known_types():
    """`google.protobuf.Timestamp` is mapped by its name, so its definition must be Google's."""
    name = "google/protobuf/timestamp.proto"
    forged = 'syntax = "proto3"; package google.protobuf; message Timestamp { string seconds = 1; }'
    text = f'syntax = "proto3"; import "{name}"; message Order {{ google.protobuf.Timestamp at = 1; }}'
    published = compile_schema(text).file[0]
    assert compile_schema(text, (name, forged)).file[0] == published


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
def test_compile_common_import_without_reference_succeeds(imported, type_, columns):
    text = f'syntax = "proto3"; import "{imported}"; message Order {{ {type_} a = 1; }}'
    [field] = protobuf_format.reader([RegisteredSchema(1, text, "PROTOBUF")])
    assert [part.name for part in field.fields] == columns


def test_compile_confluent_options_without_reference_succeeds():
    text = 'import "confluent/meta.proto"; message Order { int64 id = 1 [(confluent.field_meta).doc = "its id"]; }'
    assert [
        field.name for field in protobuf_format.reader([RegisteredSchema(1, f'syntax = "proto3"; {text}', "PROTOBUF")])
    ]


def test_compile_editions_are_refused():
    with pytest.raises(SchemaError, match="'edition', which is not supported"):
        protobuf_format.reader([RegisteredSchema(1, 'edition = "2023"; message M { int32 id = 1; }', "PROTOBUF")])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message M { int32 a = 1; int32 a = 2; }", 'line 2, column 32: "a" is already defined in "M"'),
        ('import "confluent/none.proto";', "confluent/none.proto: File not found"),
        ('import "dep.proto";', 'dep.proto:2:1: "int" is not defined'),
    ],
)
def test_compile_error_message_contains_no_folder(text, reason):
    with pytest.raises(SchemaError) as raised:
        compile_schema(f'syntax = "proto3";\n{text}', ("dep.proto", 'syntax = "proto3"; message D {\nint a = 1; }'))
    assert reason in str(raised.value)
    assert "/tmp" not in str(raised.value)
    assert "lakehouse-protobuf" not in str(raised.value)


def test_compile_error_message_contains_no_log_lines():
    with pytest.raises(SchemaError) as raised:
        protobuf_format.reader([RegisteredSchema(1, "message M { int32 a = 1; }", "PROTOBUF")])
    expected = 'line 1, column 13: Expected "required", "optional", or "repeated"'
    assert str(raised.value) == f"The Protobuf schema does not compile: {expected}. Correct it"


@pytest.mark.parametrize("place", ["text", "reference", "references together"])
def test_compile_oversized_schema_is_refused(place):
    big = 'syntax = "proto3";\n' + "// padding\n" * (MAX_CHARACTERS // 11 + 1)
    half = big[: len(big) // 2]
    texts = {
        "text": (big,),
        "reference": (ORDER, ("a.proto", big)),
        "references together": (ORDER, ("a.proto", half), ("b.proto", half)),
    }
    with pytest.raises(SchemaError, match="characters"):
        compile_schema(*texts[place])


def test_compile_lone_surrogate_is_refused():
    with pytest.raises(SchemaError, match="UTF-8"):
        compile_schema(json.loads(r'"syntax = \"proto3\"; // \ud800"') + "\nmessage Order { int64 id = 1; }")


def test_compile_inherits_no_environment(tmp_path, monkeypatch):
    """Python would read a module path and a start-up file from the worker's environment."""
    (tmp_path / "grpc_tools.py").write_text("raise SystemExit('a module of the environment was imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert compile_schema('syntax = "proto3"; message FromEnvironment { int64 id = 1; }')


def test_descriptor_with_malicious_dependency_is_refused():
    root = FileDescriptorProto(name="x.proto", syntax="proto3", dependency=['a.proto"; import "b.proto'])
    root.message_type.add(name="Order").field.add(name="id", number=1, type=3, label=1)
    with pytest.raises(SchemaError, match="reference"):
        compile_schema(base64.b64encode(root.SerializeToString()).decode())


def test_descriptor_that_contradicts_itself_is_refused():
    root = FileDescriptorProto(name="x.proto", syntax="proto3")
    message = root.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="id", number=1, type=3, label=1)
    with pytest.raises(SchemaError):
        protobuf_format.reader([RegisteredSchema(1, base64.b64encode(root.SerializeToString()).decode(), "PROTOBUF")])


def test_compile_past_deadline_is_killed(monkeypatch):
    monkeypatch.setattr(protobuf_compiler, "MAX_SECONDS", 0.01)
    with pytest.raises(SchemaError, match="seconds"):
        compile_schema('syntax = "proto3"; message TakesTooLong { int64 id = 1; }')
