"""A user without a name, as in containers that run with an arbitrary user id."""

import os

import pytest

from lakehouse.config.model import Topic
from resources.iceberg.pauses import pause, pauses


@pytest.fixture
def unnamed(monkeypatch):
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)


def test_pause_by_user_without_name_has_the_number(catalog, unnamed):
    pause(catalog, "trading", Topic(name="orders"), "deployment")
    assert pauses(catalog, "trading")["orders"].by == "54321"
