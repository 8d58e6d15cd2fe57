"""Examples of the rows of docs/types.md about Protobuf."""

from decimal import Decimal

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from lakehouse.formats.schema import RegisteredSchema
from tests.support.fuzz.cells import JsonText
from tests.support.fuzz.examples import Example, protobuf
from tests.support.fuzz.model import Case, Record
from tests.support.protobuf_messages import message_class

INT, LONG, UINT32, UINT64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1), (0, 2**32 - 1), (0, 2**64 - 1)
FIRST, LAST = -62_135_596_800, 253_402_300_799
MONEY = (
    (
        "shared/money.proto",
        'syntax = "proto3"; package shop.shared; message Money { string currency = 1; int64 units = 2; }',
    ),
)


def scalars(column, types, cell=lambda value: value):
    """Return a case with a message for each type, with its values."""
    return [
        protobuf(f"{type_} x = 1;", {"x": column}, [({"x": value}, {"x": cell(value)}) for value in values])
        for type_, values in types.items()
    ]


CODE = ("struct", (("region_code", "string"), ("number", "string")))
PHONE = {"e164_number": None, "short_code": {"region_code": "", "number": "1"}, "extension": ""}


def google(*names):
    return [f"google/protobuf/{name}.proto" for name in names]


def gains_a_field():
    """Return a case of two versions: a message without fields gains one."""
    texts = [f'syntax = "proto3"; message R {{ message M {{ {body} }} M x = 1; }}' for body in ("", "int32 y = 1;")]
    versions = [RegisteredSchema(id_, text, "PROTOBUF") for id_, text in enumerate(texts, 1)]
    sent = [(1, b"\x0a\x00", {"y": None}), (2, b"\x0a\x02\x08\x07", {"y": 7})]
    records = [Record(bytes([0, 0, 0, 0, id_, 0]) + body, {"x": cell}) for id_, body, cell in sent]
    return Case("protobuf", versions, {"x": ("struct", (("y", "int"),))}, records)


def of_serializer():
    """Return a case whose schema, references and message are those of confluent-kafka's serializer."""
    client = SchemaRegistryClient.new_client({"url": "mock://protobuf"})
    imports = 'import "shared/money.proto"; import "google/protobuf/timestamp.proto"; import "google/type/date.proto";'
    fields = "shop.shared.Money x = 1; google.protobuf.Timestamp y = 2; google.type.Date z = 3;"
    kind = message_class(f'syntax = "proto3"; package shop; {imports} message R {{ {fields} }}', "shop.R")
    money, day = {"currency": "EUR", "units": 1}, {"year": 1, "month": 2, "day": 3}
    serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    message = kind(x=money, y={"seconds": 1, "nanos": 1000}, z=day)
    value = serializer(message, SerializationContext("t", MessageField.VALUE))
    latest = client.get_latest_version("t-value")
    references = [(one.name, client.get_version(one.subject, one.version)) for one in latest.schema.references]
    texts = tuple((name, version.schema.schema_str) for name, version in references)
    assert texts, "the serializer registers references"
    schema = RegisteredSchema(latest.schema_id, latest.schema.schema_str, "PROTOBUF", texts)
    columns = {
        "x": ("struct", (("currency", "string"), ("units", "long"))),
        "y": "timestamptz",
        "z": ("struct", (("year", "int"), ("month", "int"), ("day", "int"))),
    }
    return Case("protobuf", [schema], columns, [Record(value, {"x": money, "y": 1_000_001, "z": day})])


EXAMPLES = {
    "`int32`, `sint32`, `sfixed32`": Example(
        [
            *scalars("int", dict.fromkeys(["int32", "sint32", "sfixed32"], INT)),
            protobuf("int32 x = 1;", {"x": "int"}, [(b"\x08\x81\x80\x80\x80\x10", {"x": 1})]),
        ]
    ),
    "`int64`, `sint64`, `sfixed64`, `uint32`, `fixed32`": Example(
        scalars(
            "long", dict.fromkeys(["int64", "sint64", "sfixed64"], LONG) | dict.fromkeys(["uint32", "fixed32"], UINT32)
        )
    ),
    "`uint64`, `fixed64`": Example(scalars("decimal(20, 0)", dict.fromkeys(["uint64", "fixed64"], UINT64), Decimal)),
    "`float`, `double`, `bool`, `string`, `bytes`": Example(
        [
            *scalars("float", {"float": [0.5, -0.0, float("inf")]}),
            *scalars("double", {"double": [0.1, float("nan")]}),
            *scalars("boolean", {"bool": [True, False]}),
            *scalars("string", {"string": ["", "ä\0"]}),
            *scalars("binary", {"bytes": [b"", b"\0\xff"]}),
            protobuf("string x = 1;", {"x": "string"}, bad=[b"\x0a\x01\xff"]),
        ]
    ),
    "enum": Example(
        [
            protobuf(
                "enum E { A = 0; B = 1; } E x = 1;",
                {"x": "string"},
                [({}, {"x": "A"}), ({"x": 1}, {"x": "B"}), ({"x": 9}, {"x": "9"})],
            )
        ]
    ),
    "message": Example(
        [
            protobuf(
                "message M { int32 y = 1; } M x = 1;",
                {"x": ("struct", (("y", "int"),))},
                [({"x": {"y": 1}}, {"x": {"y": 1}})],
            )
        ]
    ),
    "message without fields, such as `google.protobuf.Empty`": Example(
        [
            protobuf(
                "message M {} oneof o { M x = 1; int32 y = 2; }",
                {"x": "boolean", "y": "int"},
                [
                    ({}, {"x": None, "y": None}),
                    ({"x": {}}, {"x": True, "y": None}),
                    ({"y": 0}, {"x": None, "y": 0}),
                    # A later version of the message may have fields, and the last member is effective.
                    (b"\x0a\x02\x08\x01", {"x": True, "y": None}),
                    (b"\x0a\x00\x10\x01", {"x": None, "y": 1}),
                    (b"\x10\x01\x0a\x00", {"x": True, "y": None}),
                ],
                [b"\x0a\x01\x08"],
            ),
            protobuf(
                "google.protobuf.Empty x = 1; message M {} message N { M y = 1; } repeated N z = 2;"
                "map<int32, M> m = 3; repeated google.protobuf.Empty l = 4;",
                {
                    "x": "boolean",
                    "z": ("list", ("struct", (("y", "boolean"),))),
                    "m": ("map", "int", "boolean"),
                    "l": ("list", "boolean"),
                },
                [
                    ({}, {"x": None, "z": [], "m": (), "l": []}),
                    (
                        {"x": {}, "z": [{"y": {}}, {}], "m": {7: {}}, "l": [{}, {}]},
                        {"x": True, "z": [{"y": True}, {"y": None}], "m": ((7, True),), "l": [True, True]},
                    ),
                ],
                imports=google("empty"),
            ),
            gains_a_field(),
        ],
        says="`boolean`",
    ),
    "`repeated`": Example(
        [
            protobuf(
                "repeated int32 x = 1;", {"x": ("list", "int")}, [({}, {"x": []}), ({"x": [1, 2]}, {"x": [1, 2]})]
            ),
            protobuf(
                "repeated fixed32 x = 1;",
                {"x": ("list", "long")},
                [(b"\x0a\x04\1\0\0\0", {"x": [1]}), (b"\x0a\0", {"x": []}), (b"\x0d\1\0\0\0", {"x": [1]})],
                [b"\x0a\x05\1\0\0\0\xff", b"\x0a\x03\1\0\0"],
            ),
        ]
    ),
    "`map<K, V>`": Example(
        [
            protobuf(
                "map<string, int32> x = 1;",
                {"x": ("map", "string", "int")},
                [({"x": {"a": 1}}, {"x": (("a", 1),)}), ({}, {"x": ()})],
            ),
            protobuf(
                "map<bool, int64> x = 1;", {"x": ("map", "boolean", "long")}, [({"x": {True: 1}}, {"x": ((True, 1),)})]
            ),
        ]
    ),
    "`oneof`": Example(
        [
            protobuf(
                "oneof o { int32 a = 1; string b = 2; }",
                {"a": "int", "b": "string"},
                [({}, {"a": None, "b": None}), ({"a": 0}, {"a": 0, "b": None}), ({"b": "x"}, {"a": None, "b": "x"})],
            ),
            # With two members, the last one is effective (Encoding, Oneofs).
            protobuf(
                "oneof o { int32 a = 1; string b = 2; }",
                {"a": "int", "b": "string"},
                [(b"\x08\x01\x12\x01z", {"a": None, "b": "z"})],
            ),
        ],
        says="one column for each member",
    ),
    "`optional`, messages": Example(
        [
            protobuf(
                "optional int32 x = 1; int32 y = 2;",
                {"x": "int", "y": "int"},
                [({}, {"x": None, "y": 0}), ({"x": 0}, {"x": 0, "y": 0})],
            ),
            protobuf(
                "message M { int32 y = 1; } M x = 1;",
                {"x": ("struct", (("y", "int"),))},
                [({}, {"x": None}), ({"x": {}}, {"x": {"y": 0}})],
            ),
        ],
        says="null where absent",
    ),
    "`required` (proto2)": Example(
        [protobuf("required int32 x = 1;", {"x": "int"}, [({"x": 0}, {"x": 0})], [b""], syntax="proto2")],
        says="the column of its type",
    ),
    "`google.protobuf.Timestamp`": Example(
        [
            protobuf(
                "google.protobuf.Timestamp x = 1;",
                {"x": "timestamptz"},
                [
                    ({"x": {"seconds": seconds, "nanos": nanos}}, {"x": seconds * 1_000_000 + nanos // 1000})
                    for seconds, nanos in [(0, 1000), (-1, 999_999_000), (FIRST, 0), (LAST, 999_999_000)]
                ],
                [
                    {"x": {"nanos": 1}},
                    {"x": {"seconds": FIRST - 1}},
                    {"x": {"seconds": LAST + 1}},
                    {"x": {"nanos": 10**9}},
                ],
                imports=google("timestamp"),
            )
        ]
    ),
    "`google.protobuf.Duration`": Example(
        [
            protobuf(
                "google.protobuf.Duration x = 1;",
                {"x": ("struct", (("seconds", "long"), ("nanos", "int")))},
                [({"x": {"seconds": -1, "nanos": -5}}, {"x": {"seconds": -1, "nanos": -5}})],
                imports=google("duration"),
            )
        ]
    ),
    "wrappers (`StringValue` …)": Example(
        [
            protobuf(
                "google.protobuf.StringValue x = 1; google.protobuf.UInt64Value y = 2;",
                {"x": "string", "y": "decimal(20, 0)"},
                [
                    ({}, {"x": None, "y": None}),
                    ({"x": {"value": ""}, "y": {"value": 2**64 - 1}}, {"x": "", "y": Decimal(2**64 - 1)}),
                ],
                imports=google("wrappers"),
            )
        ],
        says="the column of the value, null where absent",
    ),
    "`google.protobuf.Struct`, `Value`, `ListValue`": Example(
        [
            protobuf(
                f"google.protobuf.{name} x = 1;",
                {"x": "string"},
                [({"x": value}, {"x": JsonText(value)}), ({}, {"x": None})],
                imports=google("struct"),
            )
            for name, value in {"Struct": {"a": [1.5, None]}, "Value": "1", "ListValue": [True, "a"]}.items()
        ]
    ),
    "`google.protobuf.Any`, `FieldMask`, `google.type.*`, `confluent.type.Decimal`": Example(
        [
            protobuf(
                "google.protobuf.Any x = 1; google.protobuf.FieldMask y = 2; google.type.Date z = 3;",
                {
                    "x": ("struct", (("type_url", "string"), ("value", "binary"))),
                    "y": ("struct", (("paths", ("list", "string")),)),
                    "z": ("struct", (("year", "int"), ("month", "int"), ("day", "int"))),
                },
                [
                    (
                        {
                            "x": {"type_url": "a", "value": b"b"},
                            "y": {"paths": ["c"]},
                            "z": {"year": 1, "month": 2, "day": 3},
                        },
                        {
                            "x": {"type_url": "a", "value": b"b"},
                            "y": {"paths": ["c"]},
                            "z": {"year": 1, "month": 2, "day": 3},
                        },
                    )
                ],
                imports=[*google("any", "field_mask"), "google/type/date.proto"],
            ),
            # value = b"\x01", precision = 2, scale = 1
            protobuf(
                "confluent.type.Decimal x = 1;",
                {"x": ("struct", (("value", "binary"), ("precision", "long"), ("scale", "int")))},
                [(b"\x0a\x07\x0a\x01\x01\x10\x02\x18\x01", {"x": {"value": b"\x01", "precision": 2, "scale": 1}})],
                imports=["confluent/type/decimal.proto"],
            ),
        ]
    ),
    "imports": Example(
        [
            protobuf(
                "shop.shared.Money x = 1;",
                {"x": ("struct", (("currency", "string"), ("units", "long")))},
                [({"x": {"currency": "EUR", "units": 1}}, {"x": {"currency": "EUR", "units": 1}})],
                imports=["shared/money.proto"],
                references=MONEY,
            ),
            protobuf("int32 x = 1;", {}, refused="../up.proto", imports=["../up.proto"]),
            protobuf("int32 x = 1;", {"x": "int"}, [({"x": 1}, {"x": 1})], imports=["google/type/phone_number.proto"]),
            protobuf(
                "google.type.PhoneNumber x = 1;",
                {"x": ("struct", (("e164_number", "string"), ("short_code", CODE), ("extension", "string")))},
                [({"x": {"short_code": {"number": "1"}}}, {"x": PHONE})],
                imports=["google/type/phone_number.proto"],
            ),
            of_serializer(),
        ],
        says="",
    ),
    "message in itself, groups, declared extensions, `edition`": Example(
        [
            protobuf("R x = 1;", {}, refused="contains itself"),
            protobuf("optional group G = 1 { optional int32 y = 1; }", {}, refused="is a group", syntax="proto2"),
            protobuf(
                "optional int32 x = 1; extensions 100 to 199; extend R { optional string note = 100; }",
                {},
                refused="'shop.R' has the extension 'shop.R.note'",
                syntax="proto2",
            ),
            protobuf(
                "message M { optional int32 y = 1; extensions 9; } extend M { optional M m = 9; } repeated M x = 1;",
                {},
                refused="'shop.R.M' has the extension 'shop.R.m'",
                syntax="proto2",
            ),
        ],
        says="refused",
    ),
    "unknown fields": Example(
        [protobuf("int32 x = 1;", {"x": "int"}, [(b"\x08\x01\xf8\xff\x01\x05", {"x": 1})])], says=""
    ),
}
