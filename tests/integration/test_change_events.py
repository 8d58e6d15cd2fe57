"""Change events in the forms that Debezium's PostgreSQL connector emits, compared with the rows of the database."""

import json
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from lakehouse.config.model import Topic
from lakehouse.core.errors import BadRecords, IncompatibleSchema
from lakehouse.pipeline.ledger.reconciliation import reconcile
from lakehouse.pipeline.redrive import redrive
from lakehouse.pipeline.replay import replay
from tests.support.topics import Stream, framed, register

ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "code", "type": "string", "default": ""},
        {"name": "body", "type": ["null", "string"], "default": None},
    ],
}


SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [
        {"name": "lsn", "type": ["null", "long"], "default": None},
        {"name": "snapshot", "type": ["null", "string"], "default": None},
    ],
}


def envelope(row):
    """Return the schema of change events."""
    fields = [
        {"name": "before", "type": ["null", row]},
        {"name": "after", "type": ["null", row["name"]]},
        {"name": "op", "type": "string"},
        {"name": "source", "type": ["null", SOURCE], "default": None},
    ]
    return json.dumps({"type": "record", "name": "Envelope", "fields": fields})


KEY = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]})


class Source:
    """A table of PostgreSQL with the replica identity `default`, whose changes are produced to a topic."""

    def __init__(self, resources, row=ROW, partitions=1, **settings):
        settings = {"mode": "debezium", "key": "id"} | settings
        self.stream, self.schema = Stream(resources, partitions=partitions, settings=settings), envelope(row)
        self.value_id = self.stream.schema(self.schema)
        self.key_id = register(f"{self.stream.name}-key", KEY)

    def key(self, id_):
        return framed(self.key_id, KEY, {"id": id_})

    def event(self, op, after=None, before=None, key=None, source=None, **more):
        value = framed(self.value_id, self.schema, {"before": before, "after": after, "op": op, "source": source})
        id_ = key if key is not None else (after or before or {}).get("id")
        return {"key": None if id_ is None else self.key(id_), "value": value, **more}

    def create(self, id_, code="x", body=None):
        return self.event("c", {"id": id_, "code": code, "body": body})

    def delete(self, id_):
        """Return the event, and the null value that follows it. `before` has the key only."""
        gone = self.event("d", before={"id": id_, "code": "", "body": None})
        return [gone, {"key": self.key(id_), "value": None}]

    def truncate(self):
        return self.event("t")

    def rows(self):
        return {row["id"]: (row["code"], row["body"]) for row in self.stream.rows()}

    def reasons(self):
        return [letter["error_reason"] for letter in self.stream.dead_letters()]

    def faults(self):
        report = reconcile(self.stream.namespace, self.stream.topic, self.stream.systems, whole_log=True)
        return [finding for finding in report.findings if finding.fault]


def test_delete_removes_row_of_message_key_only(resources):
    source = Source(resources)
    source.stream.produce([source.create(n, code) for n, code in ((0, "a"), (1, ""), (2, "c"))])
    source.stream.ingest()
    # The rows 0 and "" are those that the event of the row 2 has in place of what it lacks.
    source.stream.produce(source.delete(2))
    source.stream.ingest()

    assert source.rows() == {0: ("a", None), 1: ("", None)}


@pytest.mark.parametrize("key_format", [None, "avro"])
def test_delete_of_column_that_message_key_lacks_is_dead_letter(resources, key_format):
    source = Source(resources, key="code", key_format=key_format)
    source.stream.produce([source.create(n, code) for n, code in ((1, "a"), (2, ""))])
    source.stream.ingest()
    [gone, _] = source.delete(1)
    source.stream.produce([gone])
    source.stream.ingest()

    assert source.rows() == {1: ("a", None), 2: ("", None)}
    assert source.reasons() == ["bad_key"]


def test_delete_without_decoded_message_key_stops(resources):
    source = Source(resources, key_format="none", errors="suspend")
    source.stream.produce([source.create(1), source.create(2)])
    source.stream.ingest()
    source.stream.produce(source.delete(1))

    with pytest.raises(BadRecords, match="key column 'id' is null, and message keys are not decoded: write 'key_for"):
        source.stream.ingest()

    assert sorted(source.rows()) == [1, 2]
    source.stream.topic = source.stream.topic.model_copy(update={"key_format": "avro"})
    source.stream.ingest()
    assert sorted(source.rows()) == [2]


@pytest.mark.parametrize("batches", [1, 5])
def test_truncate_deletes_rows_before_it(resources, batches):
    source = Source(resources, errors="suspend")
    events = [*(source.create(n) for n in range(3)), source.truncate(), source.create(7)]
    for part in (events,) if batches == 1 else ([event] for event in events):
        source.stream.produce(part)
        [published] = source.stream.ingest()
        assert published.counts.is_balanced

    assert source.rows() == {7: ("x", None)}
    assert source.faults() == []
    replay(source.stream.namespace, source.stream.topic, source.stream.systems, "0:1")
    assert source.rows() == {7: ("x", None)}


def test_truncate_of_several_partitions_stops_until_it_is_ignored(resources):
    source = Source(resources, partitions=2, errors="suspend")
    source.stream.produce([source.create(n) | {"partition": n % 2} for n in range(3)])
    source.stream.ingest()
    source.stream.produce([source.truncate() | {"partition": 0}, source.create(7) | {"partition": 1}])

    with pytest.raises(BadRecords, match=r"truncated the table.*'debezium: \{truncate: ignore\}'"):
        source.stream.ingest()

    assert sorted(source.rows()) == [0, 1, 2]
    topic = source.stream.topic.model_dump(by_alias=True) | {"name": source.stream.name}
    source.stream.topic = type(source.stream.topic).model_validate(topic | {"debezium": {"truncate": "ignore"}})
    [published] = source.stream.ingest()
    assert published.counts.filtered == 1
    assert sorted(source.rows()) == [0, 1, 2, 7]


def test_truncate_among_dead_letters_is_redriven(resources):
    source = Source(resources)
    bad = {"key": source.key(1), "value": struct.pack(">bI", 0, source.value_id) + b"\xff"}
    source.stream.produce([source.create(0), bad, source.truncate(), source.create(7)])
    source.stream.ingest()

    redriven = redrive(source.stream.namespace, source.stream.topic, source.stream.systems)

    assert redriven.recovered == 0
    assert source.rows() == {7: ("x", None)}
    assert source.reasons() == ["undecodable"]


PLACEHOLDER = "__debezium_unavailable_value"
BODY = "b" * 9000


def moved(source, old, new, code="x", body=PLACEHOLDER):
    """Return the events of a changed key: a deletion, its null value, and a creation that names the old key."""
    [gone, none] = source.delete(old)
    header = json.dumps({"schema": {"type": "struct"}, "payload": {"id": old}}).encode()
    return [gone, none, source.create(new, code, body) | {"headers": [("__debezium.oldkey", header)]}]


def update(source, id_, code="x", body=PLACEHOLDER):
    return source.event("u", {"id": id_, "code": code, "body": body})


@pytest.mark.parametrize("batches", ["one", "each"])
def test_unchanged_value_is_kept(resources, batches):
    source = Source(resources)
    events = [
        source.create(1, "a", BODY),
        source.create(2, "a", None),
        update(source, 1, "b"),
        update(source, 1, "c"),
        update(source, 2, "b", "short"),
        source.create(3, "a", "third"),
        *moved(source, 3, 4),
        update(source, 4, "c"),
        *moved(source, 4, 5),
        source.create(4, "a", "new fourth"),
        update(source, 4, "b"),
    ]
    expected = {1: ("c", BODY), 2: ("b", "short"), 5: ("x", "third"), 4: ("b", "new fourth")}
    parts = [events] if batches == "one" else [events[:2], events[2:3], events[3:6], events[6:10], events[10:]]
    for part in parts:
        source.stream.produce(part)
        [published] = source.stream.ingest()
        assert published.counts.is_balanced

    assert (source.rows(), source.reasons()) == (expected, [])
    assert source.faults() == []
    for offset in (3, 9, 12) if batches == "one" else (4, 8):
        replay(source.stream.namespace, source.stream.topic, source.stream.systems, f"0:{offset}")
        assert (source.rows(), source.reasons()) == (expected, []), offset


def test_unchanged_value_without_old_row_is_dead_letter(resources):
    source = Source(resources)
    bad = {"key": source.key(3), "value": struct.pack(">bI", 0, source.value_id) + b"\xff"}
    source.stream.produce([source.create(2, "a", BODY), source.create(3, "a", BODY)])
    source.stream.ingest()
    source.stream.produce([update(source, 1), update(source, 2, "b"), bad])
    source.stream.ingest()
    # The dead letter may have changed the value.
    source.stream.produce([update(source, 3, "c"), *moved(source, 7, 8)])
    source.stream.ingest()

    assert source.rows() == {2: ("b", BODY), 3: ("a", BODY)}
    unknown = ["unchanged_value"]
    assert source.reasons() == [*unknown, "undecodable", *unknown, *unknown]
    assert source.faults() == []


FORMS = {
    "bytes": (["null", "bytes"], b"\x00\x01", PLACEHOLDER.encode()),
    "base64": (["null", "string"], "AAE=", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
    "texts": (["null", {"type": "array", "items": "string"}], ["a", "b"], [PLACEHOLDER]),
    "ints": (["null", {"type": "array", "items": "int"}], [1, 2], [*PLACEHOLDER.encode()]),
    "longs": (["null", {"type": "array", "items": ["null", "long"]}], [1, 2], [*PLACEHOLDER.encode()]),
    "uuids": (
        ["null", {"type": "array", "items": "string"}],
        ["3f0e4a5c-0000-4000-8000-000000000000"],
        ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    ),
}


def test_unchanged_value_of_each_type_is_kept(resources):
    fields = [{"name": name, "type": type_, "default": None} for name, (type_, _, _) in FORMS.items()]
    source = Source(resources, row={"type": "record", "name": "Value", "fields": [ROW["fields"][0], *fields]})
    values, omitted = ({name: form[n] for name, form in FORMS.items()} for n in (1, 2))
    source.stream.produce([source.event("c", {"id": 1, **values}), source.event("u", {"id": 1, **omitted})])
    source.stream.ingest()
    source.stream.produce([source.event("u", {"id": 1, **omitted})])
    source.stream.ingest()

    [row] = source.stream.rows()
    assert {name: row[name] for name in FORMS} == values


def test_unchanged_value_has_placeholder_of_connector(resources):
    source = Source(resources, debezium={"unavailable_value": "n/a"})
    source.stream.produce(
        [source.create(1, "a", BODY), update(source, 1, "b", "n/a"), source.create(2, "a", PLACEHOLDER)]
    )
    source.stream.ingest()

    assert source.rows() == {1: ("b", BODY), 2: ("a", PLACEHOLDER)}


@pytest.mark.parametrize("batches", [1, 2])
def test_snapshot_that_begins_again_is_reported(resources, batches):
    source = Source(resources)

    def snapshot(*marks):
        rows = [{"id": n, "code": "x", "body": None} for n, _ in enumerate(marks)]
        return [source.event("r", row, source={"snapshot": mark}) for row, mark in zip(rows, marks, strict=True)]

    first, again = snapshot("first", "true", "true"), snapshot("first_in_data_collection", "last")
    findings = []
    for part in [first + again] if batches == 1 else [first, again]:
        source.stream.produce(part)
        [published] = source.stream.ingest()
        findings += [one for one in published.findings if one.check == "source_snapshot"]

    assert [one.passed for one in findings] == [True, False][-batches:]
    start = 0 if batches == 1 else 3
    assert f"those with (kafka_partition = 0 AND kafka_offset < {start})" in findings[-1].message
    assert sorted(source.rows()) == [0, 1, 2]


SCHEMA_FILE = {
    "type": "object",
    "required": ["op"],
    "properties": {
        "after": {
            "type": ["object", "null"],
            "required": ["id"],
            "properties": {"id": {"type": "integer"}, "body": {"type": ["string", "null"]}},
        },
        "op": {"type": "string"},
    },
}


@pytest.mark.parametrize("is_file_wrapped", [False, True])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_json_event_with_or_without_schema_is_row(resources, is_wrapped, is_file_wrapped):
    wrapped = {"type": "object", "properties": {"schema": {}, "payload": SCHEMA_FILE}}
    schema = json.dumps(wrapped if is_file_wrapped else SCHEMA_FILE)
    settings = {"mode": "debezium", "key": "id", "value_format": "json", "value_schema_file": "schema.json"}
    stream = Stream(resources, partitions=1, settings={**settings, "value_schema": schema})

    def text(value):
        described = {"schema": {"type": "struct", "fields": [], "optional": False}, "payload": value}
        return json.dumps(described if is_wrapped else value).encode()

    def event(op, id_, body=None):
        after = {"id": id_, "body": body} if op != "d" else None
        return {"key": text({"id": id_}), "value": text({"before": None, "after": after, "op": op, "ts_ms": 1})}

    first = [event("c", n, BODY) for n in range(3)]
    stream.produce([*first, event("u", 0, PLACEHOLDER), event("d", 1), {"key": text({"id": 1}), "value": None}])
    stream.ingest()

    assert {row["id"]: row["body"] for row in stream.rows()} == {0: BODY, 2: BODY}
    assert stream.dead_letters() == []


def test_infinite_date_or_time_is_dead_letter(resources):
    types = {"day": {"type": "int", "logicalType": "date"}, "at": {"type": "long", "logicalType": "timestamp-micros"}}
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    source = Source(resources, row={"type": "record", "name": "Value", "fields": [ROW["fields"][0], *fields]})
    schema = json.loads(source.schema)
    days, moments = (0, -2147472692, -2147472691), (0, 9223372036825200000, -9223372036832400000)
    for field in schema["fields"][0]["type"][1]["fields"][1:]:
        field["type"].pop("logicalType")

    def created(id_, day, at):
        value = {"before": None, "after": {"id": id_, "day": day, "at": at}, "op": "c", "source": None}
        return {"key": source.key(id_), "value": framed(source.value_id, json.dumps(schema), value)}

    places = [(day, 0) for day in days] + [(0, at) for at in moments[1:]]
    source.stream.produce([created(n, *place) for n, place in enumerate(places)])
    source.stream.ingest()

    assert [row["id"] for row in source.stream.rows()] == [0]
    assert source.reasons() == ["out_of_range"] * 4


def named(type_, name):
    """Return an optional type that Debezium names."""
    about = {"connect.version": 1, "connect.name": f"io.debezium.{name}"}
    return ["null", {**(type_ if isinstance(type_, dict) else {"type": type_}), **about}]


def source_of(resources, types, **debezium):
    """Return a source whose rows have an id and optional columns of the given types."""
    fields = [{"name": name, "type": type_, "default": None} for name, type_ in types.items()]
    row = {"type": "record", "name": "Value", "fields": [ROW["fields"][0], *fields]}
    return Source(resources, row=row, debezium=debezium)


def test_times_of_debezium_are_converted_if_declared(resources):
    names = {"day": ("int", "Date"), "at": ("long", "MicroTimestamp"), "ms": ("long", "Timestamp")}
    types = {name: named(type_, f"time.{of}") for name, (type_, of) in names.items()}
    source = source_of(resources, types, times="converted")
    moment = datetime(2026, 1, 31, 12, 30, 0, 250_000)
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    values = {"day": 20_484, "at": micros, "ms": micros // 1000}
    infinite = {"day": -2147472692, "at": 0, "ms": 0}
    source.stream.produce([source.event("c", {"id": n, **row}) for n, row in enumerate((values, infinite))])
    source.stream.ingest()

    [row] = source.stream.rows()
    assert (row["day"], row["at"], row["ms"]) == (date(2026, 1, 31), moment, moment)
    assert source.reasons() == ["out_of_range"]


def test_zoned_times_of_debezium_are_converted_if_declared(resources):
    zoned = named("string", "time.ZonedTimestamp")
    types = {"at": zoned, "times": ["null", {"type": "array", "items": zoned}]}
    types["inner"] = ["null", {"type": "record", "name": "Inner", "fields": [{"name": "at", "type": zoned}]}]
    source = source_of(resources, types, times="converted")
    good = {
        "2026-01-31T12:30:00.25Z": datetime(2026, 1, 31, 12, 30, 0, 250_000, tzinfo=UTC),
        "2026-01-31T12:30:00.123456000+02:00": datetime(2026, 1, 31, 10, 30, 0, 123_456, tzinfo=UTC),
        "0001-01-01T00:00:00Z": datetime(1, 1, 1, tzinfo=UTC),
        "9999-12-31T23:59:59.999999Z": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    }
    infinite = ["infinity", "-infinity", "+10000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00"]
    unfit = ["2026-02-30T00:00:00Z", "2026-01-31T12:30:00", "2026-01-31T12:30:00.1234567Z", "soon", ""]
    texts = [*good, *infinite, *unfit]
    rows = [{"id": n, "at": text, "times": [None, text], "inner": {"at": text}} for n, text in enumerate(texts)]
    source.stream.produce(source.event("c", row) for row in rows)
    # Infinite ones within lists and records, too.
    source.stream.produce([source.event("c", {"id": 98, "at": None, "times": ["infinity"], "inner": None})])
    source.stream.produce([source.event("c", {"id": 99, "at": None, "times": None, "inner": {"at": "infinity"}})])
    source.stream.ingest()

    rows = sorted(source.stream.rows(), key=lambda row: row["id"])
    moments = [*good.values()]
    assert [(row["at"], row["times"], row["inner"]) for row in rows] == [(at, [None, at], {"at": at}) for at in moments]
    assert source.reasons() == ["out_of_range"] * len(infinite) + ["undecodable"] * len(unfit) + ["out_of_range"] * 2
    texts = [letter["error_message"] for letter in source.stream.dead_letters()][len(infinite) : -2]
    assert all("'after.at': a date-time as in RFC 3339 is expected" in text for text in texts)


VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}


def variable(text):
    """Return a number as Debezium emits a `numeric` without scale: as many digits of the fraction as it is written."""
    sign, digits, exponent = Decimal(text).as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    return {"scale": -exponent, "value": unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)}


def test_decimals_of_variable_scale_are_converted_if_declared(resources):
    amount = named(VARIABLE, "data.VariableScaleDecimal")
    types = {"amount": amount, "amounts": ["null", {"type": "array", "items": "io.debezium.data.VariableScaleDecimal"}]}
    source = source_of(resources, types, decimal_scale=4)
    good = ["0", "0E+5000", "0E-5000", "12.34", "-0.0001", "1.50000000", "1E+3", "1E+33", f"-{'9' * 34}.9999", "7E-4"]
    unfit = ["0.00001", "1E+34", f"{'9' * 35}", "1.23456", "1E-2000000000", "1E+2000000000", f"1.{'0' * 40}", "5E-38"]
    rows = [{"id": n, "amount": variable(text), "amounts": [variable(text)]} for n, text in enumerate([*good, *unfit])]
    source.stream.produce([source.event("c", row) for row in [*rows, {"id": 99, "amount": None, "amounts": None}]])
    source.stream.ingest()

    rows = sorted(source.stream.rows(), key=lambda row: row["id"])
    decimals = [Decimal(text) for text in good]
    assert [(row["amount"], row["amounts"]) for row in rows] == [*((d, [d]) for d in decimals), (None, None)]
    assert source.reasons() == ["undecodable"] * len(unfit)
    texts = [letter["error_message"] for letter in source.stream.dead_letters()]
    rules = ("the number is not a decimal of 38 digits, 4 of them after the point", "a decimal has more than 38 digits")
    assert all("'after.amount" in text and any(rule in text for rule in rules) for text in texts)


def test_other_declaration_is_change_of_type(resources):
    source = source_of(resources, {"at": named("string", "time.ZonedTimestamp")})
    source.stream.produce([source.event("c", {"id": 1, "at": "2026-01-31T00:00:00Z"})])
    source.stream.ingest()
    source.stream.topic = Topic.model_validate(
        {**source.stream.settings, "name": source.stream.name, "debezium": {"times": "converted"}}
    )
    source.stream.produce([source.event("c", {"id": 2, "at": "2026-01-31T00:00:00Z"})])

    with pytest.raises(IncompatibleSchema, match="UNSUPPORTED_TYPE_CHANGE"):
        source.stream.ingest()
