"""Whether a case became what it must become."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cells import differences
from decoding import LETTER, Decoded, Decoder, columns
from model import Case, Pair
from pyiceberg import types as iceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema

from lakehouse.core.errors import DoesNotFit, LakehouseError
from lakehouse.formats import evolution

COUNTS: Counter[str] = Counter()
"""Cases and records by outcome."""
ROWS: Counter[tuple[str, str]] = Counter()
"""Cases by format and row of docs/types.md."""


def check(decoder: Decoder, case: Case) -> None:
    """Decode the records of a case and compare.

    Raises:
        AssertionError: A value is not what it must be, or a refusal or dead letter is one too many or too few.
    """
    COUNTS["cases"] += 1
    ROWS.update((case.format, row) for row in case.rows)
    [decoded] = decoder.decode([case])
    compare(case, decoded)


def compare(case: Case, decoded: Decoded | LakehouseError) -> None:
    """Compare what a case became with what it must become."""
    if isinstance(decoded, LakehouseError):
        COUNTS["refused"] += 1
        assert case.refused is not None, f"refused without need: {decoded}"
        assert case.refused in str(decoded), f"refused for another reason than {case.refused!r}: {decoded}"
        named = not case.names or any(name in str(decoded) for name in case.names)
        assert case.refused or named, f"refused without a name: {decoded}"
        return
    assert not case.refused, f"not refused, though {case.refused!r}"
    if case.columns is not None:
        assert list(decoded.columns.items()) == list(case.columns.items())
    for number, (record, outcome) in enumerate(zip(case.records, decoded.outcomes, strict=True)):
        if outcome == LETTER:
            COUNTS["dead letters"] += 1
            assert record.fate != "row", f"record {number} is a dead letter: {record.cells}"
            continue
        COUNTS["exact"] += 1
        assert record.fate != "letter", f"record {number} is a row, and must be a dead letter: {outcome}"
        found = differences(record.cells, outcome)
        assert not found, f"record {number}: {'; '.join(found)}"


def check_pair(decoder: Decoder, pair: Pair) -> None:
    """Decode the records of two versions by both, and those of the older by itself, and compare.

    Raises:
        AssertionError: See `check`; or a table that has rows of the older version would hold the same value in another
            column from now on.
    """
    COUNTS["pairs"] += 1
    ROWS.update((pair.after.format, row) for row in pair.after.rows)
    before, after = decoder.decode([pair.before, pair.after])
    compare(pair.after, after)
    if isinstance(before, LakehouseError) or isinstance(after, LakehouseError):
        return
    old = columns(pair.before)[1]
    try:
        new = _followed(old, columns(pair.after)[0].value.shape)
    except DoesNotFit:
        COUNTS["tables that do not follow"] += 1
        return
    for number, (was, now) in enumerate(zip(before.outcomes, after.outcomes, strict=False)):
        if LETTER not in (was, now):
            found = _moved(was, now, old.as_struct(), new.as_struct(), "row")
            assert not found, f"record {number} of the older version, in a table that has it: {'; '.join(found)}"


def _followed(table: Schema, shape: Any) -> Schema:
    """The schema of a table after it has followed a shape.

    Raises:
        DoesNotFit: It does not follow.
    """
    with TemporaryDirectory() as folder:
        catalog = SqlCatalog("fuzz", uri="sqlite:///:memory:", warehouse=Path(folder).as_uri())
        catalog.create_namespace("fuzz")
        there = catalog.create_table("fuzz.fuzz", table)
        found = evolution.changes(there.schema(), shape)
        evolution.refusals(found, "fuzz")
        with there.update_schema() as update:
            evolution.apply(update, found)
        return there.schema()


def _moved(was: Any, now: Any, old: iceberg.IcebergType, new: iceberg.IcebergType, at: str) -> list[str]:
    """Where a cell differs from what the same columns, by their ids, held before."""
    if was is None or now is None:
        return [] if was is None and now is None else [f"{at}: was {was!r}, is {now!r}"]
    match old:
        case iceberg.StructType():
            names = {field.field_id: (field.name, field.field_type) for field in new.fields}
            found = []
            for field in old.fields:
                if field.field_id in names and field.name in was:
                    name, type_ = names[field.field_id]
                    found += _moved(was[field.name], now[name], field.field_type, type_, f"{at}.{name}")
            return found
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
