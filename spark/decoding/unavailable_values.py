"""The forms of the placeholder that change events have in place of unchanged values.

PostgreSQL stores large values apart from their rows (TOAST), and does not log them when they are unchanged (Debezium,
PostgreSQL connector: Toasted values).
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T


def is_unavailable(value: Column, type_: T.DataType, placeholder: str) -> Column | None:
    """Return whether a value is the placeholder; None if no value of its type is.

    Args:
        value: The value.
        type_: Its type.
        placeholder: The placeholder in text.
    """
    data = placeholder.encode()
    match type_:
        case T.StringType():
            return value.isin(*_texts(placeholder))
        case T.BinaryType():
            return value == F.lit(data)
        case T.ArrayType(elementType=T.StringType()):
            texts = (placeholder, _uuid(data), base64.b64encode(data).decode())
            return (F.size(value) == 1) & F.coalesce(F.try_element_at(value, F.lit(1)).isin(*texts), F.lit(False))
        case T.ArrayType(elementType=T.BinaryType()):
            return value == F.array(F.lit(data))
        case T.ArrayType(elementType=T.NumericType() as element):
            return value == F.array(*(F.lit(code).cast(element) for code in data))
        case T.ArrayType(elementType=T.DateType()):
            return value == F.array(*(F.date_from_unix_date(F.lit(code)) for code in data))
        case T.MapType(keyType=T.StringType(), valueType=T.StringType()):
            pair = F.array(F.lit(placeholder))
            return (F.map_keys(value) == pair) & (F.map_values(value) == pair)
    return None


def _texts(placeholder: str) -> list[str]:
    """Return the texts: of text, of bytes by the connector's `binary.handling.mode`, and of JSON text columns."""
    data = placeholder.encode()
    texts = [placeholder, base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex()]
    values = [*texts[:2], [placeholder], [texts[1]], [*data], [_uuid(data)], {placeholder: placeholder}]
    return [*dict.fromkeys([*texts, *(json.dumps(v, separators=(",", ":"), ensure_ascii=False) for v in values)])]


def _uuid(data: bytes) -> str:
    """Return the placeholder as java.util.UUID.nameUUIDFromBytes has it."""
    return str(uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3))
