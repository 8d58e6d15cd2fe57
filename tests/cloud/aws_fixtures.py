"""An AWS for the tests of a module, empty before each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aws_world import REGION, World, world


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    """One server for a module."""
    with pytest.MonkeyPatch.context() as patch, world(patch) as it:
        yield it


@pytest.fixture
def aws(shared: World) -> World:
    """With nothing in it but whom roles trust."""
    shared.reset()
    return shared


@pytest.fixture
def direct(aws: World) -> Callable[[str], Any]:
    """Clients of moto itself, past all checks."""
    return lambda service: aws.strict.client(service, region=REGION)
