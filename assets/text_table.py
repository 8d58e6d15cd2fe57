"""Tables of text for Dagster's UI. Values of records and other systems are never rendered as Markdown."""

from collections.abc import Sequence

import dagster as dg

MAX_ROWS = 200
MAX_CELL_CHARACTERS = 200
"""Maximum rows of a table and characters of a cell, because Dagster keeps all events forever."""


def as_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> dg.TableMetadataValue:
    """Return a table of text with at most MAX_ROWS rows; the table's schema notes the truncation.

    Args:
        columns: Distinct column names.
        rows: One value per column; None stays empty.
    """
    more = [f"The first {MAX_ROWS:,} of {len(rows):,} rows"] if len(rows) > MAX_ROWS else []
    return dg.TableMetadataValue(
        records=[
            dg.TableRecord({column: _cell(value) for column, value in zip(columns, row, strict=True)})
            for row in rows[:MAX_ROWS]
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
    return text if len(text) <= MAX_CELL_CHARACTERS else f"{text[:MAX_CELL_CHARACTERS]}…"
