"""Ingest a sample by the compiled decoder and by the reference decoder, and compare everything that both write."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.core.text import pluralize
from lakehouse.pipeline.batches.batch_plan import PrepareTable, StagedBatch, StageRows
from lakehouse.pipeline.batches.dry_run import sampled
from lakehouse.pipeline.batches.poison import listed
from lakehouse.pipeline.batches.row_differences import row_differences
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.audit import CheckResult
from lakehouse.pipeline.commits.footers import added_files
from lakehouse.pipeline.engine_values import Place
from lakehouse.pipeline.row_files import NoRowFiles
from lakehouse.pipeline.schemas import header_ids
from resources.iceberg.commits import dropped_error
from resources.iceberg.snapshots import history

MOST_SHOWN = 5
"""Maximum number of differences in a message."""

MOST_REASONS = 10_000
"""Maximum number of rejected records whose reasons are compared; of all of them, the places are."""


def compare_paths(namespace: str, topic: Topic, clients: Clients, records: int) -> list[CheckResult]:
    """Ingest the newest records of a topic by both decoders into a branch, compare them there, and drop the branch.

    Rejected records do not end the comparison, whatever the topic's policy is. main and the stored offsets are
    unchanged, as in a dry run. All rows of both are in memory.

    Args:
        namespace: The namespace of the table.
        topic: The topic.
        clients: Clients of the systems.
        records: The maximum number of offsets to read, from all partitions together.

    Returns:
        A result for each property: the counts, rejected records, rows, and the fields, statistics, partitions and sort
        order of files. Messages have places and names of columns, and no values.

    Raises:
        ConfigError: Executors do not have the compiled decoder.
        LakehouseError: The compiled decoder does not read the records, or the topic cannot be read or decoded.
        Unreachable: A system does not answer.
    """
    tolerant = topic.model_copy(update={"errors": "log"})
    with sampled(namespace, tolerant, clients, records) as (context, branch):
        if not context.batch.offsets:
            return [CheckResult("rows", True, "the topic has no records")]
        reads_header_ids = header_ids.are_known(context.table)
        context = replace(context, schemas=replace(context.schemas, reads_header_ids=reads_header_ids))
        table = PrepareTable(context).run()
        files = context.row_files(table, required=True)
        if isinstance(files, NoRowFiles):
            raise LakehouseError(
                f"The compiled decoder does not write these records of '{topic.name}': {files.reason}. Nothing was "
                f"compared, and no row was changed. See docs/native.md for what it supports, and run `lakehouse "
                f"dry-run {topic.name}` to check the records by the reference decoder"
            )
        staging = StageRows(context, branch)
        compiled = _Path.of(staging.stage(table, files), clients)
        reference = _Path.of(staging.stage(compiled.table, NoRowFiles("comparison")), clients)
        place = topic.metadata.place
        return [
            _result("counts", compiled.counts, reference.counts),
            _result("rejected_records", compiled.rejected, reference.rejected),
            _rows_result(row_differences(compiled.rows, reference.rows, place), compiled, reference),
            _result("field_ids", compiled.fields, reference.fields),
            _result("value_counts", compiled.sums("value_counts"), reference.sums("value_counts")),
            _result("null_counts", compiled.sums("null_value_counts"), reference.sums("null_value_counts")),
            _result("nan_counts", compiled.sums("nan_value_counts"), reference.sums("nan_value_counts")),
            _result("lower_bounds", compiled.bounds("lower_bounds", min), reference.bounds("lower_bounds", min)),
            _result("upper_bounds", compiled.bounds("upper_bounds", max), reference.bounds("upper_bounds", max)),
            _result("partition_values", compiled.partitions, reference.partitions),
            _result("sort_order", compiled.sort_orders, reference.sort_orders),
        ]


@dataclass(frozen=True)
class _Path:
    """Rows and files of one decoder."""

    batch: StagedBatch
    table: Table
    """The table with the branch, as of the end of the write."""
    files: Sequence[DataFile]
    """The data files that the write added."""

    @staticmethod
    def of(batch: StagedBatch, clients: Clients) -> _Path:
        table = clients.catalog.load(batch.context.ref)
        target = batch.stage.target
        if table is None or target.branch not in table.metadata.refs:
            raise dropped_error(str(target.ref))
        newest = table.metadata.refs[target.branch].snapshot_id
        snapshots = takewhile(lambda snapshot: snapshot.snapshot_id != batch.stage.start, history(table, newest))
        return _Path(batch, table, [file for snapshot in snapshots for file in added_files(table, snapshot)])

    @property
    def counts(self) -> Mapping[str, int]:
        return vars(self.batch.counts)

    @property
    def rejected(self) -> Mapping[str, Hashable]:
        """The reasons of rejected records by place, and the set of all of them."""
        faults = self.batch.context.decided().first_faults(MOST_REASONS)
        reasons: dict[str, Hashable] = {listed([(partition, offset)]): reason for partition, offset, reason in faults}
        return reasons | {"the places of all": self.batch.written.dead}

    @cached_property
    def rows(self) -> pa.Table:
        empty = self.table.schema().as_arrow().empty_table()
        return pa.concat_tables([pq.read_table(file) for file in self._opened()]) if self.files else empty

    @property
    def fields(self) -> Mapping[str, Hashable]:
        """The ids, types and nullability of the fields of all files, by path."""
        fields: dict[str, set[Hashable]] = defaultdict(set)
        for file in self._opened():
            for path, field in _fields(pq.read_schema(file)):
                fields[path].add((*(field.metadata or {}).items(), str(field.type), field.nullable))
        return {path: frozenset(shapes) for path, shapes in fields.items()}

    def sums(self, statistic: str) -> Mapping[str, int]:
        """Return the sum of a statistic of all files, by path of the field."""
        total: Counter[int] = Counter()
        for file in self.files:
            total.update(getattr(file, statistic) or {})
        return {self._name(id_): number for id_, number in total.items()}

    def bounds(self, statistic: str, of: Callable[[list[Any]], Any]) -> Mapping[str, Hashable]:
        """Return the least or the greatest bound of all files, by path of the field."""
        bounds: dict[int, list[Any]] = defaultdict(list)
        for file in self.files:
            for id_, bound in (getattr(file, statistic) or {}).items():
                type_ = self.table.schema().find_type(id_)
                assert isinstance(type_, PrimitiveType), "no other types have bounds"
                bounds[id_].append(from_bytes(type_, bound))
        return {self._name(id_): of(values) for id_, values in bounds.items()}

    @property
    def partitions(self) -> Mapping[str, int]:
        """The number of rows by partition."""
        return self._rows_by(lambda file: f"spec {file.spec_id}, partition {file.partition}")

    @property
    def sort_orders(self) -> Mapping[str, int]:
        """The number of rows by sort order. Files without an id are not sorted (Iceberg specification, Sort Orders)."""
        return self._rows_by(lambda file: f"sort order {file.sort_order_id or 0}")

    def _rows_by(self, group: Callable[[DataFile], str]) -> Mapping[str, int]:
        rows: Counter[str] = Counter()
        for file in self.files:
            rows[group(file)] += file.record_count
        return rows

    def _opened(self) -> Iterator[Any]:
        for file in self.files:
            with self.table.io.new_input(file.file_path).open() as opened:
                yield opened

    def _name(self, field_id: int) -> str:
        return self.table.schema().find_column_name(field_id) or f"field {field_id}"


def _fields(fields: Iterable[pa.Field], within: str = "") -> Iterator[tuple[str, pa.Field]]:
    """Yield the fields and all fields in them, by path."""
    for field in fields:
        yield within + field.name, field
        inner = [field.type.field(place) for place in range(field.type.num_fields)]
        yield from _fields(inner, f"{within}{field.name}.")


def _result(check: str, compiled: Mapping[str, Hashable], reference: Mapping[str, Hashable]) -> CheckResult:
    names = sorted({*compiled, *reference})
    unequal = [name for name in names if compiled.get(name) != reference.get(name)]
    return _checked(check, unequal, f"equal: {', '.join(names[:MOST_SHOWN])}{_rest(names)}")


def _rows_result(differences: Mapping[Place, Sequence[str]], compiled: _Path, reference: _Path) -> CheckResult:
    unequal = [f"{listed([place])} ({', '.join(names) or 'the whole row'})" for place, names in differences.items()]
    numbers = compiled.rows.num_rows, len(compiled.rows.column_names)
    return _checked("rows", unequal, f"{pluralize(numbers[0], 'row')} of {pluralize(numbers[1], 'column')} are equal")


def _checked(check: str, unequal: Sequence[str], equal: str) -> CheckResult:
    numbers = {"differences": len(unequal)}
    message = f"differs at {'; '.join(unequal[:MOST_SHOWN])}{_rest(unequal)}" if unequal else equal
    return CheckResult(check, not unequal, message, numbers)


def _rest(names: Sequence[str]) -> str:
    return f" and {len(names) - MOST_SHOWN:,} more" if len(names) > MOST_SHOWN else ""
