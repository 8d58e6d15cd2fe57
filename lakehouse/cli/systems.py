"""Resources of an environment outside of a Dagster run, for the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from lakehouse.config.environment import environment_name
from lakehouse.config.loader import Config
from resources.build import build_resources, require_variables
from resources.by_key import Resources


@contextmanager
def open_clients(config: Config) -> Iterator[Resources]:
    """Yield the resources of the environment in LAKEHOUSE_ENV by their keys: kafka, catalog, snowflake …

    Raises:
        LakehouseError: The environment is the embedded stack, which is not running.
        ConfigError: The environment is not declared, or refers to variables that are not set.
    """
    if environment_name() == "local":
        from lakehouse.local.client_environment import environment

        os.environ.update(environment())
    declared = build_resources(config, environment_name())
    require_variables(config, environment_name())
    with dg.build_resources(declared) as resources:
        yield resources
