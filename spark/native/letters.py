"""Write records that certainly are dead letters to files of their table, in the tasks of the compiled decoder.

The other records that become no rows are left to the reference decoder, which decides about them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.tables import letter_columns
from lakehouse.core.tables.letter_columns import REASON_NUMBERS, REASONS
from lakehouse.formats.avro.avro_explain import Explainer
from lakehouse.formats.mistaken_format import document_fault
from lakehouse.formats.schema import FRAME_BYTES, HEADERS, schema_id
from lakehouse.pipeline.engine_values import LetterOrigin
from spark.native.places import Places

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from lakehouse.pipeline.engine_values import Decoding
    from lakehouse.pipeline.row_files import LetterTable
    from spark.codecs.avro_codec import AvroCodec

MAX_ID = 2**31 - 1
"""The largest schema id that the column of dead letters holds."""

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
"""Names by the number of a record's timestamp type, as Spark's Kafka source has it."""


Record = Mapping[str, Any]
"""A record, in the columns of Spark's Kafka source with timestamps in milliseconds."""

Letter = tuple[Record, str, str | None]
"""A dead letter: its record, the reason, and its explanation."""


@dataclass(frozen=True)
class LetterWriter:
    """Makes records rows of the table of dead letters."""

    origin: LetterOrigin
    places: Places
    """Those of the table of dead letters, which has no partitions."""
    columns: pa.Schema
    """Its columns, with their field ids."""
    explainers: Mapping[int, Explainer]
    """Explains values by their schema ids. Records with other ids are left."""

    @staticmethod
    def of(letters: LetterTable, decoding: Decoding[AvroCodec]) -> LetterWriter:
        """Return the writer of a table of dead letters, which has no partitions.

        Args:
            letters: The table, and the origin of the records.
            decoding: The instructions.
        """
        table, schema = letters.table, letters.table.schema()
        places = Places(table.location_provider(), table.spec(), schema)
        return LetterWriter(letters.origin, places, schema.as_arrow(), explainers_of(decoding))

    def table(self, letters: Sequence[Letter]) -> pa.Table:
        """Return dead letters as rows of their table, column by column, because rows of Python take long."""
        records, reasons, faults = zip(*letters, strict=True)
        values = [record["value"] for record in records]
        ids = [None if value is None else schema_id(value) for value in values]
        source = {field.name: [record.get(field.name) for record in records] for field in letter_columns.RECORD}
        source["topic"] = [self.origin.topic] * len(letters)
        source["timestamp"] = [record["timestamp"] * 1000 for record in records]
        source["timestamp_type"] = [TIMESTAMP_TYPES[record["timestampType"]] for record in records]
        fields = list(self.columns.field("source_record").type)
        columns = {name: [value] * len(letters) for name, value in self.origin.columns.items()} | {
            "error_timestamp": [datetime.now(UTC)] * len(letters),
            "error_code": [REASON_NUMBERS[reason] for reason in reasons],
            "error_reason": reasons,
            "error_message": [
                f"{REASONS[reason]}: {fault}" if fault else REASONS[reason]
                for reason, fault in zip(reasons, faults, strict=True)
            ],
            "error_details": [[] if value is None else [("bytes", str(len(value)))] for value in values],
            "source_record": pa.StructArray.from_arrays(
                [pa.array(source[field.name], field.type) for field in fields], fields=fields
            ),
            "schema_id": [id_ if id_ is not None and id_ <= MAX_ID else None for id_ in ids],
            "attempts": [1] * len(letters),
            "redriven_timestamp": [None] * len(letters),
        }
        arrays = [pa.array(columns[field.name], field.type) for field in self.columns]
        return pa.Table.from_arrays(arrays, schema=self.columns)


class LetterFile:
    """A file of dead letters that a task writes, in parts."""

    def __init__(self, writer: LetterWriter, name: str, files: FileIO) -> None:
        """
        Args:
            writer: Makes records rows of the table of dead letters.
            name: The name of the file, which is created with the first dead letter.
            files: The client of files.
        """
        self._writer, self._rows = writer, 0
        self._path = writer.places.location(name, "")
        self._output = files.new_output(self._path)
        self._footers: list[pq.FileMetaData] = []
        self._stream: Any = None
        self._parquet: pq.ParquetWriter | None = None

    def add(self, records: Sequence[Record]) -> list[Record]:
        """Write the dead letters among records, and return the records that are left.

        Raises:
            RuntimeError: They cannot be written. The text has no value.
        """
        letters, left = [], []
        for record in records:
            if reason := reason_of(record, self._writer.explainers):
                letters.append((record, *reason))
            else:
                left.append(record)
        if letters:
            try:
                self._write(self._writer.table(letters))
            except pa.ArrowException as error:
                raise RuntimeError(f"dead letters cannot be written ({type(error).__name__})") from None
        return left

    def _write(self, table: pa.Table) -> None:
        if self._parquet is None:
            self._stream = self._output.create(overwrite=True)
            self._parquet = pq.ParquetWriter(
                self._stream, table.schema, compression="zstd", metadata_collector=self._footers
            )
        self._parquet.write_table(table)
        self._rows += table.num_rows

    def closed(self) -> list[dict[str, Any]]:
        """Complete the file, and return it as tasks of the compiled decoder do (spark.native.task); nothing without
        dead letters."""
        if self._parquet is None:
            return []
        self._parquet.close()
        size = self._stream.tell()
        self._stream.close()
        footer = io.BytesIO()
        self._footers[0].write_metadata_file(footer)
        file = {"path": self._path, "rows": self._rows, "bytes": size, "footer": footer.getvalue()}
        return [{**file, "partition": [], "bounds": []}]


def explainers_of(decoding: Decoding[AvroCodec]) -> dict[int, Explainer]:
    """Return what explains values, by the schema ids of which nothing but the value decides about a record."""
    codec, others = decoding.value, decoding.other_type_ids | decoding.unfit_ids | decoding.conflicts.keys()
    return {id_: Explainer(wrote, codec.reader) for id_, wrote in codec.writers.items() if id_ not in others}


def reason_of(record: Record, explainers: Mapping[int, Explainer]) -> tuple[str, str | None] | None:
    """Return the reason why a record certainly is a dead letter, and its explanation; None if it is left.

    It is certain without a value, or a schema id, or if the value does not decode with the schema that it names. All
    else is left: schemas that are not known, ids in headers, and values that `Explainer` does not refuse.

    Args:
        record: A record that the compiled decoder does not make a row.
        explainers: See `explainers_of`.
    """
    value = record["value"]
    if any(header["key"] == HEADERS["value"] for header in record["headers"] or ()):
        return None
    if value is None:
        return "null_value", None
    if (id_ := schema_id(value)) is None:
        return "not_framed", document_fault(value)
    fault = explainers[id_].fault(value, FRAME_BYTES) if id_ in explainers else None
    return ("undecodable", fault) if fault else None
