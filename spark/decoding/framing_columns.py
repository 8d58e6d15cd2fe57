"""The Confluent wire format (lakehouse.formats.schema) as column expressions.

Codecs read schema ids from the prefix of a message. A message whose id is in a header gets the prefix of that id first,
so that each rule about schema ids has one implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from uuid import UUID

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.core.sql import SPARK
from lakehouse.formats.schema import FRAME_BYTES, GUID_BYTES, GUID_MAGIC, MAGIC, NO_ID, frame
from spark.decoding.conditions import is_true


def is_framed(data: Column, *, may_be_empty: bool = False) -> Column:
    """Return whether messages have the format, with a non-empty body unless `may_be_empty`."""
    length = F.octet_length(data)
    has_body = length >= FRAME_BYTES if may_be_empty else length > FRAME_BYTES
    return is_true(has_body & (F.substring(data, 1, len(MAGIC)) == F.lit(MAGIC)))


def body(data: Column) -> Column:
    """Return the bytes after the frame."""
    return F.substring(data, F.lit(FRAME_BYTES + 1), F.octet_length(data))


def id_bytes(data: Column) -> Column:
    """Return the four bytes of the schema id."""
    return F.substring(data, len(MAGIC) + 1, FRAME_BYTES - len(MAGIC))


def names_one_of(ids: Collection[int], data: Column) -> Column:
    """Return whether framed messages have one of the schema ids."""
    if not ids:
        return F.lit(False)
    return is_true(id_bytes(data).isin([frame(id_)[len(MAGIC) :] for id_ in sorted(ids)]))


def by_schema_id(data: Column, ids: Iterable[int], then: Callable[[int], Column]) -> Column:
    """Return the result of `then` for the schema id of a message; null if it has none of these ids.

    Args:
        data: The messages.
        ids: The known schema ids, at least one.
        then: Returns the column for a schema id.
    """
    prefix = F.substring(data, 1, FRAME_BYTES)
    first, *others = [(prefix == F.lit(frame(id_)), then(id_)) for id_ in sorted(ids)]
    return reduce(lambda chain, branch: chain.when(*branch), others, F.when(*first))


def framed_by_header(side: str, header: str, heads: Collection[bytes], guids: Mapping[str, int]) -> Column:
    """Return messages in the wire format: those with a schema id in their headers get it as prefix.

    The header has precedence, also over bytes that look like a prefix (Confluent, dual deserializers). If it names no
    schema, or is repeated with another value, the result is empty, which no prefix is. The expression is SQL text,
    because as columns it would nest deeper than the messages of Spark Connect may (spark.decoding.conditions).

    Args:
        side: The column of the messages.
        header: The key of the header.
        heads: All bytes before a body that the codec knows; after the schema id, Protobuf has a message index.
        guids: Schema ids by GUID.
    """
    data, key = SPARK.identifier(side), SPARK.literal(header)
    named = f"try_element_at(headers.value, cast(nullif(array_position(headers.key, {key}), 0) AS int))"
    is_contradicted = f"exists(headers, other -> other.key <=> {key} AND NOT (other.value <=> {named}))"
    is_guid = (
        f"substring({named}, 1, {len(GUID_MAGIC)}) = {_binary(GUID_MAGIC)} AND octet_length({named}) > {GUID_BYTES}"
    )
    bytes_ = f"substring({named}, {len(GUID_MAGIC) + 1}, {GUID_BYTES})"
    index = f"substring({named}, {len(GUID_MAGIC) + GUID_BYTES + 1})"
    cases = [f"WHEN substring({named}, 1, {len(MAGIC)}) = {_binary(MAGIC)} THEN {named}"]
    cases += [
        f"WHEN {is_guid} AND {bytes_} = {_binary(UUID(guid).bytes)} THEN concat({_binary(frame(id_))}, {index})"
        for guid, id_ in sorted(guids.items())
    ]
    cases.append(f"WHEN {is_guid} THEN concat({_binary(frame(NO_ID))}, {bytes_})")
    head = f"CASE {' '.join(cases)} END"
    prefix = f"substring({head}, 1, {FRAME_BYTES})"
    complete = ", ".join(map(_binary, sorted(heads)))
    known = ", ".join(map(_binary, sorted({head[:FRAME_BYTES] for head in heads})))
    framed = (
        f"CASE WHEN {data} IS NULL THEN {data} WHEN {is_contradicted} THEN X'' WHEN {named} IS NULL THEN {data} "
        f"WHEN {head} IN ({complete}) OR {prefix} = {_binary(frame(NO_ID))} THEN concat({head}, {data}) "
        f"WHEN {prefix} NOT IN ({known}) AND octet_length({prefix}) = {FRAME_BYTES} THEN concat({prefix}, {data}) "
        f"ELSE X'' END"
    )
    # Spark compiles no lambda function. Compiled with the decoder, these conditions would cost records without headers
    # half of the decoder's time.
    present = "filter(array(headers), present -> present IS NOT NULL)"
    by_header = f"try_element_at(transform({present}, present -> {framed}), 1)"
    return F.expr(f"CASE WHEN headers IS NULL THEN {data} ELSE {by_header} END")


def _binary(value: bytes) -> str:
    """Return the literal of bytes in Spark SQL."""
    return f"X'{value.hex()}'"


def id_or_guid(data: Column) -> Column:
    """Return the prefix of framed messages, with the GUID that follows it if their id is not known."""
    has_guid = is_true(F.substring(data, 1, FRAME_BYTES) == F.lit(frame(NO_ID)))
    return F.substring(data, F.lit(1), F.when(has_guid, FRAME_BYTES + GUID_BYTES).otherwise(FRAME_BYTES))
