"""Debezium's types of times and decimals as logical types of Avro.

Debezium names them in `connect.name` and writes values without a logical type (Debezium, PostgreSQL connector: Temporal
types, Decimal types).
"""

import json
import re
from dataclasses import replace
from datetime import datetime
from typing import Any

from lakehouse.formats.avro.avro_types import LOGICAL, MAX_PRECISION, VARIABLE_DECIMAL, ZONED_TIMESTAMP
from lakehouse.formats.format import Conversions
from lakehouse.formats.json.json_explain import TIME_AND_ZONE
from lakehouse.formats.schema import RegisteredSchema

TIMES = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Time": "time-millis",
    "io.debezium.time.MicroTime": "time-micros",
    "io.debezium.time.Timestamp": "local-timestamp-millis",
    "io.debezium.time.MicroTimestamp": "local-timestamp-micros",
    "io.debezium.time.NanoTimestamp": "local-timestamp-nanos",
    ZONED_TIMESTAMP: ZONED_TIMESTAMP,
}
"""The logical type of each type of dates and times. Only ZONED_TIMESTAMP has a zone."""

INFINITE = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}
"""PostgreSQL's infinite timestamps in text, and in microseconds since 1970 as `io.debezium.time.MicroTimestamp`."""

ZONED = r"^([+-]?\d{4,6})" + TIME_AND_ZONE
"""Other timestamps in text: as RFC 3339 writes them, but with any year (java.time.format, ISO_OFFSET_DATE_TIME)."""

FIELDS = [
    {"name": "scale", "type": "int"},
    {"name": "value", "type": {"type": "bytes", "logicalType": "decimal", "precision": MAX_PRECISION}},
]
"""The fields of VARIABLE_DECIMAL: a number is `value` divided by ten to the power of `scale`."""


def with_logical_types(schema: RegisteredSchema, conversions: Conversions) -> RegisteredSchema:
    """Return a schema whose types have the logical types of their names in Debezium, if these are to be converted.

    Text that is no JSON is returned unchanged.
    """
    scale = conversions.decimal_scale
    logical_types = (TIMES if conversions.times else {}) | (
        {} if scale is None else {VARIABLE_DECIMAL: VARIABLE_DECIMAL}
    )
    if not logical_types:
        return schema

    def annotated(part: dict[str, Any]) -> dict[str, Any]:
        type_, logical = part.get("type"), logical_types.get(str(part.get("connect.name")))
        if not isinstance(type_, str) or "logicalType" in part or logical not in LOGICAL.get(type_, ()):
            return part
        if logical != VARIABLE_DECIMAL:
            return part | {"logicalType": logical}
        return part | {"logicalType": logical, "scale": scale, "fields": FIELDS} if _is_variable(part) else part

    def text(of: str) -> str:
        try:
            return json.dumps(json.loads(of, object_hook=annotated))
        except (ValueError, RecursionError):
            return of

    references = tuple((name, text(of)) for name, of in schema.references)
    return replace(schema, text=text(schema.text), references=references)


def _is_variable(part: dict[str, Any]) -> bool:
    fields = part.get("fields")
    if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
        return False
    return [(field.get("name"), field.get("type")) for field in fields] == [("scale", "int"), ("value", "bytes")]


def is_zoned(text: str) -> bool:
    """Return whether a text is a timestamp of ZONED_TIMESTAMP."""
    match = re.match(ZONED, text)
    if not match:
        return text in INFINITE
    # Python's years have four digits. The calendar repeats after 400 years.
    year, rest = int(match[1]), re.sub(r"(\.\d{6})0+", r"\1", text[match.end(1) :])
    try:
        datetime.fromisoformat(f"{2000 + year % 400}{rest}")
    except ValueError:
        return False
    return abs(year) < 290_000
