"""Environments of lakehouse.yaml: the settings of the systems of each."""

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
    "confluent_cloud",
)

RESOURCES = entry_points(group="lakehouse.resources")
"""Systems of other distributions: the key in lakehouse.yaml and the class of the Dagster resource."""

if TYPE_CHECKING:
    System = str
else:
    System = Literal[(*SYSTEMS, *(point.name for point in RESOURCES))]


class EnvRef(Model):
    """A value that is read from an environment variable. Secrets must be written this way."""

    env: str = Field(min_length=1, description="Name of the environment variable.")
    default: str | int | None = Field(
        None, description="Value if the variable is not set. Without a default, the variable is required."
    )


Setting = str | int | EnvRef


def environment_name() -> str:
    """Return the name of the environment in use: LAKEHOUSE_ENV, or `local`."""
    return os.environ.get("LAKEHOUSE_ENV") or "local"
