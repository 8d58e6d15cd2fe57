"""The tasks of the compiled decoder, which run in Spark's Python workers.

A worker loads this module, the decoder, pyarrow and pyiceberg's client of files, which reads credentials of storage
from the worker's own environment. The login at the brokers is in the rows that a task gets, which Spark shows nowhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

VERSION_SCHEMA = "version string"
"""The columns of the result of `version`, in Spark SQL."""

OUTCOME_SCHEMA = (
    "path string, rows long, bytes long, footer binary, "
    "bounds array<struct<path:string,lower:double,upper:double,nans:bigint>>, spilled binary, fault string"
)
"""The columns of the result of `write`, in Spark SQL.

The path of the data file with its size in bytes and its footer, null if there are no rows; the bounds of columns of
floating-point numbers, which pyarrow does not read from the footer; the records that do not become
rows as an Arrow stream; and the reason why a task could not read or write its ranges, else null.
"""

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


def write(requests: Sequence[str], paths: Sequence[str], storage: Mapping[str, str], topic: str) -> Task:
    """Return the function that handles requests, given by their places and the login at the brokers: `id`, `login`.

    Args:
        requests: JSON texts for the decoder (native/src/range.rs).
        paths: The location of the data file of each request. Each task attempt adds its own suffix to the file name.
        storage: pyiceberg's properties of the files, without credentials.
        topic: The Kafka topic.
    """

    def handle(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield _outcome(requests[row["id"]], row["login"], paths[row["id"]], storage, topic)

    return handle


def _outcome(request: str, login: str, path: str, storage: Mapping[str, str], topic: str) -> pa.RecordBatch:
    import lakehouse_native
    from pyiceberg.io.pyarrow import PyArrowFileIO

    path = f"{path.removesuffix('.parquet')}-{uuid.uuid4().hex[:8]}.parquet"
    files: list[Any] = []

    def create() -> Any:
        files.append(PyArrowFileIO(dict(storage)).new_output(path).create(overwrite=True))
        return files[0]

    outcome: dict[str, Any]
    try:
        decided = lakehouse_native.decide(request, login, create)
        for file in files:
            file.close()
        spilled = _as_stream(decided["spilled"], topic)
        outcome = {"path": path, "rows": decided["rows"], "bytes": decided["size"], "footer": decided["footer"]}
        outcome |= {"bounds": decided["bounds"], "spilled": spilled, "fault": None}
    except (ArithmeticError, OSError, RuntimeError, ValueError) as error:
        # A file that was begun is an orphan. Its upload is completed, because pyarrow cannot abort one.
        outcome = {"path": path, "rows": 0, "fault": str(error) or type(error).__name__}
    names = [field.split()[0] for field in OUTCOME_SCHEMA.split(", ")]
    types = [pa.string(), pa.int64(), pa.int64(), pa.binary(), pa.list_(BOUNDS), pa.binary(), pa.string()]
    return pa.RecordBatch.from_pylist([outcome], pa.schema(list(zip(names, types, strict=True))))


def _as_stream(spilled: Sequence[Mapping[str, Any]], topic: str) -> bytes:
    records = [{**record, "topic": topic, "timestamp": record["timestamp"] * 1000} for record in spilled]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SPILLED) as stream:
        stream.write_table(pa.Table.from_pylist(records, SPILLED))
    result: bytes = sink.getvalue().to_pybytes()
    return result
