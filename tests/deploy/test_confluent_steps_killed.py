"""Resumption of a Confluent deployment after a kill before and after each kind of change.

The simulation kills at random changes (tests/simulation/deployment).
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakehouse.deploy.planner import apply, plan
from resources.confluent import api_client
from tests.support.clouds.confluent.deployment import SMALL, Ending, Lake, closure, inventory, left

pytestmark = pytest.mark.stack

ABANDONED = timedelta(hours=4)
"""An age at which no command can store a key any more; `create` deletes it."""


@pytest.fixture
def small(lake: Lake) -> Lake:
    """A deployment with few resources of each kind."""
    lake.topics = SMALL | {"totals": {"engine": "tableflow"}}
    return lake


@pytest.fixture
def expected(small: Lake) -> list[str]:
    """The inventory of an uninterrupted deployment, which is deleted again."""
    small.create()
    # A second run reaches the final phases, such as that of the catalog.
    small.create()
    expected = inventory(small.vendor)
    small.delete()
    assert left(small.vendor) == [] and not small.secrets() and not small.things
    return expected


def test_create_killed_at_each_kind_of_change_has_same_result(small: Lake, expected, monkeypatch):
    ending = Ending(monkeypatch)
    for resource in small.resources:
        begin = lambda name=resource.address: apply(closure(small.resources, name), small.reported.append)  # noqa: E731
        ending.repeat_until_done(begin)
    small.age_keys(ABANDONED)
    ending.repeat_until_done(small.create)
    assert inventory(small.vendor) == expected
    assert_keys_are_stored(small)
    ending.repeat_until_done(small.delete)
    assert left(small.vendor) == [] and not small.secrets() and not small.things
    assert len({*ending.struck.values()}) >= 55


def test_create_with_lost_responses_has_no_duplicates(small: Lake, expected, monkeypatch):
    monkeypatch.setattr(api_client, "FIRST_PAUSE_SECONDS", 0)
    ending = Ending(monkeypatch, lost=True)
    for resource in small.resources:
        begin = lambda name=resource.address: apply(closure(small.resources, name), small.reported.append)  # noqa: E731
        ending.repeat_until_done(begin)
    assert {change.action for change in plan(small.resources)} == {"no-op"}
    small.age_keys(ABANDONED)
    ending.repeat_until_done(small.create)
    assert inventory(small.vendor) == expected
    assert_keys_are_stored(small)
    ending.repeat_until_done(small.delete)
    assert left(small.vendor) == [] and not small.secrets()
    assert len({*ending.struck.values()}) >= 28


def assert_keys_are_stored(lake: Lake) -> None:
    """Assert that each key is stored with its API secret in a separate secret."""
    written, state = lake.secrets().values(), lake.vendor.state
    assert len(state.keys) == len(written)
    for key_id in state.keys:
        [secret] = [text for text in written if key_id in text]
        assert state.secrets[key_id] in secret
