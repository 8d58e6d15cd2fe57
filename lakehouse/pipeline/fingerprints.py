"""The schemas that a table's records were decoded with: a restored registry may answer others for the same ids."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakehouse.config.topic import Topic
from lakehouse.core.batch import MAX_PROPERTY
from lakehouse.core.errors import UnclearState

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.pipeline.codecs import Formats

SCHEMAS = "lakehouse.schemas"
"""The table property with a fingerprint by schema id, as JSON."""

LONGEST = 32
"""Characters of one entry: an id of ten digits, sixteen of the fingerprint, and what JSON puts around them."""


def check(table: Table | None, topic: Topic, known: Formats) -> None:
    """Every schema is the one that had its id before.

    Raises: UnclearState for one that is not: records would decode to other values than they were written with.
    """
    before = _remembered(table)
    changed = [id_ for id_, now in known.fingerprints.items() if before.get(id_, now) != now]
    if changed:
        raise UnclearState(
            f"The schema registry has another schema of id {', '.join(changed)} than when table {topic.table} last "
            f"took records of topic '{topic.topic}': it was restored or replaced. Nothing was ingested. Restore its "
            f"schemas with their ids; if the registry is right as it is, go on with `lakehouse resume`"
        )


def properties(table: Table | None, known: Formats) -> dict[str, str]:
    """Table properties that remember the schemas; none where all are remembered already.

    Of very many, those that the topic's records are decoded with now are remembered, and then the newest.
    """
    before, used = _remembered(table), known.fingerprints
    most = MAX_PROPERTY // LONGEST
    found = sorted((before | used).items(), key=lambda item: (item[0] in used, int(item[0])))
    now = dict(found[-most:])
    return {} if now == before else {SCHEMAS: json.dumps(now, separators=(",", ":"))}


def _remembered(table: Table | None) -> dict[str, str]:
    return json.loads(table.properties.get(SCHEMAS, "{}")) if table else {}
