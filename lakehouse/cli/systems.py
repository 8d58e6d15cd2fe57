"""The resources outside of a Dagster run: what the command line talks to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from lakehouse.config.environment import environment_name
from lakehouse.config.loader import Config
from resources.build import build_resources


@contextmanager
def connected(config: Config) -> Iterator[Any]:
    """The resources of the environment in use, as attributes: kafka, catalog, snowflake …

    Raises: LakehouseError when the environment is the embedded stack and it is not up.
    """
    if environment_name() == "local":
        from lakehouse.local.environment import environment

        os.environ.update(environment())
    with dg.build_resources(build_resources(config, environment_name())) as systems:
        yield systems
