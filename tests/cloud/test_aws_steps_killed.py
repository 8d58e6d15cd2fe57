"""Making and deleting what is in AWS, ended or cut off at every changing call: it goes on, and ends the same."""

from types import SimpleNamespace

import pytest
from aws_world import world
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.planner import create, delete, plan

pytest_plugins = ["aws_fixtures"]
pytestmark = pytest.mark.stack


class Killed(BaseException):
    """The process ended here."""


@pytest.fixture(scope="module")
def shared():
    with pytest.MonkeyPatch.context() as patch:
        # botocore repeats calls without pauses.
        patch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda seconds: None))
        with world(patch) as it:
            yield it


@pytest.fixture
def aws(shared, whole):
    shared.reset()
    return shared


@pytest.fixture(scope="module")
def steps(shared):
    """A step of each kind."""
    config = Config(namespace="trading", topics={"trades": Topic(name="trades")}, environments={})
    return shared.steps(config, spark_principals=())


def quiet(action):
    """Nobody is told."""


def stubborn(act, error):
    """Do it until it ends well; how often it did not."""
    times = 0
    while True:
        try:
            act()
        except error:
            times += 1
        else:
            return times


def walk(aws, steps, hooks, do, error):
    """Create and delete while `do` is done at changing calls: the state after each, how often each was begun again."""
    hooks.append(do)
    made = stubborn(lambda: create(steps, quiet), error)
    hooks.clear()
    created = aws.state()
    assert {action.verb for action in plan(steps)} == {"keep"}
    aws.write(aws.names(), "trading")
    hooks.append(do)
    gone = stubborn(lambda: delete(steps, quiet, delete_data=True), error)
    hooks.clear()
    return created, aws.state(), made, gone


def every_other(do):
    """At the first, third … call: what was stopped before it was sent comes again, and then gets through."""
    count = []

    def maybe(request):
        count.append(request)
        if len(count) % 2:
            do(request)

    return maybe


def kill(request):
    raise Killed


def lose(request):
    """It is sent and acted upon, but its answer does not arrive."""
    URLLib3Session().send(request)
    raise ConnectionClosedError(endpoint_url=request.url)


@pytest.fixture(scope="module")
def whole(shared, steps):
    """An undisturbed walk: the states, and how many changing calls it has."""
    shared.reset()
    empty, sent = shared.state(), []
    created, gone, _, _ = walk(shared, steps, shared.on_send, sent.append, ())
    assert gone == empty
    return created, gone, len(sent)


def test_killed_before_every_changing_call(aws, steps, whole):
    created, gone, changes = whole
    walked = walk(aws, steps, aws.on_send, every_other(kill), Killed)
    assert walked[:2] == (created, gone)
    assert sum(walked[2:]) == changes


def test_killed_after_every_changing_call(aws, steps, whole):
    created, gone, changes = whole
    walked = walk(aws, steps, aws.on_answer, kill, Killed)
    assert walked[:2] == (created, gone)
    assert sum(walked[2:]) == changes


def test_an_answer_that_is_lost_once_stops_nothing(aws, steps, whole):
    created, gone, _ = whole
    assert walk(aws, steps, aws.on_send, every_other(lose), ()) == (created, gone, 0, 0)


def test_with_no_answer_to_any_change_it_ends_the_same(aws, steps, whole):
    created, gone, _ = whole
    walked = walk(aws, steps, aws.on_send, lose, LakehouseError)
    assert walked[:2] == (created, gone)
