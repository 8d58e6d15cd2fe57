"""plan, create and delete over a simulated cloud: order, resumption after a kill, and retained resources."""

from dataclasses import dataclass, field

import pytest

from lakehouse.core.errors import LakehouseError, OutcomeUnknownError, UnclearState
from lakehouse.deploy.planner import apply, destroy, plan, plan_destroy, plan_reachable
from lakehouse.deploy.resource import Resource, Undeletable, Updatable


class Killed(Exception):
    """The simulated end of the process."""


@dataclass
class Cloud:
    """Resources by name with their settings, and a fault before or after the n-th change."""

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
class Thing(Updatable):
    cloud: Cloud
    address: str
    depends_on: tuple[Resource, ...] = ()
    setting: str = "right"
    data: bool = False
    foreign: str = ""

    @property
    def label(self):
        return f"thing {self.address}"

    @property
    def holds_data(self):
        return self.data

    def read(self, outputs):
        assert all(dependency in outputs for dependency in self.depends_on)
        return self.cloud.things.get(self.address)

    def create(self, outputs):
        assert self.address not in self.cloud.things, "made twice"
        self.cloud.apply("create", self.address, lambda: self.cloud.things.__setitem__(self.address, self.setting))
        return self.setting

    def diff(self, outputs, current):
        return [] if current == self.setting else [f"is {current}"]

    def update(self, outputs, current):
        self.cloud.apply("update", self.address, lambda: self.cloud.things.__setitem__(self.address, self.setting))
        return self.setting

    def delete(self, outputs, current):
        self.cloud.apply("delete", self.address, lambda: self.cloud.things.pop(self.address))

    def retained(self, outputs, current):
        return self.foreign


@pytest.fixture
def cloud():
    return Cloud()


@pytest.fixture
def resources(cloud):
    environment = Thing(cloud, "environment")
    cluster = Thing(cloud, "cluster", (environment,))
    return [Thing(cloud, "bucket", data=True), environment, cluster, Thing(cloud, "topic", (cluster, environment))]


def actions(changes):
    return [(change.resource.address, change.action) for change in changes]


def quiet(change):
    """Ignore a reported change."""


def test_plan_reports_differences_and_changes_nothing(cloud, resources):
    cloud.things |= {"bucket": "wrong", "environment": "right"}
    changes = list(plan(resources))
    assert actions(changes) == [
        ("bucket", "update"),
        ("environment", "no-op"),
        ("cluster", "create"),
        ("topic", "create"),
    ]
    assert [change.reason for change in changes][0::3] == ["is wrong", "waits for cluster"]
    assert not cloud.changes


@dataclass(frozen=True)
class Unanswered(Thing):
    error: Exception = LakehouseError("no key was given")

    def read(self, outputs):
        self.cloud.changes.append("asked")
        raise self.error


def test_plan_unreachable_cloud_shows_the_others(cloud):
    cloud.things |= {"aws/bucket": "right", "aws/role": "right", "aws/tables": "right"}
    bucket, volume = Thing(cloud, "aws/bucket"), Unanswered(cloud, "flake/volume")
    role = Thing(cloud, "aws/role", (volume,))
    resources = [
        bucket,
        volume,
        Unanswered(cloud, "flake/user"),
        role,
        Thing(cloud, "aws/tables", (role,)),
        Thing(cloud, "fluent/topic", (bucket,)),
    ]
    changes = {change.resource.address: (change.action, change.reason) for change in plan_reachable(resources)}
    assert changes == {
        "aws/bucket": ("no-op", "is as it should be"),
        "flake/volume": ("unknown", "no key was given"),
        "flake/user": ("unknown", "as thing flake/volume"),
        "aws/role": ("unknown", "waits for flake/volume"),
        "aws/tables": ("unknown", "waits for aws/role"),
        "fluent/topic": ("create", "does not exist"),
    }
    assert cloud.changes == ["asked"], "who refused once is not asked again"


def test_plan_foreign_resource_stops(cloud):
    with pytest.raises(UnclearState, match="theirs"):
        list(plan_reachable([Unanswered(cloud, "aws/bucket", error=UnclearState("it is theirs"))]))


def test_create_executes_plan_and_leaves_no_changes(cloud, resources):
    cloud.things["bucket"] = "wrong"
    reported = []
    outputs = apply(resources, reported.append)
    assert {resource.address: outputs[resource] for resource in resources} == cloud.things
    assert cloud.changes == ["update bucket", "create environment", "create cluster", "create topic"]
    assert [change.seconds is None for change in reported] == [True, False] * 4
    assert {change.action for change in plan(resources)} == {"no-op"}
    apply(resources, quiet)
    assert len(cloud.changes) == 4


def test_delete_in_reverse_order_keeps_data(cloud, resources):
    apply(resources, quiet)
    expected = [("topic", "delete"), ("cluster", "delete"), ("environment", "delete"), ("bucket", "retain")]
    assert actions(plan_destroy(resources, delete_data=False)) == expected
    destroy(resources, quiet, delete_data=False)
    assert cloud.changes[4:] == ["delete topic", "delete cluster", "delete environment"]
    assert set(cloud.things) == {"bucket"}
    destroy(resources, quiet, delete_data=True)
    assert not cloud.things
    assert {change.action for change in plan_destroy(resources, delete_data=True)} == {"absent"}


@dataclass(frozen=True)
class Alone(Thing):
    read_depends_on = ()

    def read(self, outputs):
        return self.cloud.things.get(self.address)


def test_delete_resource_after_its_dependency_is_gone(cloud):
    volume = Thing(cloud, "volume")
    role = Alone(cloud, "role", (volume,))
    resources = [volume, role, Thing(cloud, "verified", (role, volume))]
    apply(resources, quiet)
    del cloud.things["volume"], cloud.things["verified"]
    assert actions(plan_destroy(resources, delete_data=True)) == [
        ("verified", "absent"),
        ("role", "delete"),
        ("volume", "absent"),
    ]
    assert actions(plan(resources))[1] == ("role", "create"), "it is set right once the volume is there again"
    destroy(resources, quiet, delete_data=True)
    assert not cloud.things


@dataclass(frozen=True)
class Permanent(Unanswered, Undeletable):
    retained_because = "existed before"


def test_delete_does_not_need_what_is_never_deleted(cloud):
    """A key whose secret is lost, for example, is deleted with its user."""
    user = Thing(cloud, "user")
    key = Permanent(cloud, "key", (user,))
    resources = [user, key, Permanent(cloud, "verified", (key,)), Permanent(cloud, "warehouse")]
    apply([user], quiet)
    expected = [("warehouse", "retain"), ("verified", "retain"), ("key", "retain"), ("user", "delete")]
    assert actions(plan_destroy(resources, delete_data=False)) == expected
    destroy(resources, quiet, delete_data=False)
    assert not cloud.things and "asked" not in cloud.changes
    expected = [("warehouse", "retain"), ("verified", "absent"), ("key", "absent"), ("user", "absent")]
    assert actions(plan_destroy(resources, delete_data=False)) == expected


def test_delete_reads_what_others_are_read_with(cloud):
    """An existing environment, for example, has to be read before its topics."""
    environment = Permanent(cloud, "environment", error=LakehouseError("no access"))
    resources = [environment, Thing(cloud, "topic", (environment,))]
    with pytest.raises(LakehouseError, match="no access"):
        destroy(resources, quiet, delete_data=True)


def test_delete_resource_with_foreign_content_is_kept(cloud):
    resources = [Thing(cloud, "environment", foreign="a cluster is in it that is not ours")]
    apply(resources, quiet)
    [change] = plan_destroy(resources, delete_data=True)
    assert (change.action, change.reason) == ("retain", "a cluster is in it that is not ours")
    destroy(resources, quiet, delete_data=True)
    assert set(cloud.things) == {"environment"}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("error", [Killed, OutcomeUnknownError, LakehouseError])
def test_create_and_delete_interrupted_at_any_change_resume(moment, error):
    def walk(cloud):
        environment = Thing(cloud, "environment")
        resources = [Thing(cloud, "bucket", data=True), environment, Thing(cloud, "cluster", (environment,))]
        for act in (lambda: apply(resources, quiet), lambda: destroy(resources, quiet, delete_data=True)):
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


def test_apply_error_has_note_of_its_resource(cloud, resources):
    cloud.fault = (2, "before", LakehouseError)
    with pytest.raises(LakehouseError) as failed:
        apply(resources, quiet)
    assert failed.value.__notes__ == ["Resource: environment (thing environment)"]


def test_apply_wrong_order_is_refused(cloud):
    with pytest.raises(ValueError, match="cluster"):
        environment = Thing(cloud, "environment")
        list(plan([Thing(cloud, "cluster", (environment,)), environment]))
