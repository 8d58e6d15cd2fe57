"""Athena as a query engine, on moto behind a proxy that adds what moto lacks: pages, header rows and failures."""

import datetime as dt
import json
import urllib.request
from decimal import Decimal
from types import SimpleNamespace

import boto3
import pytest
from moto.server import ThreadedMotoServer

from lakehouse.core.errors import LakehouseError, Unreachable
from lakehouse.query.engines import run
from resources.aws.athena import Athena
from tests.support.servers.proxy import Proxy


class AwsBehaviour:
    """A guard that adds a header row and pages of two rows to moto's results, and fails queries with `fails`."""

    def __init__(self, address):
        self.address = address
        self.pages = 0

    def __call__(self, request):
        request_body = json.loads(request.body or b"{}")
        match request.target.rpartition(".")[2]:
            case "GetQueryResults":
                results = self._moto("get_query_results", request_body["QueryExecutionId"])["ResultSet"]
                columns = results["ResultSetMetadata"]["ColumnInfo"]
                rows = [{"Data": [{"VarCharValue": column["Name"]} for column in columns]}, *results["Rows"]]
                start = int(request_body.get("NextToken", 0))
                self.pages += 1
                response = {"ResultSet": results | {"Rows": rows[start : start + 2]}}
                return json_response(response | ({"NextToken": str(start + 2)} if start + 2 < len(rows) else {}))
            case "GetQueryExecution":
                execution = self._moto("get_query_execution", request_body["QueryExecutionId"])["QueryExecution"]
                if "fails" in execution["Query"]:
                    status = {"State": "FAILED", "StateChangeReason": "COLUMN_NOT_FOUND: line 1:8"}
                    return json_response({"QueryExecution": {"Status": status}})

    def _moto(self, call, id_):
        return json.loads(json.dumps(getattr(client(self.address), call)(QueryExecutionId=id_), default=str))


def client(address):
    return boto3.client("athena", endpoint_url=address, region_name="eu-west-1")


def json_response(response):
    body = json.dumps(response).encode()
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
    guard = AwsBehaviour(moto)
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


def run_query(statement, **settings):
    return run(statement, "athena", SimpleNamespace(athena=Athena(region="eu-west-1", **settings)))


@pytest.mark.parametrize(
    ("value", "utc"),
    [
        ("2026-07-01 12:00:00.000 -07:00", "2026-07-01T19:00:00.000000+00:00"),
        ("2026-07-01 12:00:00.000 +05:30", "2026-07-01T06:30:00.000000+00:00"),
        ("2026-07-01 12:00:00.000 Europe/Zurich", "2026-07-01T10:00:00.000000+00:00"),
    ],
)
def test_query_timestamp_with_offset_or_zone_returns_utc(moto, aws, value, utc):
    queue(moto, {"at": "timestamp with time zone"}, [(value,)])

    assert json.loads(run_query("SELECT at FROM trading.t").json()) == [{"at": utc}]


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("timestamp", "2026-07-01 12:00:00.123456789", "2026-07-01T12:00:00.123456789"),
        ("timestamp", "2026-07-01 12:00:00.123456000", "2026-07-01T12:00:00.123456"),
        ("timestamp", "2026-07-01 12:00:00.000000000001", "2026-07-01T12:00:00.000000000001"),
        ("timestamp with time zone", "2026-07-01 12:00:00.123456789 UTC", "2026-07-01T12:00:00.123456789+00:00"),
        ("timestamp with time zone", "1969-12-31 23:59:59.999999999 -07:00", "1970-01-01T06:59:59.999999999+00:00"),
        (
            "timestamp with time zone",
            "2026-07-01 12:00:00.1234567 Europe/Zurich",
            "2026-07-01T10:00:00.123456700+00:00",
        ),
        ("time", "12:00:00.123456789", "12:00:00.123456789"),
    ],
)
def test_query_time_beyond_microseconds_is_exact(moto, aws, type_, value, expected):
    queue(moto, {"at": type_}, [(value,)])

    result = run_query("SELECT at FROM trading.t")

    assert json.loads(result.json()) == [{"at": expected}]
    assert result.csv().splitlines() == ["at", expected]
    assert result.terminal_rows() == [[expected]]


def test_query_time_outside_of_pythons_years_returns_text(moto, aws):
    columns = {"day": "date", "made": "timestamp", "at": "timestamp with time zone"}
    row = ("+10000-01-01", "+10000-01-01 00:00:00.000", "-0001-12-31 00:00:00.000 UTC")
    queue(moto, columns, [row])

    assert run_query("SELECT * FROM trading.t").rows == [row]


def test_query_several_pages_returns_typed_rows_without_header(moto, aws):
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
    row = ("9223372036854775807", "12345678901234567890.10", "2026-07-01 12:00:00.000001 UTC")
    row += ("1969-12-31 23:59:59.999999", "1969-12-31", "true", "0.1", "00 ff", "", "[a, null]")
    nulls = (None,) * len(columns)
    queue(moto, columns, [row, nulls, row, nulls, row])

    result = run_query("SELECT * FROM trading.t")

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
    assert result.rows == [typed, nulls, typed, nulls, typed]
    assert aws.pages == 3


def test_query_without_rows_returns_none(moto, aws):
    queue(moto, {"a": "bigint"}, [])
    assert run_query("SELECT a FROM t WHERE false").rows == []


def test_query_failed_raises_reason(moto, aws):
    with pytest.raises(LakehouseError, match="FAILED: COLUMN_NOT_FOUND: line 1:8"):
        run_query("SELECT fails")


def test_query_unknown_workgroup_raises(moto, aws):
    with pytest.raises(LakehouseError, match="refused workgroup nobody"):
        run_query("SELECT 1", workgroup="nobody")


def test_query_past_deadline_is_cancelled(moto, aws):
    post(
        moto,
        "state-manager/set-transition",
        {"model_name": "athena::execution", "transition": {"progression": "manual", "times": 3}},
    )
    try:
        queue(moto, {"a": "bigint"}, [("1",)])
        assert run_query("SELECT 1 AS a").rows == [(1,)]
        post(
            moto,
            "state-manager/set-transition",
            {"model_name": "athena::execution", "transition": {"progression": "manual", "times": 1000}},
        )
        with pytest.raises(LakehouseError, match="after 1 s, and was cancelled"):
            run_query("SELECT 2", deadline_seconds=1)
        newest = client(moto).list_query_executions()["QueryExecutionIds"][-1]
        assert (
            client(moto).get_query_execution(QueryExecutionId=newest)["QueryExecution"]["Status"]["State"]
            == "CANCELLED"
        )
    finally:
        post(moto, "state-manager/unset-transition", {"model_name": "athena::execution"})


def test_query_unreachable_athena_raises_without_secret(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ours")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setattr("resources.aws.clients.TIMEOUT_SECONDS", 1)
    with pytest.raises(Unreachable, match="Athena does not answer at region eu-west-1") as raised:
        run_query("SELECT 1")
    assert "hidden" not in str(raised.value)
