"""What an environment of lakehouse.yaml says of its systems."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lakehouse.config.base import Model

SYSTEMS = (
    "kafka",
    "schema_registry",
    "spark",
    "catalog",
    "glue",
    "snowflake",
    "alerts",
    "open_lineage",
    "athena",
    "rest_catalog",
)

RESOURCES = entry_points(group="lakehouse.resources")
"""Systems of other distributions: the key in lakehouse.yaml, and the class of its Dagster resource."""

if TYPE_CHECKING:
    System = str
else:
    System = Literal[(*SYSTEMS, *(point.name for point in RESOURCES))]


class EnvRef(Model):
    """A value that an environment variable holds: the only way to write a secret."""

    env: str = Field(min_length=1, description="Name of the environment variable.")
    default: str | int | None = Field(
        None, description="Value where the variable is not set. Without, it has to be set."
    )


Setting = str | int | EnvRef


def environment_name() -> str:
    """The environment in use: LAKEHOUSE_ENV, or `local`."""
    return os.environ.get("LAKEHOUSE_ENV") or "local"
