"""Calls of the API client: retries, error classes, paging, and messages without secrets."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import make_dataclass
from typing import Any

import pytest

from lakehouse.core.errors import OutcomeUnknownError, UnclearState, Unreachable
from resources.confluent import URL
from resources.confluent.api_client import (
    ApiClient,
    Conflict,
    ConfluentError,
    Forbidden,
    InvalidRequest,
    Key,
    NotFound,
    RateLimited,
)
from resources.confluent.clusters import Clusters
from resources.confluent.confluent_cloud import ConfluentCloud
from resources.confluent.organization import ApiKeys, Environments, KeyScope, ServiceAccounts
from tests.support.clouds.confluent.server import ADMIN, ConfluentServer, Fault
from tests.support.sleepless import Sleepless

ENVIRONMENTS = "/org/v2/environments"
BODY = {"display_name": "lake"}


@pytest.fixture
def client(vendor: ConfluentServer, sleepless: Sleepless) -> ApiClient:
    return ApiClient("Confluent Cloud", vendor.url, Key(ADMIN, vendor.admin_secret), clock=sleepless.clock)


def response(status: int, text: str = "", **headers: str) -> tuple[int, dict[str, str], str]:
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, text


def test_plane_default_address_is_confluent_cloud():
    assert ConfluentCloud(api_key="a", api_secret="b").client().url == URL == "https://api.confluent.cloud"


def test_call_busy_api_is_repeated_after_retry_after(client: ApiClient, vendor: ConfluentServer, sleepless: Sleepless):
    vendor.faults = [
        Fault(response=response(429, Retry_After="7")),
        Fault(nth=2, response=response(429, Retry_After="0")),
    ]
    assert list(client.items(ENVIRONMENTS, dict)) == []
    assert sleepless.pauses == [7, 1]


def test_call_busy_api_pauses_double(client: ApiClient, vendor: ConfluentServer, sleepless: Sleepless):
    vendor.faults = [Fault(times=7, response=response(429, "<html><title>Too Many</title></html>"))]
    assert list(client.items(ENVIRONMENTS, dict)) == []
    assert sleepless.pauses == [1, 2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize("invalid", ["\xb2", "9" * 5000, "soon", "-1", "1.5"])
def test_call_busy_api_with_invalid_retry_after_is_repeated(
    client: ApiClient, vendor: ConfluentServer, sleepless: Sleepless, invalid: str
):
    vendor.faults = [Fault(response=response(429, Retry_After=invalid))]
    assert list(client.items(ENVIRONMENTS, dict)) == []
    assert sleepless.pauses == [1]


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_get_server_error_is_repeated(client: ApiClient, vendor: ConfluentServer, status: int):
    vendor.faults = [Fault(times=2, response=response(status))]
    assert list(client.items(ENVIRONMENTS, dict)) == []
    assert len(vendor.calls) == 3


@pytest.mark.parametrize("cut", ["before", "after"])
def test_get_lost_response_is_repeated(client: ApiClient, vendor: ConfluentServer, cut: str):
    vendor.faults = [Fault(times=2, cut=cut)]
    assert list(client.items(ENVIRONMENTS, dict)) == []
    assert len(vendor.calls) == 3


@pytest.mark.parametrize(("cut", "created"), [("before", 0), ("after", 1)])
def test_post_lost_response_is_not_repeated(client: ApiClient, vendor: ConfluentServer, cut: str, created: int):
    vendor.faults = [Fault(cut=cut)]
    with pytest.raises(OutcomeUnknownError, match="may have been executed or not"):
        Environments(client).create("lake")
    assert vendor.calls == [("POST", ENVIRONMENTS)]
    assert len(vendor.state.environments) == created
    assert bool(Environments(client).find("lake")) == bool(created)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_post_server_error_is_not_repeated(client: ApiClient, vendor: ConfluentServer, status: int):
    vendor.faults = [Fault(response=response(status))]
    with pytest.raises(OutcomeUnknownError):
        Environments(client).create("lake")
    assert len(vendor.calls) == 1


def test_post_limited_is_repeated(client: ApiClient, vendor: ConfluentServer):
    vendor.faults = [Fault(response=response(429))]
    Environments(client).create("lake")
    assert len(vendor.state.environments) == 1


def test_post_not_connected_is_unreachable(sleepless: Sleepless):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        client = ApiClient("Confluent Cloud", url, Key("a", "b"), deadline_seconds=20, clock=sleepless.clock)
        with pytest.raises(Unreachable, match="The call did not complete"):
            client.call("POST", ENVIRONMENTS, body=BODY)
    assert sleepless.pauses == [1, 2, 4, 8]


@pytest.mark.parametrize("cut", ["before", "after"])
def test_delete_lost_response_is_repeated(client: ApiClient, vendor: ConfluentServer, cut: str):
    environment = Environments(client).create("lake")
    vendor.faults = [Fault(cut=cut)]
    Environments(client).delete(environment.id)
    assert vendor.state.environments == {}


def test_delete_without_response_is_of_unknown_outcome(client: ApiClient, vendor: ConfluentServer):
    vendor.faults = [Fault(times=100, cut="before")]
    with pytest.raises(OutcomeUnknownError):
        client.call("DELETE", f"{ENVIRONMENTS}/env-1")


def test_call_past_deadline_raises(client: ApiClient, vendor: ConfluentServer, sleepless: Sleepless):
    vendor.faults = [Fault(times=100, response=response(429, Retry_After="50"))]
    with pytest.raises(RateLimited, match="120 seconds"):
        list(client.items(ENVIRONMENTS, dict))
    assert sum(sleepless.pauses) <= 120
    vendor.faults = [Fault(times=100, response=response(503))]
    with pytest.raises(Unreachable):
        list(client.items(ENVIRONMENTS, dict))


@pytest.mark.parametrize("annotation", [str, "str"])
def test_find_field_of_another_type_is_refused(client: ApiClient, vendor: ConfluentServer, annotation: Any):
    parsed: Any = make_dataclass("Parsed", [("name", annotation)])
    vendor.faults = [Fault(response=response(200, '{"name": null}'))]
    with pytest.raises(ConfluentError, match="name is no str"):
        client.find(ENVIRONMENTS, lambda document: parsed(document["name"]))


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_list_reads_all_pages(client: ApiClient, vendor: ConfluentServer, size: int):
    for n in range(5):
        Environments(client).create(f"lake-{n}")
    vendor.state.page_size = size
    assert [environment.name for environment in Environments(client).list()] == [f"lake-{n}" for n in range(5)]


@pytest.mark.parametrize("end", [{}, {"next": None}, {"next": ""}])
def test_list_without_next_page_ends(client: ApiClient, vendor: ConfluentServer, end: dict[str, Any]):
    vendor.faults = [Fault(response=response(200, json.dumps({"data": [{"id": "a"}], "metadata": end})))]
    assert list(client.items(ENVIRONMENTS, dict)) == [{"id": "a"}]


def test_list_next_page_uses_the_same_address(client: ApiClient, vendor: ConfluentServer):
    elsewhere = {"data": [], "metadata": {"next": "https://elsewhere.invalid/steal?page_token=MA=="}}
    vendor.faults = [Fault(response=response(200, json.dumps(elsewhere)))]
    assert list(client.items(ENVIRONMENTS, dict)) == []
    assert vendor.calls == [("GET", ENVIRONMENTS)] * 2


@pytest.mark.parametrize(
    "next_page",
    [
        ["https://api.confluent.cloud/?page_token=A"] * 2,
        [f"https://api.confluent.cloud/?page_token={token}" for token in "ABA"],
        ["https://api.confluent.cloud/?token=A"],
        ["A"],
        [{"page_token": "A"}],
    ],
)
def test_list_with_repeated_or_unusable_next_page_is_refused(
    client: ApiClient, vendor: ConfluentServer, next_page: list[Any]
):
    pages = [json.dumps({"data": [], "metadata": {"next": url}}) for url in next_page]
    vendor.faults = [Fault(nth=n, response=response(200, page)) for n, page in enumerate(pages, 1)]
    with pytest.raises(ConfluentError, match=r"GET .*/org/v2/environments.*next page"):
        list(client.items(ENVIRONMENTS, dict))
    assert len(vendor.calls) == len(next_page)


@pytest.mark.parametrize(
    "document",
    [
        {"errors": "no"},
        {"errors": ["no"]},
        {"errors": [None]},
        {"errors": {"0": "no"}},
        {"errors": [{"detail": ["no"], "code": {}}]},
        {"error": "no"},
        {"error": ["no"]},
        {"message": {"text": "no"}},
        ["no"],
    ],
)
def test_call_refusal_in_unknown_json_is_reported(client: ApiClient, vendor: ConfluentServer, document: Any):
    refused = response(409, json.dumps(document), Content_Type="application/json")
    vendor.faults = [Fault(response=refused)]
    with pytest.raises(Conflict, match="The call changed nothing"):
        client.call("POST", ENVIRONMENTS, body=BODY)


@pytest.mark.parametrize("text", ["", "[]", '"page"', '{"data": {"id": "a"}}', '{"data": [], "metadata": "next"}'])
def test_list_of_another_form_is_refused(client: ApiClient, vendor: ConfluentServer, text: str):
    vendor.faults = [Fault(response=response(200, text))]
    with pytest.raises(ConfluentError, match="is no list"):
        list(client.items(ENVIRONMENTS, dict))


@pytest.mark.parametrize(
    ("ask", "status", "text", "kind", "words"),
    [
        (lambda p: p.call("GET", "/cmk/v2/clusters/lkc-1"), 404, "", NotFound, "404"),
        (lambda p: p.call("GET", "/cmk/v2/clusters/lkc-1"), 403, "Forbidden Access", NotFound, "the key ADMIN-KEY"),
        (
            lambda p: p.call("GET", "/cmk/v2/clusters/lkc-1"),
            403,
            "invalid API key",
            Forbidden,
            "does not accept the key",
        ),
        (
            lambda p: p.call("DELETE", "/cmk/v2/clusters/lkc-1"),
            403,
            "invalid API key",
            Forbidden,
            "The call changed nothing",
        ),
        (lambda p: p.call("GET", "/cmk/v2/clusters/lkc-1"), 401, "", Forbidden, "does not accept the key ADMIN-KEY"),
        (lambda p: list(p.items("/cmk/v2/clusters", dict)), 403, "", Forbidden, "EnvironmentAdmin on the environment"),
        (lambda p: p.delete("/cmk/v2/clusters/lkc-1"), 403, "", Forbidden, "The call changed nothing"),
        (lambda p: p.call("POST", "/sql/v1/x"), 403, "", Forbidden, "FlinkDeveloper"),
        (
            lambda p: p.call("POST", "/tableflow/v1/catalog-integrations"),
            403,
            "",
            Forbidden,
            "Assigner on the provider",
        ),
        (lambda p: p.call("POST", ENVIRONMENTS), 403, "", Forbidden, "OrganizationAdmin"),
        (lambda p: p.call("POST", ENVIRONMENTS), 409, "", Conflict, "The call changed nothing"),
        (lambda p: p.call("POST", ENVIRONMENTS), 422, "", InvalidRequest, "Correct the setting in lakehouse.yaml"),
        (lambda p: p.call("POST", ENVIRONMENTS), 402, "", InvalidRequest, "The call changed nothing"),
        (lambda p: p.call("POST", ENVIRONMENTS), 418, "", ConfluentError, "unexpected response"),
        (lambda p: p.call("GET", ENVIRONMENTS), 302, "", ConfluentError, "unexpected response"),
        (lambda p: p.call("GET", ENVIRONMENTS), 200, "<html><title>Log in</title></html>", ConfluentError, "Log in"),
    ],
)
def test_call_refusal_raises_its_error_class(
    client: ApiClient,
    vendor: ConfluentServer,
    ask: Callable[[ApiClient], Any],
    status: int,
    text: str,
    kind: type[Exception],
    words: str,
):
    vendor.faults = [Fault(response=response(status, text))]
    with pytest.raises(kind, match=words) as caught:
        ask(client)
    assert type(caught.value) is kind
    assert len(vendor.calls) == 1


def test_find_missing_is_none_and_delete_succeeds(client: ApiClient):
    assert client.find(f"{ENVIRONMENTS}/env-none", dict) is None
    Environments(client).delete("env-none")
    ServiceAccounts(client).delete("sa-none")


def test_call_wrong_key_is_refused_not_missing(vendor: ConfluentServer, confluent: ConfluentCloud):
    environment = Environments(confluent.client()).create("lake")
    wrong = ConfluentCloud(api_key=ADMIN, api_secret="wrong", url=vendor.url)
    with pytest.raises(Forbidden):
        Clusters(wrong.client(), environment.id).get("lkc-1")
    with pytest.raises(Forbidden):
        Environments(wrong.client()).delete(environment.id)
    assert len(vendor.state.environments) == 1


def test_call_key_of_another_plane_is_refused(vendor: ConfluentServer, confluent: ConfluentCloud):
    vendor.state.polls = 0
    environment = Environments(confluent.client()).create("lake")
    cluster = Clusters(confluent.client(), environment.id).create("lake", "us-east-1")
    cluster = Clusters(confluent.client(), environment.id).get(cluster.id)
    account = ServiceAccounts(confluent.client()).create("a", "a")
    key = ApiKeys(confluent.client()).create("k", "k", account.id, KeyScope.tableflow()).key
    with pytest.raises(Forbidden, match="401 Error 401 Unauthorized"):
        confluent.topics(cluster, key).list()
    assert confluent.tableflow_topics(cluster, key).list() == []


def test_find_two_of_same_name_is_unclear(confluent: ConfluentCloud):
    first, second = (Environments(confluent.client()).create("lake") for _ in range(2))
    with pytest.raises(UnclearState, match=f"{first.id}, {second.id}"):
        Environments(confluent.client()).find("lake")


def test_call_violating_contract_is_recorded(client: ApiClient, vendor: ConfluentServer):
    with pytest.raises(ConfluentError, match="599"):
        client.call("POST", ENVIRONMENTS, body={"name": "lake"})
    assert any("'display_name' is a required property" in violation for violation in vendor.violations)
    vendor.violations.clear()


def test_messages_and_reprs_contain_no_secret(vendor: ConfluentServer, confluent: ConfluentCloud, client: ApiClient):
    secret = vendor.admin_secret
    account = ServiceAccounts(confluent.client()).create("a", "a")
    key = ApiKeys(confluent.client()).create("k", "k", account.id, KeyScope.tableflow())
    assert key.secret and key.secret not in f"{key!r} {key} {key.key!r}"
    assert secret not in f"{confluent!r} {confluent} {client!r} {Environments(confluent.client())!r}"
    vendor.faults = [Fault(response=response(400, f"you sent {secret}")), Fault(nth=2, cut="before", times=100)]
    with pytest.raises(InvalidRequest) as rejected:
        client.call("POST", ENVIRONMENTS, body=BODY)
    with pytest.raises(OutcomeUnknownError) as unsure:
        client.call("POST", ENVIRONMENTS, body=BODY)
    assert secret not in f"{rejected.value} {unsure.value}"
