"""Messages of dead letters: key, value and headers of the record, as far as the topic accepts their size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakehouse.config.model import Topic
from lakehouse.core.table_protocol import ENTRY, LETTER_IDENTITY, OWN
from lakehouse.core.tables import arrow_values
from lakehouse.pipeline.engine_values import Place
from resources.kafka.transactions import Outgoing


def letter_messages(
    letters: pa.Table, topic: Topic, identity: str, limit: int, skipped: list[Place]
) -> Iterator[Outgoing]:
    """Yield the messages by partition and offset; one record batch at a time exists as Python objects.

    Args:
        letters: The dead letters.
        topic: The topic that they are of.
        identity: The identity of its table.
        limit: The maximum bytes of a message in their topic.
        skipped: Receives the partition and offset of each dead letter that exceeds the limit even without its body.
    """
    for batch in letters.to_batches():
        for letter in arrow_values.rows(batch):
            record = letter["source_record"]
            message = next((m for m in _forms(letter, topic, identity) if m.size <= limit), None)
            if message is None:
                skipped.append((record["partition"], record["offset"]))
            else:
                yield message


def _forms(letter: dict[str, Any], topic: Topic, identity: str) -> Iterator[Outgoing]:
    """Yield the message of a dead letter in shorter and shorter forms, whose headers name what is left out.

    The whole record; without its value; without its key and headers; without the description of the error.
    """
    record = letter["source_record"]
    key, value = record["key"], record["value"]
    headers = tuple((header["key"], header["value"]) for header in record["headers"] or ())
    place = {name: record[name] for name in ("topic", "partition", "offset")}
    names = (ENTRY, topic.name.encode()), (LETTER_IDENTITY, identity.encode())
    origin = *names, *_encoded({"error_reason": letter["error_reason"], **place})
    message = {"error_message": letter["error_message"]}
    whole = Outgoing(
        topic.dead_letter_topic,
        key,
        value,
        (*headers, *origin, *_encoded(message)),
        source=(record["partition"], record["offset"]),
    )
    yield whole
    without_value = {"value_left_out": len(value or b"")}
    yield replace(whole, value=None, headers=(*whole.headers, *_encoded(without_value)))
    without_key = {**without_value, "key_left_out": len(key or b""), "headers_left_out": "true"}
    yield replace(whole, key=None, value=None, headers=(*origin, *_encoded(message | without_key)))
    without_message = {**without_key, "error_message_left_out": "true"}
    yield replace(whole, key=None, value=None, headers=(*origin, *_encoded(without_message)))


def _encoded(headers: Mapping[str, object]) -> tuple[tuple[str, bytes], ...]:
    """Return headers of the project, whose names begin with `lakehouse.`; a record may have some of these names, too.

    Consumers find the project's ones last.
    """
    return tuple((OWN + name, str(value).encode()) for name, value in headers.items())
