"""Paused topics, stored as properties of the catalog's namespace, which every process can read.

They exist before a topic has a table, survive restarts, and can be listed with one request. They are stored by table,
because an entry of lakehouse.yaml may be renamed.
"""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from lakehouse.config.settings import TopicSettings
from lakehouse.core.errors import LakehouseError, Paused
from lakehouse.core.table_protocol import PAUSE_PREFIX
from lakehouse.core.user_name import user_name
from resources.iceberg.catalog import Catalog

MAX_REASON = 500
"""Maximum length of a reason: some catalogs limit a property to 1,000 characters."""


@dataclass(frozen=True)
class Pause:
    """The pause of a topic: its reason, its start (UTC), and the user who paused it."""

    reason: str
    at: str
    by: str

    def describe(self) -> str:
        """Return the pause as text."""
        return f"paused since {self.at} by {self.by}{f' ({self.reason})' if self.reason else ''}"


def pauses(catalog: Catalog, namespace: str) -> dict[str, Pause]:
    """Return the pauses by the name of the topic's first table."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    with catalog.translate_errors():
        try:
            properties = catalog.iceberg().load_namespace_properties(namespace)
        except NoSuchNamespaceError:
            return {}
    return {
        name.removeprefix(PAUSE_PREFIX): _parse(text)
        for name, text in properties.items()
        if name.startswith(PAUSE_PREFIX)
    }


def _parse(text: str) -> Pause:
    try:
        return Pause(**json.loads(text))
    except (ValueError, TypeError):
        # Another tool set the property; it still pauses the topic.
        return Pause(text, "an unknown time", "an unknown user")


def pause(catalog: Catalog, namespace: str, topic: TopicSettings, reason: str) -> Pause:
    """Pause a topic, or change the reason of its pause."""
    if len(reason) > MAX_REASON:
        raise LakehouseError(
            f"The reason has {len(reason):,} characters. Nothing was changed. Use {MAX_REASON} at most"
        )
    new = Pause(reason, datetime.now(UTC).isoformat(sep=" ", timespec="seconds"), user_name())
    with catalog.translate_errors():
        catalog.ensure_namespace(namespace)
        text = json.dumps(asdict(new), ensure_ascii=False)
        catalog.iceberg().update_namespace_properties(namespace, updates={PAUSE_PREFIX + topic.table: text})
    if pauses(catalog, namespace).get(topic.table) != new:
        # Glue replaces all properties at once, without a condition.
        raise LakehouseError(
            f"Another writer changed namespace '{namespace}' at the same time. Topic '{topic.name}' is not paused. Run "
            f"`lakehouse pause {topic.name}` again"
        )
    return new


def copy_pauses(catalog: Catalog, target: Catalog, namespace: str) -> None:
    """Pause the topics that are paused in a catalog in another catalog, too."""
    current, copied = pauses(catalog, namespace), pauses(target, namespace)
    missing = {PAUSE_PREFIX + table: pause_ for table, pause_ in current.items() if table not in copied}
    with target.translate_errors():
        target.ensure_namespace(namespace)
        if missing:
            updates = {name: json.dumps(asdict(pause_), ensure_ascii=False) for name, pause_ in missing.items()}
            target.iceberg().update_namespace_properties(namespace, updates=updates)


def unpause(catalog: Catalog, namespace: str, table: str) -> bool:
    """End the pause of the topic of a table and return whether it was paused."""
    if table not in pauses(catalog, namespace):
        return False
    with catalog.translate_errors():
        catalog.iceberg().update_namespace_properties(namespace, removals={PAUSE_PREFIX + table})
    if table in pauses(catalog, namespace):
        raise LakehouseError(
            f"Another writer changed namespace '{namespace}' at the same time. The topic of table '{table}' is still "
            f"paused. Repeat the command"
        )
    return True


def require_unpaused(catalog: Catalog, namespace: str, topic: TopicSettings) -> None:
    """Require that a topic is not paused.

    Raises:
        Paused: The topic is paused.
    """
    if current := pauses(catalog, namespace).get(topic.table):
        raise Paused(topic.name, current.describe())
