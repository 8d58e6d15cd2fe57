"""Athena: moto's, and in front of it what moto does not do: pages, a header, failures, types."""

import datetime as dt
import json
import urllib.request
from decimal import Decimal
from types import SimpleNamespace

import boto3
import pytest
from moto.server import ThreadedMotoServer
from proxy import Proxy

from lakehouse.core.errors import LakehouseError, Unreachable
from lakehouse.query.engines import ENGINES
from resources.athena import Athena


class AsAws:
    """A guard of moto's Athena: results come with a header and two rows a page, and queries fail that say so."""

    def __init__(self, address):
        self.address = address
        self.pages = 0

    def __call__(self, request):
        asked = json.loads(request.body or b"{}")
        match request.target.rpartition(".")[2]:
            case "GetQueryResults":
                found = self._moto("get_query_results", asked["QueryExecutionId"])["ResultSet"]
                columns = found["ResultSetMetadata"]["ColumnInfo"]
                rows = [{"Data": [{"VarCharValue": column["Name"]} for column in columns]}, *found["Rows"]]
                start = int(asked.get("NextToken", 0))
                self.pages += 1
                answer = {"ResultSet": found | {"Rows": rows[start : start + 2]}}
                return answered(answer | ({"NextToken": str(start + 2)} if start + 2 < len(rows) else {}))
            case "GetQueryExecution":
                found = self._moto("get_query_execution", asked["QueryExecutionId"])["QueryExecution"]
                if "fails" in found["Query"]:
                    status = {"State": "FAILED", "StateChangeReason": "COLUMN_NOT_FOUND: line 1:8"}
                    return answered({"QueryExecution": {"Status": status}})

    def _moto(self, call, id_):
        return json.loads(json.dumps(getattr(client(self.address), call)(QueryExecutionId=id_), default=str))


def client(address):
    return boto3.client("athena", endpoint_url=address, region_name="eu-west-1")


def answered(answer):
    body = json.dumps(answer).encode()
    return 200, [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))], body


def post(address, path, body):
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{address}/moto-api/{path}", json.dumps(body).encode(), headers))


@pytest.fixture(scope="module")
def moto():
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def aws(moto, monkeypatch):
    guard = AsAws(moto)
    with Proxy(moto, guard=guard) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ours")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
        yield guard


def queue(moto, columns, rows):
    data = [{"Data": [{} if v is None else {"VarCharValue": v} for v in row]} for row in rows]
    info = [{"Name": name, "Type": type_} for name, type_ in columns.items()]
    result = {"rows": data, "column_info": info}
    post(
        moto, "static/athena/query-results", {"results": [result], "account_id": "123456789012", "region": "eu-west-1"}
    )


def ask(statement, **settings):
    return ENGINES["athena"](statement, SimpleNamespace(athena=Athena(region="eu-west-1", **settings)))


def test_every_page_arrives_without_the_header_and_typed(moto, aws):
    columns = {
        "id": "bigint",
        "price": "decimal",
        "at": "timestamp with time zone",
        "made": "timestamp",
        "day": "date",
        "ok": "boolean",
        "ratio": "double",
        "raw": "varbinary",
        "name": "varchar",
        "tags": "array",
    }
    first = ("9223372036854775807", "12345678901234567890.10", "2026-07-01 12:00:00.000001 UTC")
    first += ("1969-12-31 23:59:59.999999", "1969-12-31", "true", "0.1", "00 ff", "", "[a, null]")
    nothing = (None,) * len(columns)
    queue(moto, columns, [first, nothing, first, nothing, first])

    result = ask("SELECT * FROM trading.t")

    typed = (
        2**63 - 1,
        Decimal("12345678901234567890.10"),
        dt.datetime(2026, 7, 1, 12, 0, 0, 1, dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.date(1969, 12, 31),
        True,
        0.1,
        b"\x00\xff",
        "",
        "[a, null]",
    )
    assert result.columns == list(columns)
    assert result.rows == [typed, nothing, typed, nothing, typed]
    assert aws.pages == 3


def test_no_rows_are_no_rows(moto, aws):
    queue(moto, {"a": "bigint"}, [])
    assert ask("SELECT a FROM t WHERE false").rows == []


def test_a_query_that_fails_says_why(moto, aws):
    with pytest.raises(LakehouseError, match="FAILED: COLUMN_NOT_FOUND: line 1:8"):
        ask("SELECT fails")


def test_a_workgroup_that_is_not_there_and_an_output_location_that_is_wrong_are_sentences(moto, aws):
    with pytest.raises(LakehouseError, match="refused workgroup nobody"):
        ask("SELECT 1", workgroup="nobody")


def test_it_waits_and_past_the_deadline_cancels(moto, aws):
    post(
        moto,
        "state-manager/set-transition",
        {"model_name": "athena::execution", "transition": {"progression": "manual", "times": 3}},
    )
    try:
        queue(moto, {"a": "bigint"}, [("1",)])
        assert ask("SELECT 1 AS a").rows == [(1,)]
        post(
            moto,
            "state-manager/set-transition",
            {"model_name": "athena::execution", "transition": {"progression": "manual", "times": 1000}},
        )
        with pytest.raises(LakehouseError, match="after 1 s, and was cancelled"):
            ask("SELECT 2", deadline_seconds=1)
        newest = client(moto).list_query_executions()["QueryExecutionIds"][-1]
        assert (
            client(moto).get_query_execution(QueryExecutionId=newest)["QueryExecution"]["Status"]["State"]
            == "CANCELLED"
        )
    finally:
        post(moto, "state-manager/unset-transition", {"model_name": "athena::execution"})


def test_nobody_answering_is_told(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ours")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setattr("resources.athena.TIMEOUT_SECONDS", 1)
    with pytest.raises(Unreachable, match="Athena does not answer at region eu-west-1") as told:
        ask("SELECT 1")
    assert "hidden" not in str(told.value)


def test_an_environment_without_athena_is_told():
    with pytest.raises(LakehouseError, match="no Athena"):
        ENGINES["athena"]("SELECT 1", SimpleNamespace())
