"""Implementations of an extension point: this project's, and those of installed distributions."""

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, TypeVar

from lakehouse.core.errors import ConfigError
from lakehouse.core.text import did_you_mean

Implementation = TypeVar("Implementation")


def implementations(
    builtin: Iterable[Implementation], group: str, name: Callable[[Any], str] = attrgetter("name")
) -> dict[str, Implementation]:
    """Return the implementations of an extension point by name, this project's first.

    Args:
        group: Entry point group of other distributions.
    """
    others = (point.load() for point in sorted(entry_points(group=group), key=attrgetter("name")))
    implementations_by_name: dict[str, Implementation] = {}
    for implementation in (*builtin, *others):
        other = implementations_by_name.setdefault(name(implementation), implementation)
        if other is not implementation:
            raise ConfigError(
                f"{implementation.__module__} and {other.__module__} both add '{name(implementation)}' to "
                f"{group}. Nothing was loaded. Uninstall the distribution of one"
            )
    return implementations_by_name


def by_name(known: Mapping[str, Implementation], name: str, unknown: str) -> Implementation:
    """Return the implementation with a name.

    Args:
        unknown: First sentence of the error.
    """
    if name not in known:
        hint = did_you_mean(name, known)
        raise ConfigError(f"{unknown}{hint} Use one of {', '.join(known)} in lakehouse.yaml")
    return known[name]
