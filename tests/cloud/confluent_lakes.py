"""Fixtures: deployments in the stand-in of Confluent Cloud, with secrets on moto in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_deployment import Lake
from confluent_server import ConfluentServer
from moto import mock_aws
from sleepless import Sleepless

from resources.confluent_cloud import ConfluentCloud


@pytest.fixture
def lake(
    vendor: ConfluentServer, confluent: ConfluentCloud, sleepless: Sleepless, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lake]:
    """A deployment that is not made yet."""
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    # Of all services moto would look for each call's otherwise.
    with mock_aws(config={"core": {"service_whitelist": ["secretsmanager"]}}):
        yield Lake(vendor, confluent, sleepless)


@pytest.fixture
def other(lake: Lake) -> Lake:
    """Another one beside it."""
    return Lake(lake.vendor, lake.confluent, lake.sleepless, name="other")
