"""Debezium's types of dates and times as logical types of Avro.

Debezium names them in `connect.name` and writes numbers without a logical type (Debezium, PostgreSQL connector:
Temporal types).
"""

import json

from lakehouse.formats.avro.avro_types import LOGICAL

TYPES = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Time": "time-millis",
    "io.debezium.time.MicroTime": "time-micros",
    "io.debezium.time.Timestamp": "local-timestamp-millis",
    "io.debezium.time.MicroTimestamp": "local-timestamp-micros",
    "io.debezium.time.NanoTimestamp": "local-timestamp-nanos",
}
"""The logical type of each of them. Timestamps have no zone."""


def with_logical_types(text: str) -> str:
    """Return an Avro schema whose numbers have the logical types of their names in Debezium.

    Args:
        text: The schema. Text that is no JSON is returned unchanged.
    """

    def annotated(part: dict[str, object]) -> dict[str, object]:
        logical, type_ = TYPES.get(str(part.get("connect.name"))), part.get("type")
        is_plain = isinstance(type_, str) and "logicalType" not in part and logical in LOGICAL.get(type_, ())
        return part | {"logicalType": logical} if is_plain else part

    try:
        return json.dumps(json.loads(text, object_hook=annotated))
    except (ValueError, RecursionError):
        return text
