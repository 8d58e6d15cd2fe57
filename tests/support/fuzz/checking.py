"""Comparison of decoded cases with their expectations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from pyiceberg import types as iceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema

from lakehouse.core.errors import IncompatibleSchema, LakehouseError
from lakehouse.formats import evolution
from tests.support.fuzz.cells import differences
from tests.support.fuzz.decoding import LEFT, LETTER, UNEXPLAINED, Decoded, columns
from tests.support.fuzz.model import Case, Pair

COUNTS: Counter[str] = Counter()
"""Cases and records by outcome."""
ROWS: Counter[tuple[str, str]] = Counter()
"""Cases by format and row of docs/types.md."""


class Decoder(Protocol):
    """A decoder of records: the reference, or the compiled one."""

    def decode(self, cases: Sequence[Case]) -> list[Decoded | LakehouseError]:
        """Decode the records of some cases; of a case whose schema is refused, return the error."""


def check(decoder: Decoder, case: Case) -> None:
    """Decode the records of a case and compare.

    Raises:
        AssertionError: A value, an error or a dead letter differs from the expectation.
    """
    COUNTS["cases"] += 1
    ROWS.update((case.format, row) for row in case.rows)
    [decoded] = decoder.decode([case])
    compare(case, decoded)


def compare(case: Case, decoded: Decoded | LakehouseError) -> None:
    """Compare the result of a case with its expectation."""
    if isinstance(decoded, LakehouseError):
        COUNTS["refused"] += 1
        assert case.refused is not None, f"refused without need: {decoded}"
        assert case.refused in str(decoded), f"refused for another reason than {case.refused!r}: {decoded}"
        has_name = not case.names or any(name in str(decoded) for name in case.names)
        assert case.refused or has_name, f"refused without a name: {decoded}"
        return
    assert not case.refused, f"not refused, though {case.refused!r}"
    if case.columns is not None:
        assert list(decoded.columns.items()) == list(case.columns.items())
    for number, (record, outcome) in enumerate(zip(case.records, decoded.outcomes, strict=True)):
        assert outcome != UNEXPLAINED, f"record {number} is a {UNEXPLAINED}: {record.value!r}"
        if outcome == LEFT:
            COUNTS["left"] += 1
            continue
        if outcome == LETTER:
            COUNTS["dead letters"] += 1
            assert record.fate != "row", f"record {number} is a dead letter: {record.cells}"
            continue
        COUNTS["exact"] += 1
        assert record.fate != "letter", f"record {number} is a row, and must be a dead letter: {outcome}"
        mismatches = differences(record.cells, outcome)
        assert not mismatches, f"record {number}: {'; '.join(mismatches)}"


def check_pair(decoder: Decoder, pair: Pair) -> None:
    """Decode the records of both versions by both, and those of the older by the older alone, and compare.

    Raises:
        AssertionError: See `check`; or a table with rows of the older version would store the same value in another
            column.
    """
    COUNTS["pairs"] += 1
    ROWS.update((pair.after.format, row) for row in pair.after.rows)
    before, after = decoder.decode([pair.before, pair.after])
    compare(pair.after, after)
    if isinstance(before, LakehouseError) or isinstance(after, LakehouseError):
        return
    old = columns(pair.before)[1]
    try:
        new = _evolved(old, columns(pair.after)[0].value.shape)
    except IncompatibleSchema:
        COUNTS["tables that cannot evolve"] += 1
        return
    for number, (was, now) in enumerate(zip(before.outcomes, after.outcomes, strict=False)):
        assert was != UNEXPLAINED, f"record {number} of the older version is a {UNEXPLAINED}"
        if not {LETTER, LEFT} & {was if isinstance(was, str) else "", now if isinstance(now, str) else ""}:
            mismatches = _moved(was, now, old.as_struct(), new.as_struct(), "row")
            assert not mismatches, (
                f"record {number} of the older version, in a table that has it: {'; '.join(mismatches)}"
            )


def _evolved(table: Schema, shape: Any) -> Schema:
    """Return the schema of a table after its evolution to a shape.

    Raises:
        IncompatibleSchema: The table cannot evolve to the shape.
    """
    with TemporaryDirectory() as folder:
        catalog = SqlCatalog("fuzz", uri="sqlite:///:memory:", warehouse=Path(folder).as_uri())
        catalog.create_namespace("fuzz")
        table_in_catalog = catalog.create_table("fuzz.fuzz", table)
        changes_of_schema = evolution.changes(table_in_catalog.schema(), shape)
        evolution.require_accepted(changes_of_schema, "fuzz")
        with table_in_catalog.update_schema() as update:
            evolution.apply(update, changes_of_schema)
        return table_in_catalog.schema()


def _moved(was: Any, now: Any, old: iceberg.IcebergType, new: iceberg.IcebergType, at: str) -> list[str]:
    """Return the differences between a cell and the earlier content of the columns with the same ids."""
    if was is None or now is None:
        return [] if was is None and now is None else [f"{at}: was {was!r}, is {now!r}"]
    match old:
        case iceberg.StructType():
            names = {field.field_id: (field.name, field.field_type) for field in new.fields}
            moved = []
            for field in old.fields:
                if field.field_id in names and field.name in was:
                    name, type_ = names[field.field_id]
                    moved += _moved(was[field.name], now[name], field.field_type, type_, f"{at}.{name}")
            return moved
        case iceberg.ListType():
            pairs = enumerate(zip(was, now, strict=True))
            return [
                line for i, pair in pairs for line in _moved(*pair, old.element_type, new.element_type, f"{at}[{i}]")
            ]
        case iceberg.MapType():
            pairs = zip(was, now, strict=True)
            return [
                line for a, b in pairs for line in _moved(a[1], b[1], old.value_type, new.value_type, f"{at}[{a[0]!r}]")
            ]
    if isinstance(now, float) and not isinstance(was, str):
        return differences(float(was), now, at)
    return differences(was, now, at)
