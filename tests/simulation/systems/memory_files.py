"""Files in memory, for pyiceberg's own metadata code."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.manifest
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile, PartitionFieldSummary
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import Record

_files: dict[str, bytes | TableMetadata] = {}
"""Content of each file; of a metadata file that nobody has read, what it will contain."""

_rows: dict[str, tuple[Sequence[Any], float]] = {}
"""Rows and time of each data file."""

_records: dict[str, Sequence[Any]] = {}
"""Records of each manifest and manifest list."""

RECORD_BYTES = 100
"""Size of a record in a manifest, which has no bytes here."""


@contextmanager
def empty_store() -> Iterator[None]:
    """Begin without files, and drop those that were written."""
    stores = _files, _rows, _records
    for store in stores:
        store.clear()
    try:
        yield
    finally:
        for store in stores:
            store.clear()


def write_metadata(location: str, metadata: TableMetadata) -> None:
    """Write a metadata file, which is serialized when somebody reads it."""
    _files[location] = metadata


def _content(location: str) -> bytes:
    if location not in _files:
        raise FileNotFoundError(location)
    content = _files[location]
    if not isinstance(content, bytes):
        content = _files[location] = content.model_dump_json(exclude_none=True).encode()
    return content


def write_data(path: str, rows: Sequence[Any], at: float) -> int:
    """Write a data file: rows in memory, and a Parquet file of their places. Return the size of the latter."""
    places = tuple((row.record.partition, row.record.offset) for row in rows)
    _rows[path], _files[path] = (tuple(rows), at), _parquet(places)
    return len(_parquet(places))


def data_rows(path: str) -> Sequence[Any]:
    """Return the rows of a data file.

    Raises:
        FileNotFoundError: The file was deleted.
    """
    if path not in _files:
        raise FileNotFoundError(path)
    return _rows[path][0]


def exists(path: str) -> bool:
    """Return whether a file exists."""
    return path in _files


def delete_data(paths: Iterable[str]) -> None:
    """Delete data files."""
    for path in paths:
        _files.pop(path, None)


def old_data(location: str, before: float) -> set[str]:
    """Return the data files under a location that were written before a time."""
    return {path for path, (_, at) in _rows.items() if path.startswith(f"{location}/") and at < before} & _files.keys()


@functools.lru_cache(maxsize=10_000)
def _parquet(places: Sequence[tuple[int, int]]) -> bytes:
    """Return a file of rows: the columns that both tables and dead letters have for their places."""
    file, (partitions, offsets) = io.BytesIO(), zip(*places, strict=True) if places else ((), ())
    place = {"partition": pa.array(partitions, pa.int32()), "offset": pa.array(offsets, pa.int64())}
    of_letters = pa.StructArray.from_arrays(list(place.values()), list(place))
    columns = {f"kafka_{name}": values for name, values in place.items()}
    pq.write_table(pa.table(columns | {"source_record": of_letters}), file)
    return file.getvalue()


class RecordWriter:
    """Writes a file of records: the interface of pyiceberg's AvroOutputFile, without the encoding."""

    def __init__(self, output_file: OutputFile, **schemas: Any):
        self.output_file, self._written = output_file, list[ManifestEntry]()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *error: object) -> None:
        location = self.output_file.location
        _records[location], _files[location] = self._written, bytes(RECORD_BYTES * len(self._written))

    def __class_getitem__(cls, record: type) -> type[RecordWriter]:
        return cls

    def write_block(self, records: Sequence[Any]) -> None:
        """Append records, which are copied when they are read."""
        self._written += records

    def tell(self) -> int:
        """Return the size so far."""
        return RECORD_BYTES * len(self._written)


class RecordReader:
    """Reads a file of records: the interface of pyiceberg's AvroFile."""

    def __init__(self, input_file: InputFile, *schemas: Any, **types: Any):
        self._location = input_file.location

    def __enter__(self) -> Iterator[Any]:
        _content(self._location)
        return map(copied, _records[self._location])

    def __exit__(self, *error: object) -> None:
        pass

    def __class_getitem__(cls, record: type) -> type[RecordReader]:
        return cls


def copied(record: Any) -> Any:
    """Return a copy of a record and of the records in its fields."""
    # An instance check of pyiceberg's protocol takes longer than the copy.
    return type(record)(*[copied(value) if type(value) in RECORDS else value for value in record._data])


RECORDS = {Record, ManifestEntry, DataFile, ManifestFile, PartitionFieldSummary}
"""The types of records."""


RECORD_FILES: dict[Any, dict[str, Any]] = {
    pyiceberg.manifest: {"AvroOutputFile": RecordWriter, "AvroFile": RecordReader},
    ManifestFile: {"__copy__": copied},
}
"""Manifests and manifest lists whose records are kept as they are; pyiceberg's code before and after is real."""


class MemoryFile(InputFile, OutputFile):
    """A file that becomes visible when it is closed.

    Attributes:
        on_read: Called before a metadata file is read.
    """

    on_read: Callable[[], None] = staticmethod(lambda: None)

    def __len__(self) -> int:
        return len(_content(self.location))

    def exists(self) -> bool:
        """Return whether the file was written."""
        return self.location in _files

    def open(self, seekable: bool = True) -> io.BytesIO:
        """Open the file for reading."""
        if self.location.endswith(".metadata.json"):
            self.on_read()
        return io.BytesIO(_content(self.location))

    def create(self, overwrite: bool = False) -> io.BytesIO:
        """Open the file for writing."""
        return _Writing(self.location)

    def metadata(self) -> TableMetadata:
        """Return the metadata in the file as it was written, without its serialization.

        Raises:
            FileNotFoundError: There is no such file.
        """
        self.on_read()
        if self.location not in _files:
            raise FileNotFoundError(self.location)
        content = _files[self.location]
        return TableMetadataUtil.parse_raw(content.decode()) if isinstance(content, bytes) else content

    def to_input_file(self) -> MemoryFile:
        """Return the file for reading."""
        return self


class _Writing(io.BytesIO):
    def __init__(self, location: str):
        super().__init__()
        self._location = location

    def close(self) -> None:
        if not self.closed:
            _files[self._location] = self.getvalue()
        super().close()


class MemoryFileIO(FileIO):
    """Files by location; `on_read` is called before a metadata file is read."""

    on_read: Callable[[], None] = staticmethod(lambda: None)

    def new_input(self, location: str) -> MemoryFile:
        """Return a file for reading."""
        file = MemoryFile(location)
        file.on_read = self.on_read
        return file

    def new_output(self, location: str) -> MemoryFile:
        """Return a file for writing."""
        return MemoryFile(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        _files.pop(location if isinstance(location, str) else location.location, None)
