"""Examples of the rows of docs/types.md about Avro."""

from dataclasses import replace
from decimal import Context, Decimal

from tests.support.fuzz.examples import Example, avro, avro_versions
from tests.support.fuzz.model import Record

DAY = 86_400_000_000


def connect_decimals():
    """Return cases of decimals of 64 digits, which Connect declares if `connect.decimal.precision` is missing."""
    limit = {"wide_decimals": "limit"}
    for size in (None, 32):
        type_ = logical("fixed" if size else "bytes", "decimal", precision=64, scale=2)
        type_ |= {"name": "D", "size": size} if size else {}

        def sent(number, size=size):
            return number.to_bytes(size or number.bit_length() // 8 + 1, "big", signed=True)

        good = [(n, Decimal(n).scaleb(-2, Context(prec=38))) for n in (12345, -1, 0, 10**38 - 1, 1 - 10**38)]
        bad = [sent(10**38), sent(-(10**38))]
        yield replace(avro(type_, "decimal(38, 2)", [(sent(n), cell) for n, cell in good], bad), settings=limit)
        lists, column = {"type": "array", "items": ["null", type_]}, ("list", "decimal(38, 2)")
        yield replace(avro(lists, column, [([None, sent(n)], [None, cell]) for n, cell in good], [bad]), settings=limit)
    wide = logical("bytes", "decimal", precision=64, scale=39)
    yield replace(avro(wide, "", refused="has a scale of 39"), settings=limit)


def logical(base, kind, **more):
    return {"type": base, "logicalType": kind} | more


def scalar(type_, column, *values, bad=()):
    return avro(type_, column, [value if isinstance(value, tuple) else (value, value) for value in values], bad)


def deep(levels, kind):
    """Return an example of decimals within arrays or maps within each other, whose conditions are deep expressions."""
    schema, column = logical("bytes", "decimal", precision=4, scale=2), "decimal(4, 2)"
    good, bad, cell = b"\x01", b"\x7f\xff\xff", Decimal("0.01")
    for _ in range(levels):
        if kind == "array":
            schema, column, good, bad, cell = (
                {"type": "array", "items": schema},
                ("list", column),
                [good],
                [bad],
                [cell],
            )
        else:
            schema, column, cell = {"type": "map", "values": schema}, ("map", "string", column), (("k", cell),)
            good, bad = {"k": good}, {"k": bad}
    return avro(schema, column, [(good, cell)], [bad])


def encoded(type_, good, bad=()):
    """Return an example of bodies of records with one field, and their cells."""
    case = scalar(type_, type_)
    records = [Record(b"\0\0\0\0\1" + body, {"x": cell}) for body, cell in good.items()]
    return replace(case, records=records + [Record(b"\0\0\0\0\1" + body, {}, "letter") for body in bad])


def ints(type_, column, sent, cell):
    """Return an example of values of a type that contain an int, of its range and beyond."""
    good = [(sent(n), cell(n)) for n in (*INT_EDGES[:-1], 5)]
    return avro(type_, column, good, [sent(n) for n in BEYOND_INT])


def promoted(type_, *cells):
    """Return an example of ints that a newer version reads as another type."""
    versions = [[{"name": "x", "type": old}, {"name": "y", "type": "string"}] for old in ("int", type_)]
    good = [
        (version, {"x": n, "y": "a"}, {"x": cell, "y": "a"})
        for version in (0, 1)
        for n, cell in zip(INT_EDGES, cells, strict=True)
    ]
    wide = [(1, {"x": n, "y": "b"}, {"x": cells[0].__class__(n), "y": "b"}) for n in BEYOND_INT]
    case = avro_versions(versions, {"x": type_, "y": "string"}, good + wide)
    beyond = [avro_versions(versions[:1], {}, [(0, {"x": n, "y": "c"}, {})]).records[0].value for n in BEYOND_INT]
    return replace(case, records=[*case.records, *(Record(value, {}, "letter") for value in beyond)])


def empty_defaults():
    """Return an example of fields whose default is empty, at the top and within structs, lists and maps."""
    added = [
        {"name": name, "type": type_, "default": empty}
        for name, type_, empty in (
            ("list", {"type": "array", "items": ["null", "int"]}, []),
            ("maybe", [{"type": "array", "items": "string"}, "null"], []),
            ("map", {"type": "map", "values": "long"}, {}),
            ("text", "string", ""),
            ("data", "bytes", ""),
        )
    ]
    sent = {"list": [], "maybe": None, "map": {}, "text": "", "data": b""}
    cells = {**sent, "map": ()}
    columns = {"list": ("list", "int"), "maybe": ("list", "string"), "map": ("map", "string", "long")}
    columns |= {"text": "string", "data": "binary"}

    def version(fields):
        inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}, *fields]}
        within = {"type": "map", "values": {"type": "array", "items": inner}}
        return [{"name": "within", "type": within}, *fields]

    inner = ("struct", (("x", "int"), *columns.items()))
    return avro_versions(
        [version([]), version(added)],
        {"within": ("map", "string", ("list", inner)), **columns},
        [
            (
                0,
                {"within": {"k": [{"x": 1}]}},
                {"within": (("k", [{"x": 1} | cells | {"maybe": []}]),), **cells, "maybe": []},
            ),
            (1, {"within": {"k": [{"x": 1} | sent]}, **sent}, {"within": (("k", [{"x": 1} | cells]),), **cells}),
        ],
    )


OF_SEVERAL_TYPES = {"name": "z", "type": [{"type": "array", "items": "int"}, "string"], "default": []}
OF_SEVERAL = ("struct", (("member0", ("list", "int")), ("member1", "string")))
INT_EDGES, LONG_EDGES = ((-(2**bits), 0, 2**bits - 1) for bits in (31, 63))
BEYOND_INT = (2**31, 3 * 10**9, -(2**31) - 1, 2**40)
DEFAULTS = [
    {"name": "y", "type": {"type": "array", "items": ["int", "long"]}, "default": [7]},
    {"name": "z", "type": [logical("int", "date"), "long"], "default": 8},
]
FLOATS = (0.5, -0.0, float("inf"), float("nan"))
RECORD = {"type": "record", "name": "Inner", "fields": [{"name": "y", "type": "int"}]}
MONEY = '{"type": "record", "name": "Money", "fields": [{"name": "units", "type": "long"}]}'

EXAMPLES = {
    "`boolean`": Example(
        [scalar("boolean", "boolean", True, False), encoded("boolean", {b"\1": True, b"\2": False, b"\xff": False})]
    ),
    "`int`": Example(
        [
            scalar("int", "int", *INT_EDGES, bad=BEYOND_INT),
            encoded("int", {b"\xff\xff\xff\xff\x0f": -(2**31)}, [b"\xff\xff\xff\xff\x1f", b"\xff" * 5]),
            ints({"type": "array", "items": "int"}, ("list", "int"), lambda n: [1, n], lambda n: [1, n]),
            ints({"type": "map", "values": "int"}, ("map", "string", "int"), lambda n: {"k": n}, lambda n: (("k", n),)),
            ints(RECORD, ("struct", (("y", "int"),)), lambda n: {"y": n}, lambda n: {"y": n}),
            ints(
                ["int", "string"],
                ("struct", (("member0", "int"), ("member1", "string"))),
                lambda n: ("int", n),
                lambda n: {"member0": n, "member1": None},
            ),
            ints(["long", "int"], "long", lambda n: ("int", n), lambda n: n),
            ints(
                ["null", "string", "int", "long"],
                ("struct", (("member0", "string"), ("member1", "int"), ("member2", "long"))),
                lambda n: ("int", n),
                lambda n: {"member0": None, "member1": n, "member2": None},
            ),
            promoted("long", *INT_EDGES),
            promoted("double", *map(float, INT_EDGES)),
            avro_versions(
                [[{"name": "x", "type": "int"}], [{"name": "x", "type": "int"}, *DEFAULTS]],
                {"x": "int", "y": ("list", "long"), "z": ("struct", (("member0", "date"), ("member1", "long")))},
                [(0, {"x": 1}, {"x": 1, "y": [7], "z": {"member0": 8, "member1": None}})],
                [2**31],
            ),
        ],
        says="`int`",
    ),
    "`long`": Example(
        [
            scalar("long", "long", *LONG_EDGES),
            encoded("long", {b"\xff" * 9 + b"\1": -(2**63), b"\xff" * 9 + b"\3": -(2**63)}, [b"\xff" * 10]),
        ]
    ),
    "`float`": Example([scalar("float", "float", *FLOATS)]),
    "`double`": Example([scalar("double", "double", *FLOATS, 1e308, 5e-324)]),
    "`bytes`": Example([scalar("bytes", "binary", b"", b"\0\xff")]),
    "`string`": Example([scalar("string", "string", "", "ä\0😀")]),
    '`["null", T]`, `[T, "null"]`': Example(
        [
            scalar(["null", "int"], "int", None, (("int", 1), 1)),
            scalar(["string", "null"], "string", None, (("string", "a"), "a")),
        ],
        says="the column of T",
    ),
    '`["int", "long"]`': Example(
        [
            scalar(["int", "long"], "long", (("int", 1), 1), (("long", 2**40), 2**40)),
            scalar(["null", "long", "int"], "long", None, (("int", 1), 1)),
        ]
    ),
    '`["float", "double"]`': Example(
        [
            scalar(["float", "double"], "double", (("float", 0.5), 0.5), (("double", 0.1), 0.1)),
            scalar(["double", "null", "float"], "double", None, (("float", 0.5), 0.5)),
        ]
    ),
    "any other union": Example(
        [
            avro(
                ["null", "int", "string", RECORD],
                ("struct", (("member0", "int"), ("member1", "string"), ("member2", ("struct", (("y", "int"),))))),
                [
                    (None, None),
                    (("int", 1), {"member0": 1, "member1": None, "member2": None}),
                    (("string", "a"), {"member0": None, "member1": "a", "member2": None}),
                    (("Inner", {"y": 2}), {"member0": None, "member1": None, "member2": {"y": 2}}),
                ],
            )
        ]
    ),
    "`enum`": Example(
        [
            scalar({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string", "A", "B"),
            avro_versions(
                [
                    [{"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}}],
                    [{"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["C", "B"]}}],
                ],
                {"x": "string"},
                [(0, {"x": "A"}, {"x": "A"}), (0, {"x": "B"}, {"x": "B"}), (1, {"x": "C"}, {"x": "C"})],
            ),
        ]
    ),
    "`fixed`": Example([scalar({"type": "fixed", "name": "F", "size": 3}, "binary", b"\0ab")]),
    "`decimal` on `bytes` or `fixed`": Example(
        [
            avro(
                logical("bytes", "decimal", precision=4, scale=2),
                "decimal(4, 2)",
                [(b"\xff", Decimal("-0.01"))],
                [b"\x27\x10"],
            ),
            avro(
                logical("bytes", "decimal", precision=38, scale=0),
                "decimal(38, 0)",
                [((10**38 - 1).to_bytes(16, "big"), Decimal(10**38 - 1))],
                [(10**38).to_bytes(16, "big")],
            ),
            avro(
                logical("fixed", "decimal", name="D", size=2, precision=4),
                "decimal(4, 0)",
                [(b"\x27\x0f", Decimal(9999))],
            ),
            avro(logical("bytes", "decimal", precision=39), "", refused="'wide_decimals: limit'"),
            *connect_decimals(),
        ],
        says="`decimal(P, S)`",
    ),
    "`date`": Example(
        [
            scalar(logical("int", "date"), "date", -719_162, 0, 2_932_896, bad=BEYOND_INT),
            avro(
                {"type": "array", "items": {"type": "map", "values": logical("int", "date")}},
                ("list", ("map", "string", "date")),
                [([{"k": 1}, {}], [(("k", 1),), ()])],
                [[{}, {"k": n}] for n in BEYOND_INT],
            ),
        ],
        says="`date`",
    ),
    "`time-millis`": Example([scalar(logical("int", "time-millis"), "int", 0, 86_399_999, bad=BEYOND_INT)]),
    "`time-micros`": Example([scalar(logical("long", "time-micros"), "long", 0, DAY - 1)]),
    "`timestamp-millis`, `timestamp-micros`": Example(
        [
            scalar(logical("long", "timestamp-millis"), "timestamptz", (-1, -1000), (1, 1000), bad=[2**62]),
            scalar(logical("long", "timestamp-micros"), "timestamptz", -1, 1, -719_162 * DAY, 2_932_897 * DAY - 1),
        ]
    ),
    "`timestamp-nanos`": Example([scalar(logical("long", "timestamp-nanos"), "long", *LONG_EDGES)]),
    "`local-timestamp-millis`, `local-timestamp-micros`": Example(
        [
            scalar(logical("long", "local-timestamp-millis"), "timestamp", (-1, -1000), (1, 1000)),
            scalar(logical("long", "local-timestamp-micros"), "timestamp", -1, 1),
        ]
    ),
    "`local-timestamp-nanos`": Example([scalar(logical("long", "local-timestamp-nanos"), "long", *LONG_EDGES)]),
    "`uuid` on `string`": Example(
        [scalar(logical("string", "uuid"), "string", "00000000-0000-0000-0000-000000000001")]
    ),
    "`uuid` on `fixed` of 16": Example(
        [scalar(logical("fixed", "uuid", name="U", size=16), "binary", bytes(range(16)))]
    ),
    "`duration` (`fixed` of 12)": Example(
        [scalar(logical("fixed", "duration", name="D", size=12), "binary", bytes(range(12)))]
    ),
    "`array`": Example([scalar({"type": "array", "items": "int"}, ("list", "int"), [], [1, 2]), deep(14, "array")]),
    "`map`": Example(
        [
            avro({"type": "map", "values": "int"}, ("map", "string", "int"), [({}, ()), ({"": 1}, (("", 1),))]),
            deep(12, "map"),
        ]
    ),
    "`record`": Example([scalar(RECORD, ("struct", (("y", "int"),)), {"y": 1})]),
    "a record that contains itself": Example([avro(["null", "R"], "", refused="'R' contains itself")], says="refused"),
    "`null` alone": Example([avro("null", "", refused="'null'")], says="refused"),
    "a named type of another subject": Example(
        [
            avro_versions(
                [[{"name": "x", "type": "Money"}]],
                {"x": ("struct", (("units", "long"),))},
                [(0, {"x": {"units": 1}}, {"x": {"units": 1}})],
                references=(("Money", MONEY),),
            )
        ],
        says="the column of that type",
    ),
    "`default`": Example(
        [
            avro_versions(
                [
                    [{"name": "x", "type": "int"}],
                    [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 7}],
                ],
                {"x": "int", "y": "int"},
                [(0, {"x": 1}, {"x": 1, "y": 7}), (1, {"x": 1, "y": 2}, {"x": 1, "y": 2})],
            ),
            empty_defaults(),
            avro_versions(
                [
                    [{"name": "x", "type": "string"}],
                    [{"name": "x", "type": "string"}, OF_SEVERAL_TYPES],
                ],
                {"x": "string", "z": OF_SEVERAL},
                [(1, {"x": "a", "z": [5]}, {"x": "a", "z": {"member0": [5], "member1": None}})],
                bad=["a"],
            ),
            avro_versions(
                [
                    [{"name": "x", "type": "int"}],
                    [
                        {"name": "x", "type": "int"},
                        {
                            "name": "y",
                            "type": ["null", {"type": "record", "name": "Added", "fields": [OF_SEVERAL_TYPES]}],
                            "default": None,
                        },
                    ],
                ],
                {"x": "int", "y": ("struct", (("z", OF_SEVERAL),))},
                [
                    (0, {"x": 1}, {"x": 1, "y": None}),
                    (1, {"x": 2, "y": {"z": "a"}}, {"x": 2, "y": {"z": {"member0": None, "member1": "a"}}}),
                ],
            ),
        ],
        says="",
    ),
    "`doc`": Example(
        [avro_versions([[{"name": "x", "type": "int", "doc": "the sum"}]], {"x": "int"}, [])],
        says="the column's comment",
        comment="the sum",
    ),
    "a logical type that is not valid, such as a `decimal` without precision, of more scale than precision, or of more "
    "digits than its `fixed` has room for": Example(
        [
            scalar(logical("bytes", "decimal"), "binary", b"5"),
            scalar(logical("bytes", "decimal", precision=2, scale=3), "binary", b"5"),
            scalar(logical("fixed", "decimal", name="F", size=1, precision=9), "binary", b"5"),
            scalar(logical("long", "date"), "long", 5),
        ],
        says="the column of the type without it",
    ),
    "a record without fields": Example(
        [avro({"type": "record", "name": "Empty", "fields": []}, "", refused="has no fields")], says="refused"
    ),
    "`aliases`, a name that changes by upper and lower case only": Example(
        [
            avro_versions(
                [[{"name": "x", "type": "int"}], [{"name": "X", "type": "int"}]],
                {"X": "int"},
                [(0, {"x": 1}, {"X": 1}), (1, {"X": 2}, {"X": 2})],
            ),
            avro_versions(
                [[{"name": "x", "type": "int"}], [{"name": "y", "type": "int", "aliases": ["x"]}]],
                {"y": "int"},
                [(0, {"x": 1}, {"y": 1}), (1, {"y": 2}, {"y": 2})],
            ),
        ],
        says="",
    ),
}
