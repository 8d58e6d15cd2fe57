"""The stand-in as a fixture, a client for it, and a clock that tests need not wait for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_server import ADMIN, ConfluentServer
from sleepless import Sleepless

from resources.confluent_cloud import ConfluentCloud


@pytest.fixture
def vendor() -> Iterator[ConfluentServer]:
    """A stand-in with nothing in it; the test fails if anything was against the vendor's documents."""
    with ConfluentServer() as vendor:
        yield vendor
    assert not vendor.violations


@pytest.fixture
def confluent(vendor: ConfluentServer) -> ConfluentCloud:
    """The client, for the stand-in."""
    return ConfluentCloud(api_key=ADMIN, api_secret=vendor.admin_secret, url=vendor.url)


@pytest.fixture
def sleepless() -> Sleepless:
    """A clock that tests need not wait for."""
    return Sleepless()
