"""Why a record does not decode, as text that names field, rule and position, and never a value.

Decoding in Spark says no more than that it failed. The few records that fail are read again in Python, one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse.core.framing import schema_id
from lakehouse.core.sql import SPARK
from spark.decode import REASONS, Codec, Decoding
from spark.decoded import record

OF_VALUE, OF_KEY = ("undecodable", "unfit_schema"), "bad_key"
"""Reasons that a codec can explain."""

OF_SCHEMA = ("unknown_schema", "other_type", "schema_limit")
"""Reasons for which the schema id that the value names is at fault."""

SHOWN = 64
"""Bytes of a message key in an error."""


def message(how: Decoding) -> Column:
    """Return why a record of spark.decode is a dead letter: the sentence of its reason, and what is known besides."""
    sentences = F.create_map(*[F.lit(part) for item in REASONS.items() for part in item])
    read_again = F.arrow_udf(_explainer(how), "string")  # type: ignore[call-overload]  # its stub lacks this form
    reason = record("reason")
    detail = F.when(reason.isin(*OF_VALUE, OF_KEY, *OF_SCHEMA), read_again(reason, record("key"), record("value")))
    return F.concat(sentences[reason], F.coalesce(F.concat(F.lit(": "), F.coalesce(detail, _missing(how))), F.lit("")))


def first_faults(
    decoded: DataFrame, how: Decoding, limit: int = 5, *, shows_keys: bool = False
) -> list[tuple[int, int, str]]:
    """Return the first records that could not be decoded, in order of partition and offset.

    Args:
        decoded: Records as spark.decode returns them.
        how: How they were decoded.
        limit: How many to return at most.
        shows_keys: Whether the text may quote the message key.

    Returns:
        Partition, offset and why, as text.
    """
    bad = decoded.filter(record("reason").isNotNull() & record("check").isNull())
    fields = [record(name).alias(name) for name in ("partition", "offset", "key", "value", "reason")]
    bad = bad.select(*fields, F.coalesce(_missing(how), F.lit("")).alias("missing"))
    found = []
    for row in bad.orderBy("partition", "offset").limit(limit).collect():
        detail = _explained(how.value, how.key, row["reason"], row["key"], row["value"])
        detail = detail or (row["missing"] if row["reason"] == OF_KEY else "")
        quoted = f" (key {_quoted(row['key'])})" if shows_keys and row["key"] is not None else ""
        why = REASONS[row["reason"]] + (f": {detail}" if detail else "")
        found.append((row["partition"], row["offset"], why + quoted))
    return found


def _missing(how: Decoding) -> Column:
    """The first key column that is null, where the reason is that one is; else null."""
    null = [
        F.when(F.col(SPARK.identifier(name)).isNull(), F.lit(f"key column '{name}' is null"))
        for name in how.key_columns
    ]
    return F.when(record("reason") == OF_KEY, F.coalesce(*null)) if null else F.lit(None).cast("string")


def _explainer(how: Decoding) -> Callable[[pa.Array, pa.Array, pa.Array], pa.Array]:
    """What the workers run: it holds schemas, and no connection to anything."""
    value_codec, key_codec = how.value, how.key

    def explain(reasons: pa.Array, keys: pa.Array, values: pa.Array) -> pa.Array:
        rows = zip(reasons.to_pylist(), keys.to_pylist(), values.to_pylist(), strict=True)
        return pa.array([_explained(value_codec, key_codec, *row) for row in rows], pa.string())

    return explain


def _explained(
    value_codec: Codec, key_codec: Codec | None, reason: str | None, key: bytes | None, value: bytes | None
) -> str | None:
    try:
        if reason in OF_SCHEMA and value is not None:
            return f"schema id {schema_id(value)}"
        if reason in OF_VALUE and value is not None:
            return value_codec.explain(value)
        if reason == OF_KEY and key is not None and key_codec:
            return key_codec.explain(key)
    except Exception as error:
        # A message that could not be explained must not keep the others from being published.
        return f"it could not be found out why ({type(error).__name__})"
    return None


def _quoted(key: bytes) -> str:
    shown = key[:SHOWN]
    text = shown.decode("ascii") if shown.isascii() and shown.decode("ascii").isprintable() else shown.hex()
    return f"'{text}'" + ("…" if len(key) > SHOWN else "")
