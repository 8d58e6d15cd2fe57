"""The declarations are valid, and Dagster can load them. No server is needed."""

import dagster as dg
import pytest

from lakehouse.config.loader import load
from lakehouse.definitions import definitions_of


def test_definitions_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_ENV", "ENVIRONMENT")
    dg.Definitions.validate_loadable(definitions_of(load()))
