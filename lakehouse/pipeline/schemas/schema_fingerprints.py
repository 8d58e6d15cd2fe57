"""Fingerprints of the schemas that decoded a table's records.

A restored or replaced schema registry may return other schemas for the same ids.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from lakehouse.config.model import Topic
from lakehouse.core.errors import UnclearState
from lakehouse.core.table_protocol import MAX_PROPERTY, SCHEMAS

if TYPE_CHECKING:
    from lakehouse.pipeline.schemas.decoding import TopicSchemas

LONGEST = 32
"""Maximum number of characters of one entry: ten digits of the id, sixteen of the fingerprint, and JSON punctuation."""


def check(table: Table | None, topic: Topic, schemas: TopicSchemas) -> None:
    """Compare the fingerprint of every schema with the stored one.

    Raises:
        UnclearState: A schema id has another schema than before, which would decode records to wrong values.
    """
    stored = _stored(table)
    changed = [id_ for id_, fingerprint in schemas.fingerprints.items() if stored.get(id_, fingerprint) != fingerprint]
    if table and changed:
        raise UnclearState(
            f"The schema registry was restored or replaced: schema id {', '.join(changed)} is not the schema that "
            f"table {table.name()[-1]} last ingested topic '{topic.topic}' with. Nothing was ingested. Restore the "
            f"schemas with their ids, or accept the present ones with `lakehouse resume`"
        )


def properties(table: Table | None, schemas: TopicSchemas) -> dict[str, str]:
    """Return the table properties that store the fingerprints; none if they are stored already.

    If they exceed the size limit, those of the topic's present schemas are kept first, then the newest.
    """
    stored, current = _stored(table), schemas.fingerprints
    most = MAX_PROPERTY // LONGEST
    ranked = sorted((stored | current).items(), key=lambda item: (item[0] in current, int(item[0])))
    newest = dict(ranked[-most:])
    return {} if newest == stored else {SCHEMAS: json.dumps(newest, separators=(",", ":"))}


def has_others(table: Table | None, schemas: TopicSchemas) -> bool:
    """Return whether records of a table were decoded with other schemas than those of the topic's subjects."""
    return not _stored(table).keys() <= schemas.fingerprints.keys()


def known_ids(table: Table) -> frozenset[int]:
    """Return the ids of the schemas that records of a table may have been decoded with."""
    return frozenset(map(int, _stored(table)))


def _stored(table: Table | None) -> dict[str, str]:
    return json.loads(table.properties.get(SCHEMAS, "{}")) if table else {}
