"""The Confluent wire format (lakehouse.formats.schema) as column expressions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.formats.schema import FRAME_BYTES, MAGIC, frame
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
