"""Change events as Debezium's connectors write them with Kafka Connect's JsonConverter, with a schema and without."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.support.fuzz.json_model import Draft, objects
from tests.support.fuzz.json_spelling import Members, dumped
from tests.support.fuzz.model import Case, Record, refusal, rows_of

OPERATIONS = ("c", "r", "u", "x")
"""Operations with a row, and one that does not exist."""


@st.composite
def cases(draw) -> Case:
    """Generate a schema of rows, and events with a row after the change."""
    draft = Draft(draw, has_files=False)
    top = draw(objects(draft, 2, draw(st.integers(1, 5))))
    row = {"allOf": [{"properties": {"id": {"type": "integer"}}}, top.schema]}
    properties = {"before": row, "after": row, "source": {"type": "object"}, "op": {"type": "string"}}
    document = draft.document({"type": "object", "properties": properties})
    records = []
    for number in range(draw(st.integers(1, 6))):
        value, operation = draw(top.values), draw(st.sampled_from(OPERATIONS))
        after = Members((("id", number), *value.sent.items))
        before = draw(st.sampled_from([None, after]))
        event: dict[str, Any] = {"before": before, "after": after, "op": operation, "ts_ms": 1, "source": {"lsn": 1}}
        if draw(st.booleans()):
            event = {"schema": {"type": "struct", "fields": [], "optional": False}, "payload": event}
        fate = value.fate if operation != "x" else "letter"
        records.append(Record(dumped(event).encode(), {"id": number} | value.cell, fate))
    settings = {"mode": "debezium", "key": "id", "value_schema_file": "s.json", "value_schema": json.dumps(document)}
    columns = {"id": "long"} | dict(top.column[1])
    return Case("json", [], columns, records, refusal(top), rows_of(top) | draft.rows, settings=settings)
