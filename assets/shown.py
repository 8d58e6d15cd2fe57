"""Values from records, schemas and other systems as Dagster shows them: as tables of text, never as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

MOST_ROWS = 200
LONGEST_CELL = 200
"""Rows of a table, and characters of a cell: Dagster keeps every event for good."""


def as_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> dg.TableMetadataValue:
    """Make a table of text. Of more than MOST_ROWS rows the first are shown, which the table's schema says.

    Args:
        columns: Names, all different.
        rows: As many values each as there are columns; None stays empty.
    """
    more = [f"The first {MOST_ROWS:,} of {len(rows):,} rows"] if len(rows) > MOST_ROWS else []
    return dg.TableMetadataValue(
        records=[
            dg.TableRecord({column: _cell(value) for column, value in zip(columns, row, strict=True)})
            for row in rows[:MOST_ROWS]
        ],
        schema=dg.TableSchema(
            columns=[dg.TableColumn(column, "string") for column in columns],
            constraints=dg.TableConstraints(other=more),
        ),
    )


def _cell(value: object) -> str | None:
    if value is None:
        return None
    text = str(value)
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…"
