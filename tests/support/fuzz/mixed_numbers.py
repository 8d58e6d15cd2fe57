"""A JSON object with integers and other numbers, at several depths: its schema, column, text and cell."""

NUMBERS = {
    "properties": {
        "i": {"type": "integer"},
        "y": {"type": "number"},
        "z": {"type": "string"},
        "any": {},
        "o": {
            "type": "array",
            "items": {
                "properties": {
                    "i": {"type": "integer"},
                    "z": {"type": "string"},
                    "d": {"type": "string", "format": "date"},
                }
            },
        },
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
}
COLUMN = (
    "struct",
    (
        ("i", "long"),
        ("y", "double"),
        ("z", "string"),
        ("any", "string"),
        ("o", ("list", ("struct", (("i", "long"), ("z", "string"), ("d", "date"))))),
        ("m", ("map", "string", "long")),
    ),
)
TEXT_OF_MIXED = (
    '{"i": 2.0, "y": -0.0, "z": 1.0, "any": 1e2, "o": [{"i": 1e2, "z": 1e2, "d": "1970-01-02"}, {"z": "2.0"}], '
    '"m": {"k": 3.0}}'
)
MIXED = {
    "i": 2,
    "y": -0.0,
    "z": "1.0",
    "any": "100.0",
    "o": [{"i": 100, "z": "100.0", "d": 1}, {"i": None, "z": "2.0", "d": None}],
    "m": (("k", 3),),
}
EMPTY = dict.fromkeys(MIXED)
