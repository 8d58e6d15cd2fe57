"""Paused topics, kept where every process sees it: as properties of the catalog's namespace.

They are there before a topic has a table, survive restarts, and one request lists all of them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from getpass import getuser

from lakehouse.core.errors import LakehouseError, Paused
from resources.catalog import Catalog

PREFIX = "pause."
"""Of the property's name, before the topic's, which Kafka limits to 249 characters: catalogs allow 255."""

MAX_REASON = 500
"""Characters of a reason: some catalogs allow a property 1,000 in all."""


@dataclass(frozen=True)
class Pause:
    """Why a topic is paused, since when (UTC), and who paused it."""

    reason: str
    at: str
    by: str

    def describe(self) -> str:
        """Return the pause as words."""
        return f"paused since {self.at} by {self.by}{f' ({self.reason})' if self.reason else ''}"


def pauses(catalog: Catalog, namespace: str) -> dict[str, Pause]:
    """The paused topics, by name of the entry.

    Raises:
        Unreachable: The catalog does not answer.
    """
    from pyiceberg.exceptions import NoSuchNamespaceError

    with catalog.explained():
        try:
            properties = catalog.iceberg().load_namespace_properties(namespace)
        except NoSuchNamespaceError:
            return {}
    return {name.removeprefix(PREFIX): _read(text) for name, text in properties.items() if name.startswith(PREFIX)}


def _read(text: str) -> Pause:
    try:
        return Pause(**json.loads(text))
    except (ValueError, TypeError):
        # Somebody set it with another tool: it pauses all the same.
        return Pause(text, "an unknown time", "an unknown user")


def pause(catalog: Catalog, namespace: str, topic: str, reason: str) -> Pause:
    """Pause a topic, or change the reason of its pause.

    Raises:
        LakehouseError: The reason is too long, or the catalog did not keep the pause.
        Unreachable: The catalog does not answer.
    """
    if len(reason) > MAX_REASON:
        raise LakehouseError(
            f"The reason has {len(reason):,} characters. Nothing was changed. Use {MAX_REASON} at most"
        )
    made = Pause(reason, datetime.now(UTC).isoformat(sep=" ", timespec="seconds"), getuser())
    with catalog.explained():
        catalog.iceberg().create_namespace_if_not_exists(namespace)
        text = json.dumps(asdict(made), ensure_ascii=False)
        catalog.iceberg().update_namespace_properties(namespace, updates={PREFIX + topic: text})
    if pauses(catalog, namespace).get(topic) != made:
        # Glue replaces all properties at once, and has no condition.
        raise LakehouseError(f"Another change to namespace '{namespace}' undid the pause of '{topic}'. Run it again")
    return made


def unpause(catalog: Catalog, namespace: str, topic: str) -> bool:
    """End the pause of a topic; returns whether it was paused.

    Raises:
        LakehouseError: The catalog kept the pause.
        Unreachable: The catalog does not answer.
    """
    if topic not in pauses(catalog, namespace):
        return False
    with catalog.explained():
        catalog.iceberg().update_namespace_properties(namespace, removals={PREFIX + topic})
    if topic in pauses(catalog, namespace):
        raise LakehouseError(f"Another change to namespace '{namespace}' kept the pause of '{topic}'. Run it again")
    return True


def require_unpaused(catalog: Catalog, namespace: str, topic: str) -> None:
    """Stop where a topic is paused.

    Raises:
        Paused: It is.
        Unreachable: The catalog does not answer.
    """
    if found := pauses(catalog, namespace).get(topic):
        raise Paused(topic, found.describe())
