"""The tasks of the compiled decoder, which run in Spark's Python workers.

A worker loads this module, the decoder, pyarrow and pyiceberg's client of files, which reads credentials of storage
from the worker's own environment if the catalog issues none. These and the login at the brokers are in the rows that a
task gets, which Spark shows nowhere.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark.native.letters import LetterFile, LetterWriter, Record

if TYPE_CHECKING:
    from spark.native.places import Places

VERSION_SCHEMA = "version string"
"""The columns of the result of `version`, in Spark SQL."""

FILES_SCHEMA = (
    "array<struct<path:string,partition:array<binary>,rows:bigint,bytes:bigint,footer:binary,"
    "bounds:array<struct<path:string,lower:double,upper:double,nans:bigint>>>>"
)
OUTCOME_SCHEMA = f"files {FILES_SCHEMA}, letters {FILES_SCHEMA}, spilled binary, fault string"
"""The columns of the result of `write`, in Spark SQL.

The data files with their partitions (Places.partition), sizes in bytes and footers, and with the bounds of columns of
floating-point numbers, which pyarrow does not read from the footer; the files of dead letters; the other records that
do not become rows as an Arrow stream; and the reason why a task could not read or write its ranges, else null.
"""

MAX_LEFT_BYTES = 8 << 20
"""Maximum bytes of the records of a task that are left to the reference decoder: the driver collects them."""

RECORD_BYTES = 100
"""Bytes that are added for each of these records and headers: objects of Python take hundreds more than they have."""

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
SPILLED = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(HEADER)),
    ]
)
"""The columns of Spark's Kafka source (Structured Streaming + Kafka Integration Guide)."""

BOUNDS = pa.struct([("path", pa.string()), ("lower", pa.float64()), ("upper", pa.float64()), ("nans", pa.int64())])
FILE = pa.struct(
    [
        ("path", pa.string()),
        ("partition", pa.list_(pa.binary())),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("footer", pa.binary()),
        ("bounds", pa.list_(BOUNDS)),
    ]
)
FILES = pa.list_(FILE)
OUTCOME = pa.schema([("files", FILES), ("letters", FILES), ("spilled", pa.binary()), ("fault", pa.string())])

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def version(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the version of the decoder that this worker has; null if it has none."""
    for _ in batches:
        yield pa.RecordBatch.from_pylist([{"version": _installed()}], pa.schema([("version", pa.string())]))


def _installed() -> str | None:
    try:
        import lakehouse_native
    except ImportError:
        return None
    return str(lakehouse_native.__version__)


def write(requests: Sequence[str], places: Places, topic: str, letters: LetterWriter | None) -> Task:
    """Return the function that handles requests.

    Its rows have the place of a request (`id`), the login at the brokers (`login`), and pyiceberg's properties of the
    files of both tables (`storage`, `letter_storage`), all as JSON texts with secrets.

    Args:
        requests: JSON texts for the decoder (native/src/range.rs).
        places: The locations of data files. Each task attempt writes files of other names.
        topic: The Kafka topic.
        letters: Writes dead letters; None if they are among the records that do not become rows.
    """

    def handle(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                outcome = _outcome(requests[row["id"]], row, places, topic, letters)
                yield pa.RecordBatch.from_pylist([outcome], OUTCOME)

    return handle


def _outcome(
    request: str, secrets: Mapping[str, str], places: Places, topic: str, letters: LetterWriter | None
) -> dict[str, Any]:
    import lakehouse_native
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = PyArrowFileIO(json.loads(secrets["storage"]))
    paths: list[str] = []
    folders: list[str] = []

    def create(values: Sequence[bytes | None]) -> Any:
        folders.append(places.folder(values))
        paths.append(places.location(f"{uuid.uuid4().hex}.parquet", folders[-1]))
        return io.new_output(paths[-1]).create(overwrite=True)

    letter_io = PyArrowFileIO(json.loads(secrets["letter_storage"]))
    letter_file = letters and LetterFile(letters, f"{uuid.uuid4().hex}.parquet", letter_io)
    others: list[Record] = []

    def spill(records: Sequence[Record]) -> None:
        others.extend(letter_file.add(records) if letter_file else records)
        if sum(map(_bytes, others)) > MAX_LEFT_BYTES:
            raise ValueError(f"records with more than {MAX_LEFT_BYTES} bytes are neither rows nor certain dead letters")

    try:
        files = lakehouse_native.decide(request, secrets["login"], create, spill)
        written = [{"path": path, **file} for path, file in zip(paths, files, strict=True)]
        of_letters = letter_file.closed() if letter_file else []
        return {"files": written, "letters": of_letters, "spilled": _as_stream(others, topic)}
    except (ArithmeticError, OSError, RuntimeError, ValueError) as error:
        # A file that was begun is an orphan. Its upload is completed, because pyarrow cannot abort one.
        fault = str(error) or type(error).__name__
        # A location has values of rows.
        for folder in filter(None, folders):
            fault = fault.replace(folder, "…")
        return {"fault": fault}


def _bytes(record: Record) -> int:
    """Return the bytes of a record's key, value and headers, and RECORD_BYTES for it and for each header."""
    headers = record["headers"] or ()
    of_headers = (part for header in headers for part in (header["key"], header["value"]))
    contents = (part for part in (record["key"], record["value"], *of_headers) if part is not None)
    return RECORD_BYTES * (1 + len(headers)) + sum(map(len, contents))


def _as_stream(spilled: Sequence[Record], topic: str) -> bytes:
    records = [{**record, "topic": topic, "timestamp": record["timestamp"] * 1000} for record in spilled]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SPILLED) as stream:
        stream.write_table(pa.Table.from_pylist(records, SPILLED))
    result: bytes = sink.getvalue().to_pybytes()
    return result
