"""Tables for the local Snowflake server, in a catalog other than the stack's."""

from __future__ import annotations

import pytest

from lakehouse.local.home import Home
from tests.support.clouds.snowflake.server import Lake


@pytest.fixture(scope="session")
def lake(stack: Home) -> Lake:
    """The catalog is in the stack's folder: Spark keeps its file open, and servers may use no other shared folder."""
    folder = stack.path / "tests-catalog"
    folder.mkdir(mode=0o700)
    return Lake(folder)
