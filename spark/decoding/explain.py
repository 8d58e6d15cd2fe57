"""Explain why a record does not decode, as text with field, rule and position but without values.

Spark only reports that decoding failed. The few records that fail are read again in Python, one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse.core.sql import SPARK
from lakehouse.core.tables.letter_columns import REASONS
from lakehouse.formats.avro.avro_format import AvroFormat
from lakehouse.formats.mistaken_format import document_fault
from lakehouse.formats.schema import guid, schema_id
from lakehouse.pipeline.engine_values import Decoding
from spark.decoding.decode import Codec
from spark.decoding.decoded import record

OF_VALUE, OF_KEY = ("undecodable", "unfit_schema"), "bad_key"
"""Reasons that a codec can explain."""

OF_SCHEMA = ("unknown_schema", "other_type", "schema_limit")
"""Reasons caused by the schema id in the value."""

NOT_FRAMED = "not_framed"
"""The reason of values without a schema id."""

SHOWN = 64
"""Maximum number of bytes of a message key in an error."""


def message(decoding: Decoding[Codec]) -> Column:
    """Return the reason why a record is a dead letter: the sentence of the reason code, and details if known."""
    sentences = F.create_map(*[F.lit(part) for item in REASONS.items() for part in item])
    read_again = F.arrow_udf(_explainer(decoding), "string")  # type: ignore[call-overload]  # its stub lacks this form
    reason = record("reason")
    is_explained = reason.isin(*OF_VALUE, OF_KEY, *OF_SCHEMA, NOT_FRAMED)
    detail = F.when(is_explained, read_again(reason, record("framed_key"), record("framed_value")))
    return F.concat(
        sentences[reason], F.coalesce(F.concat(F.lit(": "), F.coalesce(detail, _missing(decoding))), F.lit(""))
    )


def first_faults(
    decoded: DataFrame, decoding: Decoding[Codec], limit: int = 5, *, shows_keys: bool = False
) -> list[tuple[int, int, str]]:
    """Return the first records that could not be decoded, by partition and offset.

    Args:
        decoded: The decoded records; see spark.decoding.decode.
        decoding: The instructions that they were decoded with.
        limit: The maximum number of records.
        shows_keys: Whether the text may quote message keys.

    Returns:
        Partition, offset and reason of each record.
    """
    bad = decoded.filter(record("reason").isNotNull() & record("check").isNull())
    fields = [
        record(name).alias(name) for name in ("partition", "offset", "key", "framed_key", "framed_value", "reason")
    ]
    bad = bad.select(*fields, F.coalesce(_missing(decoding), F.lit("")).alias("missing"))
    faults = []
    for row in bad.orderBy("partition", "offset").limit(limit).collect():
        detail = _explanation(decoding, row["reason"], row["framed_key"], row["framed_value"])
        detail = detail or (row["missing"] if row["reason"] == OF_KEY else "")
        quoted = f" (key {_quoted(row['key'])})" if shows_keys and row["key"] is not None else ""
        explanation = REASONS[row["reason"]] + (f": {detail}" if detail else "")
        faults.append((row["partition"], row["offset"], explanation + quoted))
    return faults


def _missing(decoding: Decoding[Codec]) -> Column:
    """Return the first key column that is null if the reason is `bad_key`, else null."""
    is_ignored = decoding.mode == "debezium" and decoding.key is None
    cause = ", and message keys are not decoded: write 'key_format'" if is_ignored else ""
    null = [
        F.when(F.col(SPARK.identifier(name)).isNull(), F.lit(f"key column '{name}' is null{cause}"))
        for name in decoding.key_columns
    ]
    return F.when(record("reason") == OF_KEY, F.coalesce(*null)) if null else F.lit(None).cast("string")


def _explainer(decoding: Decoding[Codec]) -> Callable[[pa.Array, pa.Array, pa.Array], pa.Array]:
    """Return the function that Spark's Python workers run. It contains schemas, and no connections."""

    def explain(reasons: pa.Array, keys: pa.Array, values: pa.Array) -> pa.Array:
        rows = zip(reasons.to_pylist(), keys.to_pylist(), values.to_pylist(), strict=True)
        return pa.array([_explanation(decoding, *row) for row in rows], pa.string())

    return explain


def _explanation(decoding: Decoding[Codec], reason: str | None, key: bytes | None, value: bytes | None) -> str | None:
    try:
        if reason in OF_SCHEMA and value is not None:
            if unknown := guid(value):
                return f"schema GUID {unknown}" + (f": {decoding.guids.fault}" if decoding.guids.fault else "")
            return f"schema id {schema_id(value)}"
        if reason in OF_VALUE and value is not None:
            return decoding.conflicts.get(schema_id(value) or 0) or decoding.value.explain(value)
        if reason == NOT_FRAMED and value is not None:
            return document_fault(value)
        if reason == OF_KEY and key is not None and decoding.key:
            if decoding.key.is_text and (id_ := schema_id(key)) is not None:
                remedy = f"write 'key_format: {AvroFormat.name}', or the format of that schema"
                return f"it begins with a zero byte and the schema id {id_}, and is no text: {remedy}"
            return decoding.key.explain(key)
    except Exception as error:
        # One message without an explanation must not prevent publication of the others.
        return f"the cause could not be determined ({type(error).__name__})"
    return None


def _quoted(key: bytes) -> str:
    shown = key[:SHOWN]
    text = shown.decode("ascii") if shown.isascii() and shown.decode("ascii").isprintable() else shown.hex()
    return f"'{text}'" + ("…" if len(key) > SHOWN else "")
