"""Rotation of API keys, on the stand-in and moto: two overlap, and whoever holds one goes on."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from confluent_deployment import REGION, Ending, Lake

from lakehouse.core.errors import UnclearState
from lakehouse.deploy.confluent.rotation import Rotated, rotate
from lakehouse.deploy.planner import plan
from resources.confluent import plane
from resources.confluent.waiting import TimedOut

pytest_plugins = ["confluent_fixtures", "confluent_lakes"]
pytestmark = pytest.mark.stack

SECRET = "/confluent_cloud_resource/lake/kafka_cluster/app_manager/python_client"
STEP = "confluent/key/app_manager/kafka"


@pytest.fixture
def lake(lake: Lake) -> Lake:
    """One that is there, with few keys."""
    lake.topics, lake.flink = {"orders": {}}, {}
    lake.create()
    return lake


def turn(lake: Lake, *, later: float = 0, **rule: float) -> dict[str, Rotated]:
    """Rotate so many days from now."""
    clock, now = lake.sleepless.clock, datetime.now(UTC) + timedelta(days=later)
    return {each.step: each for each in rotate(lake.steps, clock=clock, now=lambda: now, **rule)}


def age(lake: Lake, days: float) -> None:
    """Make all keys so many days older than they are."""
    for document in lake.vendor.state.keys.values():
        made = datetime.fromisoformat(document["metadata"]["created_at"]) - timedelta(days=days)
        document["metadata"]["created_at"] = made.isoformat().replace("+00:00", "Z")


def current(lake: Lake) -> str:
    """The id of the manager's key in its secret."""
    return json.loads(lake.secrets()[SECRET])["sasl.username"]


def working(lake: Lake) -> list[str]:
    """The ids of the manager's keys, the oldest first."""
    name = "lakehouse-lake-app-manager-kafka"
    return [key_id for key_id, each in lake.vendor.state.keys.items() if each["spec"]["display_name"] == name]


def test_a_young_key_stays(lake: Lake):
    before = lake.secrets()
    assert not any(each.is_new or each.deleted for each in turn(lake, later=29).values())
    assert lake.secrets() == before


def test_a_new_key_takes_the_place_of_an_old_one_that_goes_on_working(lake: Lake):
    first, state = current(lake), lake.vendor.state
    state.key_lag = 3
    age(lake, 30)
    rotated = turn(lake)
    assert len(rotated) == 6 and all(each.is_new and not each.deleted for each in rotated.values())
    second = current(lake)
    assert rotated[STEP].key_id == second != first
    assert working(lake) == [first, second]
    assert json.loads(lake.secrets()[SECRET])["sasl.password"] == state.secrets[second]
    assert not any(each.is_new for each in turn(lake).values())
    assert {action.verb for action in plan(lake.steps)} == {"keep"}


def test_the_oldest_key_goes_when_its_grace_is_over(lake: Lake):
    first = current(lake)
    for _ in range(2):
        age(lake, 30)
        turn(lake)
    _, second, third = working(lake)
    assert turn(lake, later=0.9)[STEP].deleted == ()
    assert {action.verb for action in plan(lake.steps)} == {"keep"}, "a key in its grace is no stray"
    assert turn(lake, later=1.1)[STEP].deleted == (first,)
    assert working(lake) == [second, third] and current(lake) == third


def test_there_is_never_more_than_one_key_beyond_those_retained(lake: Lake):
    for _ in range(4):
        age(lake, 30)
        turn(lake, grace_days=300)
        assert len(working(lake)) <= 3


def test_with_one_retained_the_key_before_goes_after_its_grace(lake: Lake):
    first = current(lake)
    age(lake, 30)
    turn(lake, retained=1)
    assert turn(lake, retained=1, later=2)[STEP].deleted == (first,)
    assert working(lake) == [current(lake)]
    with pytest.raises(ValueError, match="always retained"):
        turn(lake, retained=0)


def test_a_key_that_is_not_taken_stays_pending_and_is_taken_up_again(lake: Lake):
    first, state = current(lake), lake.vendor.state
    age(lake, 30)
    state.key_lag = 1000
    with pytest.raises(TimedOut, match="not accepted yet"):
        turn(lake)
    assert current(lake) == first
    [_, second] = working(lake)
    assert {action.verb for action in plan(lake.steps)} == {"keep"}, "a pending key is no stray"
    state.key_lag = 0
    state._spreading.clear()
    assert turn(lake)[STEP].key_id == second == current(lake)


def test_a_key_that_was_deleted_is_for_create_to_make(lake: Lake):
    del lake.vendor.state.keys[current(lake)]
    with pytest.raises(UnclearState, match="app_manager.*Run `lakehouse deploy create`"):
        turn(lake)


@pytest.mark.parametrize("lost", [False, True], ids=["killed", "lost answer"])
def test_ended_anywhere_and_begun_again_it_loses_no_key(lake: Lake, monkeypatch, lost: bool):
    monkeypatch.setattr(plane, "FIRST_PAUSE_SECONDS", 0)
    client = boto3.client("secretsmanager", REGION)
    ending = Ending(monkeypatch, lost=lost)
    for _ in range(2):
        before = current(lake)
        age(lake, 30)
        ending.struck.clear()
        ending.again_and_again(lambda: turn(lake))
        ending.again_and_again(lambda: turn(lake, later=2))
        assert len(ending.struck) >= 18 * len(ending.moments)
        assert working(lake) == [before, current(lake)], "the key before goes on"
        labels = client.describe_secret(SecretId=SECRET)["VersionIdsToStages"].values()
        assert sum("AWSCURRENT" in each for each in labels) == 1
        assert len(lake.vendor.state.keys) == 12
