"""Decide about change events with regard to each other and to the tables of rows and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.core.sql import SPARK
from lakehouse.pipeline.engine_values import Decoding
from spark.decoding import change_events, decode
from spark.decoding.change_events import Before, Summary
from spark.decoding.decode import Codec
from spark.decoding.decoded import PREFIX
from spark.derive import published
from spark.tables import dead_letters, merge, places


@dataclass(frozen=True)
class RelatedEvents:
    """Change events.

    Attributes:
        session: The Spark session.
        alone: The events, each decided by itself.
        with_old_keys: Returns them with `old_key`, for which the headers are read.
        decoding: The instructions.
        of_log: Whether they are of the log, so that earlier ones may be dead letters. Otherwise they are all dead
            letters.
    """

    session: SparkSession
    alone: DataFrame
    with_old_keys: Callable[[], DataFrame]
    decoding: Decoding[Codec]
    of_log: bool

    @cached_property
    def summary(self) -> Summary:
        """The events that others depend on. They are read once for it."""
        return change_events.summary(self.alone)

    @cached_property
    def frame(self) -> DataFrame:
        """The events, decided with regard to each other."""
        summary, events = self.summary, self.alone
        events = self.with_old_keys() if summary.moved else events.drop(PREFIX + "old_key")
        if summary.truncate is not None:
            events = change_events.with_truncated(events, summary.truncate)
        if summary.incomplete:
            known = self.decoding.known
            before = Before(self._rows, self._letters, has_events=known is not None and known.has_batch)
            names = decode.omittable(self._types, self.decoding)
            events = change_events.completed(events, self.decoding.key_columns, names, before)
            # A plan with all steps until a merge nests deeper than the messages of Spark Connect may.
            events = events.localCheckpoint()
        return decode.checked(events, self.decoding)

    @cached_property
    def _types(self) -> dict[str, T.DataType]:
        return {field.name: field.dataType for field in self.alone.schema}

    def _rows(self, wanted: DataFrame, names: Sequence[str]) -> DataFrame | None:
        known, key = self.decoding.known, self.decoding.key_columns
        if known is None or self.summary.truncate is not None:
            return None
        table = published(self.session, known.ref, known.snapshot_id, {})
        types = {field.name: field.dataType for field in table.schema}
        if not {*key} <= types.keys():
            return None
        columns = [F.col(SPARK.identifier(name)) for name in key]
        # A key that the table's type does not represent is no row's.
        wanted = wanted.select(*(c.try_cast(types[n]).alias(n) for n, c in zip(key, columns, strict=True))).na.drop()
        if wanted.isEmpty():
            return None
        held = [name for name in names if types.get(name) == self._types[name]]
        in_span = table.alias("table").filter(merge.in_span(wanted, "table", key))
        rows = in_span.join(F.broadcast(wanted), [*key], "left_semi")
        values = [*columns, *(F.col(SPARK.identifier(name)) for name in held)]
        return rows.select(*values, *_place(places.in_rows(known.place))).localCheckpoint()

    def _letters(self) -> DataFrame | None:
        known = self.decoding.known
        if (
            known is None
            or not self.of_log
            or not self.session.catalog.tableExists(known.ref.dead_letters.spark_path())
        ):
            return None
        earlier = replace(known.batch, end=known.batch.start)
        letters = dead_letters.earlier(self.session.table(known.ref.dead_letters.spark_path()), earlier)
        # Only their keys are read, because a value may abort the job.
        letters = letters.withColumn("value", F.lit(None).cast("binary"))
        keyed = decode.decode(letters, replace(self.decoding, reads_header_ids=True))
        key = [F.col(SPARK.identifier(name)) for name in self.decoding.key_columns]
        # The same as for completed events.
        return keyed.select(*key, *_place(places.in_decoded())).localCheckpoint()


def _place(columns: places.PlaceColumns) -> list[Column]:
    """Return the columns by the names of decoded records."""
    return [columns.partition.alias(PREFIX + "partition"), columns.offset.alias(PREFIX + "offset")]
