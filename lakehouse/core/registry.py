"""The implementations of an extension point: this project's, and those that installed distributions add."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, TypeVar

from lakehouse.core.errors import ConfigError

Implementation = TypeVar("Implementation")


def implementations(
    own: Iterable[Implementation], group: str, name: Callable[[Any], str] = attrgetter("name")
) -> dict[str, Implementation]:
    """Return the classes, or rows, of an extension point by their names, this project's first.

    Args:
        own: Those of this project.
        group: The group of entry points by which other distributions name theirs.
        name: What returns the name of one.

    Raises:
        ConfigError: Two have the same name.
    """
    others = (point.load() for point in sorted(entry_points(group=group), key=attrgetter("name")))
    by_name: dict[str, Implementation] = {}
    for each in (*own, *others):
        other = by_name.setdefault(name(each), each)
        if other is not each:
            raise ConfigError(
                f"{each.__module__} and {other.__module__} both add '{name(each)}' to {group}. Nothing was loaded. "
                f"Uninstall the distribution of one"
            )
    return by_name
