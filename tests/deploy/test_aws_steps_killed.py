"""Resumption of creation and deletion in AWS after a kill or a lost response at each changing call."""

from types import SimpleNamespace

import pytest
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session

from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.planner import apply, destroy, plan
from tests.support.clouds.aws.world import world

pytestmark = pytest.mark.stack


class Killed(BaseException):
    """The simulated end of the process."""


@pytest.fixture(scope="module")
def shared():
    with pytest.MonkeyPatch.context() as patch:
        # botocore repeats calls without pauses.
        patch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda seconds: None))
        with world(patch) as running:
            yield running


@pytest.fixture
def aws(shared, uninterrupted):
    shared.reset()
    return shared


@pytest.fixture(scope="module")
def resources(shared):
    """Return a resource of each kind."""
    config = Config(namespace="trading", topics={"trades": Topic(name="trades")}, environments={})
    return shared.resources(config, spark_principals=())


def quiet(change):
    """Ignore a reported change."""


def retried(act, error):
    """Repeat an action until it succeeds, and return the number of failures."""
    failures = 0
    while True:
        try:
            act()
        except error:
            failures += 1
        else:
            return failures


def walk(aws, resources, hooks, do, error):
    """Create and delete while `do` runs at changing calls.

    Returns:
        The states after creation and deletion, and the numbers of restarts of both.
    """
    hooks.append(do)
    creation_restarts = retried(lambda: apply(resources, quiet), error)
    hooks.clear()
    created = aws.state()
    assert {change.action for change in plan(resources)} == {"no-op"}
    aws.write(aws.names(), "trading")
    hooks.append(do)
    deletion_restarts = retried(lambda: destroy(resources, quiet, delete_data=True), error)
    hooks.clear()
    return created, aws.state(), creation_restarts, deletion_restarts


def every_other(do):
    """Return a hook that calls `do` at every other call, so that the repetition of a stopped call succeeds."""
    count = []

    def maybe(request):
        count.append(request)
        if len(count) % 2:
            do(request)

    return maybe


def kill(request):
    raise Killed


def lose(request):
    """Send a request and lose its response."""
    URLLib3Session().send(request)
    raise ConnectionClosedError(endpoint_url=request.url)


@pytest.fixture(scope="module")
def uninterrupted(shared, resources):
    """Return the states of an uninterrupted walk, and the number of its changing calls."""
    shared.reset()
    empty, sent = shared.state(), []
    created, gone, _, _ = walk(shared, resources, shared.on_send, sent.append, ())
    assert gone == empty
    return created, gone, len(sent)


def test_walk_killed_before_each_change_resumes(aws, resources, uninterrupted):
    created, gone, changes = uninterrupted
    walked = walk(aws, resources, aws.on_send, every_other(kill), Killed)
    assert walked[:2] == (created, gone)
    assert sum(walked[2:]) == changes


def test_walk_killed_after_each_change_resumes(aws, resources, uninterrupted):
    created, gone, changes = uninterrupted
    walked = walk(aws, resources, aws.on_response, kill, Killed)
    assert walked[:2] == (created, gone)
    assert sum(walked[2:]) == changes


def test_walk_response_lost_once_continues(aws, resources, uninterrupted):
    created, gone, _ = uninterrupted
    assert walk(aws, resources, aws.on_send, every_other(lose), ()) == (created, gone, 0, 0)


def test_walk_without_responses_has_same_result(aws, resources, uninterrupted):
    created, gone, _ = uninterrupted
    walked = walk(aws, resources, aws.on_send, lose, LakehouseError)
    assert walked[:2] == (created, gone)
