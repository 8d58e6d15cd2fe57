"""Environment variables that the servers of the embedded stack inherit from `up`: only those that they need.

The user's environment may contain cloud credentials. A server that does not need them must not inherit them: they would
be in its memory dumps, its child processes and its error reports.
"""

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase

from lakehouse.config import loader
from lakehouse.config.environment import EnvRef, environment_name
from lakehouse.core.errors import LakehouseError

EVERY_SERVER = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "JAVA_TOOL_OPTIONS",
    "PYTHON*",
    "VIRTUAL_ENV",
    "SSL_CERT_*",
    "*_CA_BUNDLE",
)
"""Patterns of the names that every server inherits: paths of programs, libraries and certificates, and the language."""

EXCLUDED = ("PYTHONDONTWRITEBYTECODE",)
"""Names that no server inherits. Images of containers set this one; without bytecode files, each process of Dagster and
each run compiles Dagster again, which takes longer than the rest of its start."""

PROJECT_CODE = ("LAKEHOUSE_*", "DAGSTER_*", "XDG_*", "*_PROXY", "*_proxy")


def selected(patterns: Iterable[str]) -> dict[str, str]:
    """Return the variables of this process whose names match one of the patterns or of `EVERY_SERVER`, except those in
    `EXCLUDED`."""
    every = (*EVERY_SERVER, *patterns)
    names = [name for name in os.environ if any(fnmatchcase(name, pattern) for pattern in every)]
    return {name: os.environ[name] for name in names if name not in EXCLUDED}


def for_project_code() -> tuple[str, ...]:
    """Return the patterns for servers that run the project's code, including the variables that lakehouse.yaml refers
    to in this environment, and those in `LAKEHOUSE_PASS_ENV`."""
    return (*PROJECT_CODE, *_configured(), *for_transforms())


def for_transforms() -> tuple[str, ...]:
    """Return the names in `LAKEHOUSE_PASS_ENV` (separated by commas), which the user's transforms need."""
    return tuple(name.strip() for name in os.environ.get("LAKEHOUSE_PASS_ENV", "").split(",") if name.strip())


def _configured() -> list[str]:
    """Return the variables that the current environment of lakehouse.yaml refers to; none if the file is invalid,
    which the code that needs it reports."""
    try:
        systems = loader.load().environments.get(environment_name(), {})
    except LakehouseError:
        return []
    return [value.env for settings in systems.values() for value in settings.values() if isinstance(value, EnvRef)]
