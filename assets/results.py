"""Results of batches, of their publication in readers, and of checks, as runs and streams report them to Dagster.

Values of records and other systems are never rendered as Markdown.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from lakehouse.config.model import Topic
from lakehouse.core.log_entry import LogEntry
from lakehouse.core.offsets.batch import OUTCOMES, describe_outcome
from lakehouse.core.text import escaped, pluralize
from lakehouse.readers.reader import Registration

if TYPE_CHECKING:
    from lakehouse.pipeline.commits.audit import CheckResult
    from lakehouse.pipeline.ingestion import Published


def check_results(findings: "list[CheckResult]") -> Iterator[dg.AssetCheckResult]:
    """Yield the results for Dagster, with a sample of failing rows and the query that lists all of them."""
    for finding in findings:
        metadata: dict[str, Any] = dict(finding.numbers)
        if finding.result:
            metadata["sql"] = dg.TextMetadataValue(finding.result.sql)
            if sample := finding.result.sample:
                metadata["sample"] = as_table(list(sample[0]), [list(row.values()) for row in sample])
        yield dg.AssetCheckResult(
            check_name=finding.check,
            passed=finding.passed,
            severity=dg.AssetCheckSeverity.ERROR if finding.severity == "blocking" else dg.AssetCheckSeverity.WARN,
            description=escaped(finding.message),
            metadata=metadata,
        )


def batch_entry(topic: Topic, batch: "Published", more: str = "") -> LogEntry:
    """Return the log entry of a published batch.

    Args:
        topic: The topic.
        batch: The batch.
        more: The rest of the message.
    """
    counts = batch.counts
    rate = counts.consumed / batch.seconds if batch.seconds else 0
    others = "".join(
        f", {describe_outcome(name, getattr(counts, name))}" for name in OUTCOMES[2:] if getattr(counts, name)
    )
    message = (
        f"{topic.name}: {pluralize(counts.consumed, 'record')} → {pluralize(counts.rows, 'row')}{others} "
        f"in {batch.seconds:.1f} s ({rate:,.0f} records/s), snapshot {batch.snapshot_id}{more}"
    )
    return LogEntry(message, topic=topic.name, batch=batch.batch, phase="published")


def registration_metadata(registration: Registration) -> dict[str, Any]:
    """Return the metadata of a publication."""
    rows = {} if registration.rows is None else {"dagster/row_count": registration.rows}
    return {
        "metadata_location": registration.metadata_location,
        "snapshot_id": str(registration.snapshot_id),
        **rows,
    }


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
