"""Filters of rows in the table of dead letters."""

from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan, Or

from lakehouse.core.offsets.batch import Batch
from lakehouse.core.tables.letter_columns import PLACE


def of_batch(batch: Batch) -> BooleanExpression:
    """Return the filter of dead letters of a batch's offsets."""
    partition, offset = PLACE
    ranges = [
        And(
            EqualTo(term=partition, value=p),
            GreaterThanOrEqual(term=offset, value=batch.start[p]),
            LessThan(term=offset, value=end),
        )
        for p, end in batch.end.items()
        if end > batch.start[p]
    ]
    if not ranges:
        return AlwaysFalse()
    inside = ranges[0] if len(ranges) == 1 else Or(*ranges)
    return And(EqualTo(term="topic_id", value=batch.topic_id), inside)
