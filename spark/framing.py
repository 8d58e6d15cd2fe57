"""Confluent's wire format (lakehouse.core.framing) in columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.core.framing import FRAME_BYTES, MAGIC, frame


def is_framed(data: Column, *, may_be_empty: bool = False) -> Column:
    """Return whether messages are in the format, with a body unless that may be empty."""
    length = F.octet_length(data)
    has_body = length >= FRAME_BYTES if may_be_empty else length > FRAME_BYTES
    return has_body & (F.substring(data, 1, len(MAGIC)) == F.lit(MAGIC))


def body(data: Column) -> Column:
    """Return what follows the frame."""
    return F.substring(data, F.lit(FRAME_BYTES + 1), F.octet_length(data))


def id_bytes(data: Column) -> Column:
    """Return the four bytes of the schema id."""
    return F.substring(data, len(MAGIC) + 1, FRAME_BYTES - len(MAGIC))


def names_one_of(ids: Collection[int], data: Column) -> Column:
    """Return whether framed messages name one of the schema ids."""
    if not ids:
        return F.lit(False)
    return id_bytes(data).isin([frame(id_)[len(MAGIC) :] for id_ in sorted(ids)])


def by_schema_id(data: Column, ids: Iterable[int], then: Callable[[int], Column]) -> Column:
    """Return what `then` makes of the schema id that a message names; null where it names none of these.

    Args:
        data: The messages.
        ids: The known schema ids, at least one.
        then: Makes the column for one of them.
    """
    prefix = F.substring(data, 1, FRAME_BYTES)
    first, *others = [(prefix == F.lit(frame(id_)), then(id_)) for id_ in sorted(ids)]
    return reduce(lambda chain, branch: chain.when(*branch), others, F.when(*first))
