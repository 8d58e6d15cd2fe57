"""A deployment in Confluent Cloud that is ended before and after each of its changes, and begun again."""

from __future__ import annotations

import pytest
from confluent_deployment import SMALL, Ending, Lake, closure, inventory, left

from lakehouse.deploy.planner import create, plan
from resources.confluent import plane

pytest_plugins = ["confluent_fixtures", "confluent_lakes"]
pytestmark = pytest.mark.stack


@pytest.fixture
def small(lake: Lake) -> Lake:
    """Each kind of thing, few of each."""
    lake.topics = SMALL | {"totals": {"engine": "tableflow"}}
    return lake


@pytest.fixture
def expected(small: Lake) -> list[str]:
    """What is there when nothing ends a deployment. It is gone again."""
    small.create()
    # Once more: what is looked at later, such as the catalog's phase, is then as it stays.
    small.create()
    expected = inventory(small.vendor)
    small.delete()
    assert left(small.vendor) == [] and not small.secrets() and not small.things
    return expected


def test_ended_at_any_change_it_ends_as_if_nothing_had_happened(small: Lake, expected, monkeypatch):
    ending = Ending(monkeypatch)
    for step in small.steps:
        ending.again_and_again(lambda step=step: create(closure(small.steps, step.name), small.told.append))
    small.create()
    assert inventory(small.vendor) == expected
    assert_keys_are_stored(small)
    ending.again_and_again(small.delete)
    assert left(small.vendor) == [] and not small.secrets() and not small.things
    assert len(ending.struck) > 180


def test_answers_that_were_lost_make_nothing_twice(small: Lake, expected, monkeypatch):
    monkeypatch.setattr(plane, "FIRST_PAUSE_SECONDS", 0)
    ending = Ending(monkeypatch, lost=True)
    for step in small.steps:
        ending.again_and_again(lambda step=step: create(closure(small.steps, step.name), small.told.append))
    assert {action.verb for action in plan(small.steps)} == {"keep"}
    small.create()
    assert inventory(small.vendor) == expected
    assert_keys_are_stored(small)
    ending.again_and_again(small.delete)
    assert left(small.vendor) == [] and not small.secrets()
    assert len(ending.struck) > 80


def assert_keys_are_stored(lake: Lake) -> None:
    """Each key is in a secret of its own, with what opens it."""
    written, state = lake.secrets().values(), lake.vendor.state
    assert len(state.keys) == len(written)
    for key_id in state.keys:
        [secret] = [each for each in written if key_id in each]
        assert state.secrets[key_id] in secret
