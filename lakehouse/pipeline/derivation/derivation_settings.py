"""Settings that decide what derived messages mean: the bookmark has them, and lakehouse.yaml is compared with them.

Messages of different settings in one topic would be wrong silently. Those with another `key` or `group_by`, for
example, replace none of those before, and groups that get no new rows would keep the result of another `transform`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from lakehouse.config.model import Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import IncompatibleSettings
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.formats.avro.avro_format import AvroFormat
from lakehouse.pipeline.schemas.recorded_settings import as_text


@dataclass(frozen=True)
class DerivationSettings:
    """The settings with which messages were derived. Their source is known by the identity of its table."""

    transform: str
    group_by: tuple[str, ...]
    """The columns of groups, sorted."""
    key_format: str | None
    key: tuple[str, ...]
    """The columns of message keys, in order; empty if messages have no keys."""

    @staticmethod
    def of(topic: Topic) -> DerivationSettings:
        """Return the settings that lakehouse.yaml declares for a derived topic."""
        derived = topic.source
        assert isinstance(derived, Derived)
        has_keys = topic.key_format == AvroFormat.name
        keys = (AvroFormat.name, topic.key) if has_keys else (None, ())
        return DerivationSettings(derived.transform, tuple(sorted(derived.group_by)), *keys)

    @staticmethod
    def stored(bookmark: Bookmark) -> DerivationSettings | None:
        """Return the settings that a bookmark has; None if an earlier release wrote it without."""
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in bookmark.settings.items()}
        return DerivationSettings(**values) if values else None  # type: ignore[arg-type]  # by the bookmark's version

    def values(self) -> Mapping[str, str | Sequence[str] | None]:
        """Return the settings of a bookmark."""
        return {name: [*v] if isinstance(v, tuple) else v for name, v in asdict(self).items()}


def require_same(bookmark: Bookmark, topic: Topic, *, is_adopted: bool = False) -> None:
    """Require that the settings of a derived topic are those of its messages.

    Args:
        bookmark: The bookmark of the messages.
        topic: The derived topic.
        is_adopted: Whether an operator states that messages of another transform, or of unknown settings, may stay.

    Raises:
        IncompatibleSettings: They are not.
    """
    stored, declared, command = (
        DerivationSettings.stored(bookmark),
        DerivationSettings.of(topic),
        f"`lakehouse bookmark {topic.name} --at current --reason …`",
    )
    elsewhere = "write another `kafka_topic` and `table`, for which all rows are derived again"
    if stored is None:
        if is_adopted:
            return
        raise IncompatibleSettings(
            f"Topic '{topic.topic}' has messages, but its bookmark does not record the settings that made them, such "
            f"as `transform` and `key`: an earlier release wrote it",
            "Nothing was produced",
            f"If lakehouse.yaml declares these settings, record them with {command}; otherwise, {elsewhere}",
        )
    before, after = asdict(stored), asdict(declared)
    different = [name for name, value in before.items() if value != after[name]]
    if not different or (is_adopted and different == ["transform"]):
        return
    remedy = f"Restore the settings, or {elsewhere}"
    if different == ["transform"]:
        again = ", or derive all groups again with `--at earliest` in it" if declared.group_by else ""
        remedy = f"Restore `transform`; keep the messages and continue with {command}{again}; or {elsewhere}"
    texts = [", ".join(as_text(name, settings[name]) for name in different) for settings in (before, after)]
    by = "" if bookmark.entry == topic.name else f" by entry '{bookmark.entry}'"
    raise IncompatibleSettings(
        f"The messages of topic '{topic.topic}' were made{by} with {texts[0]}, but '{topic.name}' declares {texts[1]}",
        "Nothing was produced",
        remedy,
    )
