"""A record that ends the work that decodes it, found by halving."""

from __future__ import annotations

from collections.abc import Callable

from lakehouse.batch import Batch, split


def before_poison(decodable: Callable[[Batch], bool], batch: Batch) -> tuple[Batch, bool]:
    """The part of a batch that can be published, and whether that is one record that must not be decoded.

    Parameters: `decodable` tells whether decoding a batch comes to an end.
    Returns: all of the batch where all of it decodes; else the longest first part found that does; else one record.
    """
    if decodable(batch):
        return batch, False
    while batch.offsets > 1:
        half = split(batch, batch.offsets // 2)
        if decodable(half):
            return half, False
        batch = half
    # Once more: what failed for another reason must not be taken for a record's fault.
    return batch, not decodable(batch)
