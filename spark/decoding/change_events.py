"""Decide about change events with regard to each other and to the table.

A truncate supersedes the events before it. An update has a placeholder for values that it leaves unchanged; the row
gets them from the event before it, or from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.core.row_lineage import Event, lineages
from lakehouse.core.sql import SPARK
from spark.decoding.conditions import is_true, some
from spark.decoding.decoded import PREFIX, record

PLACE = "partition", "offset"
"""Technical columns that identify an event."""

LINEAGE, NUMBER, MOMENT, IS_STORED, IS_LATER, KEY, OLD_KEY, ROW, IS_UNKNOWN, IS_SUPERSEDED = (
    f"{PREFIX}{name}"
    for name in (
        *("lineage", "number", "moment", "is_stored", "is_later", "key_text", "old_key_text"),
        *("stored_row", "is_unknown", "is_superseded"),
    )
)
"""Columns of events: the row that they are of if its key changes, their order in a partition and in several, whether
they are rows of the table, and later than events, the key and old key in text, the table's row of the key, whether they
omit an unknown value, and whether a later event of the key does not need it."""


@dataclass(frozen=True)
class Summary:
    """Events that other ones depend on.

    Attributes:
        truncate: The offset of the last one that deletes all rows; None if there is none. Only a topic with one
            partition can have one, so offsets are comparable.
        incomplete: Whether there are some without all values.
        moved: Whether some of those have another key than their row had.
    """

    truncate: int | None
    incomplete: bool
    moved: bool


@dataclass(frozen=True)
class Before:
    """The state before the events.

    Attributes:
        rows: Returns the rows of the table with the keys of a query, which has the key columns, as a query of key
            columns, further columns of the table, and `partition` and `offset` as decoded records have them.
        letters: Returns the dead letters of earlier records, as a query of key columns and place; None if there are
            none.
        has_events: Whether the rows are those after the events, which are read again.
    """

    rows: Callable[[DataFrame, Sequence[str]], DataFrame | None]
    letters: Callable[[], DataFrame | None]
    has_events: bool


def summary(events: DataFrame) -> Summary:
    """Return which events others depend on."""
    is_truncate, is_incomplete = record("truncate") & _is_good(), _is_incomplete()
    totals = (
        F.max(F.when(is_truncate, record("offset"))),
        F.count_if(is_incomplete),
        F.count_if(is_incomplete & record("created")),
    )
    [(truncate, incomplete, moved)] = events.agg(*totals).collect()
    return Summary(truncate, incomplete > 0, moved > 0)


def with_truncated(events: DataFrame, truncate: int) -> DataFrame:
    """Mark the events before the last one that deletes all rows, given by its offset."""
    return events.withColumn(PREFIX + "truncated", record("offset") < truncate)


def completed(events: DataFrame, key: Sequence[str], omittable: Sequence[str], before: Before) -> DataFrame:
    """Return the events with the values that they leave unchanged; those whose values are unknown are dead letters.

    Args:
        events: The events, with `old_key` if some have another key than their row had.
        key: The names of the key columns.
        omittable: The names of the columns that an event may omit.
        before: The state before the events.
    """
    columns, types = events.columns, {field.name: field.dataType for field in events.schema}
    stored_rows, moves = _stored(events, key, omittable, before), _moves(events, key)
    placed = events.withColumns({IS_STORED: F.lit(False), NUMBER: record("offset"), LINEAGE: F.lit(None).cast("int")})
    if moves is not None:
        of_events, of_keys = moves
        joined = placed.drop(NUMBER, LINEAGE).join(F.broadcast(of_events), [PREFIX + name for name in PLACE], "left")
        placed = joined.withColumn(NUMBER, F.coalesce(NUMBER, record("offset")))
    if stored_rows is not None:
        lineage = F.lit(None).cast("int").alias(LINEAGE)
        if moves is not None:
            stored_rows = stored_rows.withColumn(KEY, F.to_json(F.struct(*map(_column, key))))
            stored_rows, lineage = stored_rows.join(F.broadcast(of_keys), KEY, "left"), F.col(LINEAGE)
        values = [
            (_column(name) if name in stored_rows.columns else F.lit(None)).cast(type_).alias(name)
            for name, type_ in types.items()
        ]
        stored = stored_rows.select(*values, F.lit(True).alias(IS_STORED), lineage)
        # If the events are read again, a row may be the result of one of them, and is no state before that one.
        order = F.when(F.col(LINEAGE).isNull() & F.lit(before.has_events), record("offset")).otherwise(-1)
        placed = placed.unionByName(stored.withColumn(NUMBER, order.cast("long")))
    lineage = F.col(LINEAGE)
    identity = [lineage, *(F.when(lineage.isNull(), _column(name)) for name in key)]
    # Events of a key are in one partition, unless partitions were added; then timestamps order them.
    of_row = Window.partitionBy(*identity)
    is_divided = F.min(record("partition")).over(of_row) != F.max(record("partition")).over(of_row)
    moment = F.when(is_divided & lineage.isNull(), record("timestamp"))
    first = F.min(F.when(~F.col(IS_STORED), record("offset"))).over(of_row)
    is_later = F.col(IS_STORED) & lineage.isNotNull() & (record("offset") >= first) & F.lit(before.has_events)
    placed = placed.withColumns({MOMENT: moment, IS_LATER: is_true(is_later)})
    so_far = of_row.orderBy(MOMENT, NUMBER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    known_values: dict[str, Column] = {}
    unknown: list[Column] = []
    for name in omittable:
        known = F.last(_state(name, types[name], _omits(name)), ignorenulls=True).over(so_far)["value"]
        known_values[name] = known.alias(f"{PREFIX}known_{len(known_values)}")
    placed = placed.select("*", *known_values.values())
    # If the events are read again, the table has what they left unchanged.
    is_applied = F.col(IS_STORED) & F.lit(before.has_events)
    row = F.struct(*(record(name).alias(name) for name in PLACE), F.struct(*map(_column, omittable)).alias("values"))
    row = F.first(F.when(is_applied, row), ignorenulls=True).over(Window.partitionBy(*map(_column, key)))
    placed, row = placed.withColumn(ROW, row), F.col(ROW)
    has_event = is_true((row["partition"] == record("partition")) & (row["offset"] >= record("offset")))
    results = {name: _column(name) for name in columns}
    for number, name in enumerate(omittable):
        known = F.coalesce(F.col(f"{PREFIX}known_{number}"), F.when(has_event, row["values"][name]))
        results[name] = F.when(_omits(name), known).otherwise(_column(name))
        unknown.append(_omits(name) & known.isNull())
    placed = placed.filter(~F.col(IS_STORED)).withColumn(IS_UNKNOWN, _is_good() & some(unknown))
    # A later event of the key may not need what is unknown: the row does not depend on this one then.
    later = F.max(F.when(_is_good() & ~F.col(IS_UNKNOWN), record("offset")))
    is_superseded = is_true(later.over(Window.partitionBy(*map(_column, key), record("partition"))) > record("offset"))
    results[PREFIX + "truncated"] = record("truncated") | (F.col(IS_UNKNOWN) & F.col(IS_SUPERSEDED))
    is_dead = F.col(IS_UNKNOWN) & ~F.col(IS_SUPERSEDED)
    results[PREFIX + "reason"] = F.when(is_dead, "unchanged_value").otherwise(record("reason"))
    placed = placed.withColumn(IS_SUPERSEDED, is_superseded)
    return placed.select(*(column.alias(name) for name, column in results.items()))


def _state(name: str, type_: T.DataType, is_omitted: Column) -> Column:
    """Return what an event says about a column, as a struct whose value is null if it is unknown; null for nothing."""
    value = F.struct(_column(name).alias("value"))
    nothing, unknown = (
        F.lit(None).cast(value_type := T.StructType([T.StructField("value", type_)])),
        F.struct(F.lit(None).cast(type_).alias("value")).cast(value_type),
    )
    is_moved = F.col(LINEAGE).isNotNull()
    return (
        F.when(F.col(IS_LATER), nothing)
        .when(F.col(IS_STORED), value)
        .when(is_true(record("filtered")), nothing)
        .when(is_true(record("reason").isNotNull() | record("truncated")), unknown)
        .when(record("tombstone"), F.when(~is_moved, unknown))
        .when(is_omitted, F.when(record("created") & ~is_moved, unknown))
        .otherwise(value)
    )


def _stored(events: DataFrame, key: Sequence[str], names: Sequence[str], before: Before) -> DataFrame | None:
    """Return the rows of the table that events complete their rows from, except those older than a dead letter of
    their key: its values are unknown."""
    incomplete = events.filter(_is_incomplete())
    wanted = incomplete.select(*map(_column, key))
    if PREFIX + "old_key" in events.columns:
        old = incomplete.filter(record("old_key").isNotNull()).select(f"{PREFIX}old_key.*")
        wanted = wanted.unionByName(old)
    rows = before.rows(wanted.distinct().localCheckpoint(), names)
    letters = before.letters() if rows is not None else None
    if rows is None or letters is None:
        return rows
    row, letter = rows.alias("row"), letters.alias("letter")
    same = [F.col(SPARK.identifier("row", name)) == F.col(SPARK.identifier("letter", name)) for name in key]
    partitions, offsets = (
        [F.col(f"{alias}.{PREFIX}{name}") for alias in ("row", "letter")] for name in ("partition", "offset")
    )
    is_older = (partitions[0] != partitions[1]) | (offsets[0] < offsets[1])
    return row.join(letter, reduce(and_, same) & is_older, "left_anti")


def _moves(events: DataFrame, key: Sequence[str]) -> tuple[DataFrame, DataFrame] | None:
    """Return the rows of the events whose key changes, by place and by first key; None if there are none."""
    if PREFIX + "old_key" not in events.columns:
        return None
    session, text, old_text = events.sparkSession, F.to_json(F.struct(*map(_column, key))), F.to_json(record("old_key"))
    moved = events.filter(_is_incomplete() & record("created") & record("old_key").isNotNull())
    keys = {one for pair in moved.select(text, old_text).distinct().collect() for one in pair}
    if not keys:
        return None
    named = events.withColumn(KEY, text).withColumn(OLD_KEY, F.when(_is_good() & record("created"), old_text))
    known_keys = session.createDataFrame([(one,) for one in keys], f"{KEY} string")
    of_keys = named.join(F.broadcast(known_keys), KEY, "left_semi")
    of_keys = of_keys.filter(~is_true(record("filtered")) & record("value").isNotNull())
    fields = (
        record("partition"),
        record("offset"),
        F.col(KEY),
        F.col(OLD_KEY),
        record("tombstone"),
        record("position"),
    )
    rows = lineages(Event(*row) for row in of_keys.select(*fields).collect())
    places = [(*place, *row) for place, row in rows.of_events.items()]
    place = f"{PREFIX}partition int, {PREFIX}offset long, {LINEAGE} int, {NUMBER} long"
    return (
        session.createDataFrame(places, place),
        session.createDataFrame([*rows.of_keys.items()], f"{KEY} string, {LINEAGE} int"),
    )


def _omits(name: str) -> Column:
    return is_true(F.array_contains(record("unchanged"), F.lit(name)))


def _is_good() -> Column:
    return record("reason").isNull() & ~is_true(record("filtered"))


def _is_incomplete() -> Column:
    return is_true(_is_good() & (F.size(record("unchanged")) > 0) & ~record("truncated"))


def _column(name: str) -> Column:
    return F.col(SPARK.identifier(name))
