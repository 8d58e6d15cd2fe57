"""The instance of Dagster to which commands report, and from which they read the last runs."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from lakehouse.core.errors import LakehouseError, logged_reason

FILE = "dagster.yaml"
"""The settings of an instance, in the folder DAGSTER_HOME (Dagster, Dagster instance configuration)."""

WITHOUT = "set DAGSTER_HOME to an empty text, without which nothing is reported to Dagster"

_LOG = logging.getLogger(__name__)


@contextmanager
def dagster_instance() -> Iterator[dg.DagsterInstance | None]:
    """Yield the Dagster instance of the folder DAGSTER_HOME; None without one.

    Raises:
        LakehouseError: It cannot be opened.
    """
    home = os.environ.get("DAGSTER_HOME")
    if not home:
        yield None
        return
    if not Path(home).is_dir():
        _LOG.warning("DAGSTER_HOME names %s, which is no folder. Nothing is reported to Dagster", home)
        yield None
        return
    if unset := sorted({name for name in _variables(Path(home)) if name not in os.environ}):
        raise LakehouseError(
            f"{FILE} of DAGSTER_HOME={home} names variables that are not set: {', '.join(unset)}",
            "Nothing was changed",
            f"Set them, or {WITHOUT}",
        )
    try:
        opened = dg.DagsterInstance.get()
    # Its storage, launcher and logs may be of any library.
    except Exception as error:
        failure = f"Dagster's instance of DAGSTER_HOME={home} cannot be opened"
        raise LakehouseError(
            f"{failure}: {logged_reason(failure, error)}. Nothing was changed. `dagster instance info` prints the "
            f"reason: correct {FILE} or its database, or {WITHOUT}"
        ) from error
    with opened as instance:
        yield instance


def _variables(home: Path) -> Iterator[str]:
    """Yield the variables that the settings of an instance name; none if they cannot be read, which Dagster reports."""
    try:
        settings = yaml.safe_load((home / FILE).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return
    pending: list[Any] = [settings]
    while pending:
        match pending.pop():
            case {"env": str(name), **others} if not others:
                yield name
            case dict(values):
                pending += values.values()
            case list(items):
                pending += items
