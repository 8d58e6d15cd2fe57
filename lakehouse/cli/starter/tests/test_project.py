"""The declarations are valid, and Dagster can load them. No server is needed."""

import dagster as dg

from lakehouse.config.loader import load
from lakehouse.definitions import definitions_of


def test_definitions_load() -> None:
    dg.Definitions.validate_loadable(definitions_of(load()))
