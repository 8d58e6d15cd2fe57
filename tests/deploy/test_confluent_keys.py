"""Rotation of API keys with an overlap, in the simulated Confluent Cloud and moto."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest

from lakehouse.core.errors import UnclearState
from lakehouse.deploy.confluent.key_rotation import Rotated, rotate
from lakehouse.deploy.planner import plan
from lakehouse.deploy.waiting import TimedOut
from resources.confluent import api_client
from tests.support.clouds.confluent.deployment import REGION, Ending, Lake

pytestmark = pytest.mark.stack

SECRET = "/confluent_cloud_resource/lake/kafka_cluster/app_manager/python_client"
STEP = "confluent/key/app_manager/kafka"
MONTH = timedelta(days=30)


@pytest.fixture
def lake(lake: Lake) -> Lake:
    """A created deployment with few keys."""
    lake.topics, lake.flink = {"orders": {}}, {}
    lake.create()
    return lake


def turn(lake: Lake, *, later: float = 0, **rule: float) -> dict[str, Rotated]:
    """Rotate at a time `later` days from now."""
    clock, now = lake.sleepless.clock, datetime.now(UTC) + timedelta(days=later)
    return {key.address: key for key in rotate(lake.resources, clock=clock, now=lambda: now, **rule)}


def current(lake: Lake) -> str:
    """Return the id of the manager's key in its secret."""
    return json.loads(lake.secrets()[SECRET])["sasl.username"]


def working(lake: Lake) -> list[str]:
    """Return the ids of the manager's keys, oldest first."""
    name = "lakehouse-lake-app-manager-kafka"
    return [key_id for key_id, key in lake.vendor.state.keys.items() if key["spec"]["display_name"] == name]


def test_rotate_young_key_is_kept(lake: Lake):
    before = lake.secrets()
    assert not any(key.is_new or key.deleted for key in turn(lake, later=29).values())
    assert lake.secrets() == before


def test_rotate_old_key_is_replaced_and_stays_valid(lake: Lake):
    first, state = current(lake), lake.vendor.state
    state.key_lag = 3
    lake.age_keys(MONTH)
    rotated = turn(lake)
    assert len(rotated) == 7 and all(key.is_new and not key.deleted for key in rotated.values())
    second = current(lake)
    assert rotated[STEP].key_id == second != first
    assert working(lake) == [first, second]
    assert json.loads(lake.secrets()[SECRET])["sasl.password"] == state.secrets[second]
    assert not any(key.is_new for key in turn(lake).values())
    assert {change.action for change in plan(lake.resources)} == {"no-op"}


def test_rotate_oldest_key_is_deleted_after_its_grace(lake: Lake):
    first = current(lake)
    for _ in range(2):
        lake.age_keys(MONTH)
        turn(lake)
    _, second, third = working(lake)
    assert turn(lake, later=0.9)[STEP].deleted == ()
    assert {change.action for change in plan(lake.resources)} == {"no-op"}, "a key in its grace is no stray"
    assert turn(lake, later=1.1)[STEP].deleted == (first,)
    assert working(lake) == [second, third] and current(lake) == third


def test_rotate_repeatedly_keeps_at_most_three_keys(lake: Lake):
    for _ in range(4):
        lake.age_keys(MONTH)
        turn(lake, grace_days=300)
        assert len(working(lake)) <= 3


def test_rotate_one_retained_deletes_the_previous_key(lake: Lake):
    first = current(lake)
    lake.age_keys(MONTH)
    turn(lake, retained=1)
    assert turn(lake, retained=1, later=2)[STEP].deleted == (first,)
    assert working(lake) == [current(lake)]
    with pytest.raises(ValueError, match="always retained"):
        turn(lake, retained=0)


def test_rotate_key_not_accepted_stays_pending_and_resumes(lake: Lake):
    first, state = current(lake), lake.vendor.state
    lake.age_keys(MONTH)
    state.key_lag = 1000
    with pytest.raises(TimedOut, match="not accepted yet"):
        turn(lake)
    assert current(lake) == first
    [_, second] = working(lake)
    assert {change.action for change in plan(lake.resources)} == {"no-op"}, "a pending key is no stray"
    state.key_lag = 0
    state._spreading.clear()
    assert turn(lake)[STEP].key_id == second == current(lake)


def test_rotate_deleted_key_refers_to_create(lake: Lake):
    del lake.vendor.state.keys[current(lake)]
    with pytest.raises(UnclearState, match="app_manager.*Run `lakehouse deploy create`"):
        turn(lake)


@pytest.mark.parametrize("lost", [False, True], ids=["killed", "lost response"])
def test_rotate_interrupted_anywhere_loses_no_key(lake: Lake, monkeypatch, lost: bool):
    monkeypatch.setattr(api_client, "FIRST_PAUSE_SECONDS", 0)
    client = boto3.client("secretsmanager", REGION)
    ending = Ending(monkeypatch, lost=lost)
    for _ in range(2):
        before = current(lake)
        lake.age_keys(MONTH)
        ending.struck.clear()
        ending.repeat_until_done(lambda: turn(lake))
        ending.repeat_until_done(lambda: turn(lake, later=2))
        assert len({*ending.struck.values()}) >= 4 * len(ending.moments)
        assert working(lake) == [before, current(lake)], "the previous key stays valid"
        labels = client.describe_secret(SecretId=SECRET)["VersionIdsToStages"].values()
        assert sum("AWSCURRENT" in label for label in labels) == 1
        assert len(lake.vendor.state.keys) == 14
