"""plan, create and delete over a small cloud of our own: order, resumption after a kill anywhere, what is kept."""

from dataclasses import dataclass, field

import pytest

from lakehouse.core.errors import LakehouseError, OutcomeUnknownError, UnclearState
from lakehouse.deploy.planner import create, delete, plan, plan_deletion, survey
from lakehouse.deploy.step import Step


class Killed(Exception):
    """The process ended here."""


@dataclass
class Cloud:
    """Things by name with their settings; may end the caller before or after its n-th change, or lose the answer."""

    things: dict[str, str] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    fault: tuple[int, str, type[Exception]] | None = None

    def apply(self, change, name, do):
        n, moment, error = self.fault or (0, "", Killed)
        mine = len(self.changes) + 1 == n
        if mine and moment == "before":
            self.fault = None
            raise error("before it was done")
        self.changes.append(f"{change} {name}")
        do()
        if mine:
            self.fault = None
            raise error("after it was done")


@dataclass(frozen=True)
class Thing(Step):
    cloud: Cloud
    name: str
    needs: tuple[str, ...] = ()
    setting: str = "right"
    data: bool = False
    foreign: str = ""

    @property
    def what(self):
        return f"thing {self.name}"

    @property
    def holds_data(self):
        return self.data

    def find(self, found):
        assert set(found) == set(self.needs)
        return self.cloud.things.get(self.name)

    def create(self, found):
        assert self.name not in self.cloud.things, "made twice"
        self.cloud.apply("create", self.name, lambda: self.cloud.things.__setitem__(self.name, self.setting))
        return self.setting

    def differences(self, found, it):
        return [] if it == self.setting else [f"is {it}"]

    def change(self, found, it):
        self.cloud.apply("change", self.name, lambda: self.cloud.things.__setitem__(self.name, self.setting))
        return self.setting

    def delete(self, found, it):
        self.cloud.apply("delete", self.name, lambda: self.cloud.things.pop(self.name))

    def kept(self, found, it):
        return self.foreign


@pytest.fixture
def cloud():
    return Cloud()


@pytest.fixture
def steps(cloud):
    return [
        Thing(cloud, "bucket", data=True),
        Thing(cloud, "environment"),
        Thing(cloud, "cluster", ("environment",)),
        Thing(cloud, "topic", ("cluster", "environment")),
    ]


def said(actions):
    return [(action.step.name, action.verb) for action in actions]


def quiet(action):
    """Nobody is told."""


def test_a_plan_says_what_is_missing_or_different_and_changes_nothing(cloud, steps):
    cloud.things |= {"bucket": "wrong", "environment": "right"}
    actions = list(plan(steps))
    assert said(actions) == [("bucket", "change"), ("environment", "keep"), ("cluster", "create"), ("topic", "create")]
    assert [action.why for action in actions][0::3] == ["is wrong", "comes after cluster"]
    assert not cloud.changes


@dataclass(frozen=True)
class Unanswered(Thing):
    error: Exception = LakehouseError("no key was given")

    def find(self, found):
        self.cloud.changes.append("asked")
        raise self.error


def test_a_cloud_that_cannot_be_asked_hides_no_other(cloud):
    cloud.things |= {"aws/bucket": "right", "aws/role": "right", "aws/tables": "right"}
    steps = [
        Thing(cloud, "aws/bucket"),
        Unanswered(cloud, "flake/volume"),
        Unanswered(cloud, "flake/user"),
        Thing(cloud, "aws/role", ("flake/volume",)),
        Thing(cloud, "aws/tables", ("aws/role",)),
        Thing(cloud, "fluent/topic", ("aws/bucket",)),
    ]
    told = {action.step.name: (action.verb, action.why) for action in survey(steps)}
    assert told == {
        "aws/bucket": ("keep", "is as it should be"),
        "flake/volume": ("unknown", "no key was given"),
        "flake/user": ("unknown", "as thing flake/volume"),
        "aws/role": ("unknown", "comes after flake/volume"),
        "aws/tables": ("unknown", "comes after aws/role"),
        "fluent/topic": ("create", "is not there"),
    }
    assert cloud.changes == ["asked"], "who refused once is not asked again"


def test_what_is_somebody_elses_is_no_cloud_that_cannot_be_asked(cloud):
    with pytest.raises(UnclearState, match="theirs"):
        list(survey([Unanswered(cloud, "aws/bucket", error=UnclearState("it is theirs"))]))


def test_create_does_what_the_plan_said_and_then_there_is_nothing_to_do(cloud, steps):
    cloud.things["bucket"] = "wrong"
    told = []
    assert set(create(steps, told.append)) == {"bucket", "environment", "cluster", "topic"}
    assert cloud.changes == ["change bucket", "create environment", "create cluster", "create topic"]
    assert [action.seconds is None for action in told] == [True, False] * 4
    assert {action.verb for action in plan(steps)} == {"keep"}
    create(steps, quiet)
    assert len(cloud.changes) == 4


def test_delete_goes_backward_and_keeps_data_unless_told(cloud, steps):
    create(steps, quiet)
    expected = [("topic", "delete"), ("cluster", "delete"), ("environment", "delete"), ("bucket", "keep")]
    assert said(plan_deletion(steps, delete_data=False)) == expected
    delete(steps, quiet, delete_data=False)
    assert cloud.changes[4:] == ["delete topic", "delete cluster", "delete environment"]
    assert set(cloud.things) == {"bucket"}
    delete(steps, quiet, delete_data=True)
    assert not cloud.things
    assert {action.verb for action in plan_deletion(steps, delete_data=True)} == {"absent"}


@dataclass(frozen=True)
class Alone(Thing):
    lives_in = ()

    def find(self, found):
        return self.cloud.things.get(self.name)


def test_what_lives_in_nothing_is_taken_away_when_what_it_needed_is_gone(cloud):
    steps = [Thing(cloud, "volume"), Alone(cloud, "role", ("volume",)), Thing(cloud, "verified", ("role", "volume"))]
    create(steps, quiet)
    del cloud.things["volume"], cloud.things["verified"]
    assert said(plan_deletion(steps, delete_data=True)) == [
        ("verified", "absent"),
        ("role", "delete"),
        ("volume", "absent"),
    ]
    assert said(plan(steps))[1] == ("role", "create"), "it is set right once the volume is there again"
    delete(steps, quiet, delete_data=True)
    assert not cloud.things


def test_delete_leaves_what_holds_something_foreign_and_says_so(cloud):
    steps = [Thing(cloud, "environment", foreign="a cluster is in it that is not ours")]
    create(steps, quiet)
    [action] = plan_deletion(steps, delete_data=True)
    assert (action.verb, action.why) == ("keep", "a cluster is in it that is not ours")
    delete(steps, quiet, delete_data=True)
    assert set(cloud.things) == {"environment"}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("error", [Killed, OutcomeUnknownError, LakehouseError])
def test_ended_at_any_change_and_begun_again_it_ends_as_if_nothing_had_happened(moment, error):
    def walk(cloud):
        steps = [
            Thing(cloud, "bucket", data=True),
            Thing(cloud, "environment"),
            Thing(cloud, "cluster", ("environment",)),
        ]
        for act in (lambda: create(steps, quiet), lambda: delete(steps, quiet, delete_data=True)):
            while True:
                try:
                    act()
                    break
                except error:
                    continue
        return cloud

    whole = walk(Cloud())
    for n in range(1, len(whole.changes) + 1):
        ended = walk(Cloud(fault=(n, moment, error)))
        assert ended.changes == whole.changes and ended.things == whole.things


def test_an_error_names_its_step(cloud, steps):
    cloud.fault = (2, "before", LakehouseError)
    with pytest.raises(LakehouseError) as failed:
        create(steps, quiet)
    assert failed.value.__notes__ == ["Step: environment (thing environment)"]


def test_a_step_before_what_it_needs_is_a_mistake_of_ours(cloud):
    with pytest.raises(ValueError, match="cluster"):
        list(plan([Thing(cloud, "cluster", ("environment",)), Thing(cloud, "environment")]))
