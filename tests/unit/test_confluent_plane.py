"""One call to a plane: what is repeated, what never, what each refusal is called, and what no message shows."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from confluent_server import ADMIN, ConfluentServer, Fault
from sleepless import Sleepless

from lakehouse.core.errors import OutcomeUnknownError, UnclearState, Unreachable
from resources.confluent import URL
from resources.confluent.api_keys import Scope
from resources.confluent.errors import Conflict, ConfluentError, Gone, Limited, Refused, Rejected
from resources.confluent.organization import Environments, ServiceAccounts
from resources.confluent.plane import Key, Plane
from resources.confluent_cloud import ConfluentCloud

pytest_plugins = ["confluent_fixtures"]

ENVIRONMENTS = "/org/v2/environments"
BODY = {"display_name": "lake"}


@pytest.fixture
def plane(vendor: ConfluentServer, sleepless: Sleepless) -> Plane:
    return Plane("Confluent Cloud", vendor.url, Key(ADMIN, vendor.admin_secret), clock=sleepless.clock)


def answer(status: int, text: str = "", **headers: str) -> tuple[int, dict[str, str], str]:
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, text


def test_the_address_is_confluents_own_unless_another_is_given():
    assert ConfluentCloud(api_key="a", api_secret="b").plane().url == URL == "https://api.confluent.cloud"


def test_a_busy_plane_is_asked_again_when_it_says(plane: Plane, vendor: ConfluentServer, sleepless: Sleepless):
    vendor.faults = [Fault(answer=answer(429, Retry_After="7")), Fault(nth=2, answer=answer(429, Retry_After="0"))]
    assert list(plane.items(ENVIRONMENTS)) == []
    assert sleepless.pauses == [7, 1]


def test_pauses_double_when_the_plane_does_not_say(plane: Plane, vendor: ConfluentServer, sleepless: Sleepless):
    vendor.faults = [Fault(times=7, answer=answer(429, "<html><title>Too Many</title></html>"))]
    assert list(plane.items(ENVIRONMENTS)) == []
    assert sleepless.pauses == [1, 2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_broken_plane_is_asked_again(plane: Plane, vendor: ConfluentServer, status: int):
    vendor.faults = [Fault(times=2, answer=answer(status))]
    assert list(plane.items(ENVIRONMENTS)) == []
    assert len(vendor.calls) == 3


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_question_whose_answer_is_lost_is_asked_again(plane: Plane, vendor: ConfluentServer, cut: str):
    vendor.faults = [Fault(times=2, cut=cut)]
    assert list(plane.items(ENVIRONMENTS)) == []
    assert len(vendor.calls) == 3


@pytest.mark.parametrize(("cut", "made"), [("before", 0), ("after", 1)])
def test_a_post_whose_answer_is_lost_is_not_sent_again(plane: Plane, vendor: ConfluentServer, cut: str, made: int):
    vendor.faults = [Fault(cut=cut)]
    with pytest.raises(OutcomeUnknownError, match="may have been carried out or not"):
        Environments(plane).create("lake")
    assert vendor.calls == [("POST", ENVIRONMENTS)]
    assert len(vendor.state.environments) == made
    assert bool(Environments(plane).find("lake")) == bool(made)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_post_to_a_broken_plane_is_not_sent_again(plane: Plane, vendor: ConfluentServer, status: int):
    vendor.faults = [Fault(answer=answer(status))]
    with pytest.raises(OutcomeUnknownError):
        Environments(plane).create("lake")
    assert len(vendor.calls) == 1


def test_a_post_that_was_turned_away_is_sent_again(plane: Plane, vendor: ConfluentServer):
    vendor.faults = [Fault(answer=answer(429))]
    Environments(plane).create("lake")
    assert len(vendor.state.environments) == 1


def test_a_post_that_never_arrived_changed_nothing(sleepless: Sleepless):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        plane = Plane("Confluent Cloud", url, Key("a", "b"), deadline_seconds=20, clock=sleepless.clock)
        with pytest.raises(Unreachable, match="Nothing was changed"):
            plane.call("POST", ENVIRONMENTS, body=BODY)
    assert sleepless.pauses == [1, 2, 4, 8]


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_delete_whose_answer_is_lost_is_sent_again(plane: Plane, vendor: ConfluentServer, cut: str):
    environment = Environments(plane).create("lake")
    vendor.faults = [Fault(cut=cut)]
    Environments(plane).delete(environment.id)
    assert vendor.state.environments == {}


def test_a_change_without_an_answer_until_the_deadline_is_unsure(plane: Plane, vendor: ConfluentServer):
    vendor.faults = [Fault(times=100, cut="before")]
    with pytest.raises(OutcomeUnknownError):
        plane.call("DELETE", f"{ENVIRONMENTS}/env-1")


def test_the_deadline_ends_it(plane: Plane, vendor: ConfluentServer, sleepless: Sleepless):
    vendor.faults = [Fault(times=100, answer=answer(429, Retry_After="50"))]
    with pytest.raises(Limited, match="120 seconds"):
        list(plane.items(ENVIRONMENTS))
    assert sum(sleepless.pauses) <= 120
    vendor.faults = [Fault(times=100, answer=answer(503))]
    with pytest.raises(Unreachable):
        list(plane.items(ENVIRONMENTS))


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_all_pages_are_read(plane: Plane, vendor: ConfluentServer, size: int):
    for n in range(5):
        Environments(plane).create(f"lake-{n}")
    vendor.state.page_size = size
    assert [each.name for each in Environments(plane).list()] == [f"lake-{n}" for n in range(5)]


@pytest.mark.parametrize("end", [{}, {"next": None}, {"next": ""}])
def test_a_list_ends_in_any_of_three_ways(plane: Plane, vendor: ConfluentServer, end: dict[str, Any]):
    vendor.faults = [Fault(answer=answer(200, json.dumps({"data": [{"id": "a"}], "metadata": end})))]
    assert list(plane.items(ENVIRONMENTS)) == [{"id": "a"}]


def test_the_next_page_is_asked_of_the_same_address(plane: Plane, vendor: ConfluentServer):
    elsewhere = {"data": [], "metadata": {"next": "https://elsewhere.invalid/steal?page_token=MA=="}}
    vendor.faults = [Fault(answer=answer(200, json.dumps(elsewhere)))]
    assert list(plane.items(ENVIRONMENTS)) == []
    assert vendor.calls == [("GET", ENVIRONMENTS)] * 2


@pytest.mark.parametrize(
    ("ask", "status", "text", "kind", "words"),
    [
        (lambda p: p.call("GET", "/cmk/v2/clusters/lkc-1"), 404, "", Gone, "404"),
        (lambda p: p.call("GET", "/cmk/v2/clusters/lkc-1"), 403, "Forbidden Access", Gone, "key ADMIN-KEY may see"),
        (lambda p: p.call("GET", "/cmk/v2/clusters/lkc-1"), 403, "invalid API key", Refused, "does not know the key"),
        (lambda p: p.call("DELETE", "/cmk/v2/clusters/lkc-1"), 403, "invalid API key", Refused, "Nothing was changed"),
        (lambda p: p.call("GET", "/cmk/v2/clusters/lkc-1"), 401, "", Refused, "does not know the key ADMIN-KEY"),
        (lambda p: list(p.items("/cmk/v2/clusters")), 403, "", Refused, "EnvironmentAdmin on the environment"),
        (lambda p: p.call("POST", "/sql/v1/x"), 403, "", Refused, "FlinkDeveloper"),
        (lambda p: p.call("POST", "/tableflow/v1/catalog-integrations"), 403, "", Refused, "Assigner on the provider"),
        (lambda p: p.call("POST", ENVIRONMENTS), 403, "", Refused, "OrganizationAdmin"),
        (lambda p: p.call("POST", ENVIRONMENTS), 409, "", Conflict, "Nothing was changed"),
        (lambda p: p.call("POST", ENVIRONMENTS), 422, "", Rejected, "Correct it"),
        (lambda p: p.call("POST", ENVIRONMENTS), 402, "", Rejected, "Nothing was changed"),
        (lambda p: p.call("POST", ENVIRONMENTS), 418, "", ConfluentError, "not understood"),
        (lambda p: p.call("GET", ENVIRONMENTS), 302, "", ConfluentError, "not understood"),
        (lambda p: p.call("GET", ENVIRONMENTS), 200, "<html><title>Log in</title></html>", ConfluentError, "Log in"),
    ],
)
def test_each_refusal_has_its_name(
    plane: Plane,
    vendor: ConfluentServer,
    ask: Callable[[Plane], Any],
    status: int,
    text: str,
    kind: type[Exception],
    words: str,
):
    vendor.faults = [Fault(answer=answer(status, text))]
    with pytest.raises(kind, match=words) as caught:
        ask(plane)
    assert type(caught.value) is kind
    assert len(vendor.calls) == 1


def test_what_is_gone_is_none_and_deleting_it_is_well(plane: Plane):
    assert plane.find(f"{ENVIRONMENTS}/env-none") is None
    Environments(plane).delete("env-none")
    ServiceAccounts(plane).delete("sa-none")


def test_a_wrong_key_does_not_make_everything_look_gone(vendor: ConfluentServer, confluent: ConfluentCloud):
    environment = confluent.environments().create("lake")
    wrong = ConfluentCloud(api_key=ADMIN, api_secret="wrong", url=vendor.url)
    with pytest.raises(Refused):
        wrong.clusters(environment.id).get("lkc-1")
    with pytest.raises(Refused):
        wrong.environments().delete(environment.id)
    assert len(vendor.state.environments) == 1


def test_a_key_of_another_plane_is_refused(vendor: ConfluentServer, confluent: ConfluentCloud):
    vendor.state.polls = 0
    environment = confluent.environments().create("lake")
    cluster = confluent.clusters(environment.id).create("lake", "us-east-1")
    cluster = confluent.clusters(environment.id).get(cluster.id)
    account = confluent.service_accounts().create("a", "a")
    key = confluent.api_keys().create("k", "k", account.id, Scope.tableflow()).key
    with pytest.raises(Refused, match="401 Error 401 Unauthorized"):
        confluent.topics(cluster, key).list()
    assert confluent.tableflow_topics(cluster, key).list() == []


def test_two_of_one_name_are_nobodys(confluent: ConfluentCloud):
    first, second = (confluent.environments().create("lake") for _ in range(2))
    with pytest.raises(UnclearState, match=f"{first.id}, {second.id}"):
        confluent.environments().find("lake")


def test_a_call_against_the_contract_fails_the_test(plane: Plane, vendor: ConfluentServer):
    with pytest.raises(ConfluentError, match="599"):
        plane.call("POST", ENVIRONMENTS, body={"name": "lake"})
    assert any("'display_name' is a required property" in each for each in vendor.violations)
    vendor.violations.clear()


def test_no_message_and_no_repr_shows_a_secret(vendor: ConfluentServer, confluent: ConfluentCloud, plane: Plane):
    secret = vendor.admin_secret
    account = confluent.service_accounts().create("a", "a")
    key = confluent.api_keys().create("k", "k", account.id, Scope.tableflow())
    assert key.secret and key.secret not in f"{key!r} {key} {key.key!r}"
    assert secret not in f"{confluent!r} {confluent} {plane!r} {confluent.environments()!r}"
    vendor.faults = [Fault(answer=answer(400, f"you sent {secret}")), Fault(nth=2, cut="before", times=100)]
    with pytest.raises(Rejected) as rejected:
        plane.call("POST", ENVIRONMENTS, body=BODY)
    with pytest.raises(OutcomeUnknownError) as unsure:
        plane.call("POST", ENVIRONMENTS, body=BODY)
    assert secret not in f"{rejected.value} {unsure.value}"
