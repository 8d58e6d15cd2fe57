"""Each command when each system is away or refuses: a short message with the system and a remedy, and no traceback."""

import json
import os
import socket
import sqlite3
import stat
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lakehouse.cli.main import COMMANDS, main
from lakehouse.core.log_entry import FORMAT
from tests.support.declared import NOWHERE, declare
from tests.support.servers.listener import Listener
from tests.support.servers.registry_server import RegistryServer

SECONDS = 30
"""Maximum duration of a command that no system answers."""

NONE = "the command asks no system"
SERVERLESS = {
    "demo": "it starts the embedded stack",
    "deploy": "tests/deploy has its errors",
    "init": NONE,
    "up": "it starts the embedded stack",
    "validate": NONE,
}
"""Commands that need no running system, and the reason."""

AWAY: dict[str, tuple[list[str], int, str]] = {
    "bookmark": (["totals", "--at", "latest", "--reason", "r"], 1, "Kafka does not answer at 127.0.0.1:1"),
    "check": (["orders"], 1, "The table does not exist, or has no commit: nothing was verified"),
    "dead-letters": (["orders"], 1, "Table shop.orders does not exist in the catalog sqlite:///"),
    "doctor": (["--env", "here"], 1, "→ "),
    "down": ([], 0, "Nothing was running"),
    "dry-run": (["orders"], 2, "Kafka does not answer at 127.0.0.1:1"),
    "ledger": (["orders"], 2, "Table shop.orders does not exist in the catalog sqlite:///"),
    "maintain": (["orders"], 0, ""),
    "metrics": ([], 1, "Kafka does not answer at 127.0.0.1:1"),
    "move": (["--from", "here"], 1, "Environment 'here' is the one to which the tables are moved"),
    "pause": (["orders"], 0, "Resume with `lakehouse unpause orders`"),
    "plan": (["orders"], 2, "The schema registry does not answer at http://127.0.0.1:1"),
    "query": (["SELECT 1", "--engine", "snowflake"], 1, "Snowflake"),
    "redrive": (["orders"], 1, "Table shop.orders does not exist in the catalog sqlite:///"),
    "replay": (["orders", "--since", "earliest"], 1, "No record of 'orders' was ingested yet"),
    "resume": (["orders", "--at", "latest", "--reason", "r"], 1, "Kafka does not answer at 127.0.0.1:1"),
    "run": (["no-such-program"], 1, "Program 'no-such-program' was not found"),
    "status": ([], 1, "Kafka does not answer at 127.0.0.1:1"),
    "stream": (["--once", "orders"], 1, "Kafka does not answer at 127.0.0.1:1"),
    "ui": ([], 1, "The UI is not running"),
    "unpause": (["orders"], 1, "Topic 'orders' is not paused"),
}
"""The arguments of each command, its exit code if no server runs, and a part of its message."""

READING: dict[str, list[str]] = {
    "check": ["orders"],
    "dead-letters": ["orders"],
    "doctor": ["--env", "here"],
    "dry-run": ["orders"],
    "ledger": ["orders"],
    "maintain": ["orders"],
    "plan": ["orders"],
    "redrive": ["orders"],
    "replay": ["orders", "--since", "earliest"],
    "resume": ["orders", "--at", "latest", "--reason", "r"],
    "validate": ["--online"],
}
"""The arguments of commands that read the table of a topic."""

SILENT: dict[str, tuple[list[str], str]] = {
    "doctor": (["--env", "here"], "AWS sts does not answer at region eu-west-1"),
    "dry-run": (["orders"], "Kafka does not answer at {}"),
    "plan": (["orders"], "The schema registry does not answer at http://{}"),
    "resume": (["orders", "--at", "latest", "--reason", "r"], "Kafka does not answer at {}"),
}
"""The arguments of commands, and their message if the first system that they call never responds."""

DENIED = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
"""S3's response to a wrong login (Amazon S3, Error responses)."""

REMEDY = ("Check", "Run `", "See `", "Materialize", "Ingest", "Correct", "Set ", "Grant", "→ ")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose servers do not answer, in an empty state folder."""
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr("resources.kafka.kafka.TIMEOUT_SECONDS", 1)
    monkeypatch.setattr("lakehouse.streaming.pacing.FIRST_PAUSE_SECONDS", 0.0)
    derived = {"type": "derived", "from": "orders", "transform": "shop:totals"}
    topics = {"orders": {"checks": {"known": {"type": "not_null", "column": "id"}}}, "totals": {"source": derived}}
    return declare(monkeypatch, tmp_path, namespace="shop", topics=topics)


def test_commands_are_all_tried_without_their_systems():
    assert {*AWAY, *SERVERLESS} == {*COMMANDS}


@pytest.mark.parametrize("command", AWAY)
@pytest.mark.usefixtures("project")
def test_command_without_servers_reports_the_system_and_a_remedy(command):
    arguments, code, message = AWAY[command]
    began = time.monotonic()
    result = CliRunner().invoke(main, [command, *arguments])
    assert (result.exit_code, message in result.output) == (code, True), result.output
    assert "Traceback" not in result.output and "unexpected" not in result.output
    assert time.monotonic() - began < SECONDS
    if code:
        assert any(word in result.output for word in REMEDY), result.output
    assert result.stderr.count("\n") <= 3


@pytest.mark.parametrize("command", [["status"], ["stream"], ["metrics"], ["--env", "there", "doctor"]])
@pytest.mark.usefixtures("project")
def test_command_in_undeclared_environment_names_the_declared_ones(command, monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_ENV", "")
    name = command[1] if len(command) > 1 else "local"
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    message = f"Environment '{name}' (LAKEHOUSE_ENV, or --env) is not in lakehouse.yaml, which has here"
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_command_names_unset_variables_of_its_environment(command, monkeypatch, tmp_path):
    systems = {"kafka": {"bootstrap_servers": {"env": "NO_BROKERS"}}, "spark": {"remote": {"env": "NO_SPARK"}}}
    declare(monkeypatch, tmp_path, namespace="shop", topics={"orders": {}}, systems=systems)
    result = CliRunner().invoke(main, ["--env", "here", command])
    assert result.exit_code == 1 and "NO_BROKERS, NO_SPARK not set, or empty" in result.stderr


def test_commands_name_a_server_with_another_protocol(monkeypatch, tmp_path):
    monkeypatch.setattr("resources.kafka.kafka.TIMEOUT_SECONDS", 2)
    with RegistryServer().listening() as server:
        kafka = {"bootstrap_servers": f"127.0.0.1:{server.server_port}", "security_protocol": "SASL_SSL"}
        login = {"sasl_mechanism": "PLAIN", "api_key": {"env": "USER_OF_KAFKA"}, "api_secret": {"env": "PASSWORD"}}
        systems = {"kafka": kafka | login, "schema_registry": {"url": f"{server.address}/api"}}
        monkeypatch.setenv("USER_OF_KAFKA", "me")
        monkeypatch.setenv("PASSWORD", "canary-4711")
        declare(monkeypatch, tmp_path, namespace="shop", topics={"orders": {}}, systems=systems)
        results = [CliRunner().invoke(main, [*command, "orders"]) for command in (["plan"], ["dry-run"])]
    assert [result.exit_code for result in results] == [2, 2]
    assert f"{server.address}/api is not the address of a schema registry" in results[0].output
    assert "refused a connection with `security_protocol: SASL_SSL`: " in results[1].output
    assert not any("canary" in result.output or "Traceback" in result.output for result in results)


@pytest.fixture
def with_login(monkeypatch, tmp_path):
    """A function that declares a topic whose registry, S3 and AWS are at an address, and returns the catalog."""

    def with_login(address, registry="", kafka=NOWHERE):
        monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "state"))
        monkeypatch.delenv("DAGSTER_HOME", raising=False)
        login = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "canary-4711", "AWS_REGION": "eu-west-1"}
        for name, value in {
            **login,
            "AWS_ENDPOINT_URL": address,
            "NO_PROXY": "127.0.0.1",
            "PASSWORD": "canary-4711",
        }.items():
            monkeypatch.setenv(name, value)
        for limit in ("kafka.kafka", "schema_registry"):
            monkeypatch.setattr(f"resources.{limit}.TIMEOUT_SECONDS", 1)
        monkeypatch.setattr("lakehouse.deploy.verification.role_diagnosis.TIMEOUT_SECONDS", 1)
        systems = {
            "kafka": {"bootstrap_servers": kafka},
            "schema_registry": {"url": registry or address, "api_key": "me", "api_secret": {"env": "PASSWORD"}},
            "catalog": {"warehouse": "s3://lake/w", "s3_endpoint": address, "region": "eu-west-1"},
        }
        return declare(monkeypatch, tmp_path, namespace="shop", topics={"orders": {}}, systems=systems)

    return with_login


def add_table(catalog, folder):
    """Add a table to a catalog in SQLite, whose metadata is in S3."""
    catalog.iceberg().create_namespace("shop")
    row = ("shop", "orders", "s3://lake/w/shop/orders/metadata/1.metadata.json")
    with sqlite3.connect(folder / "catalog.db") as database:
        [[name]] = database.execute("SELECT DISTINCT catalog_name FROM iceberg_namespace_properties")
        database.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location)"
            " VALUES (?, ?, ?, ?)",
            (name, *row),
        )


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("command", READING)
def test_command_with_wrong_login_of_s3_reports_the_refusal(command, status, with_login, tmp_path):
    with RegistryServer().listening() as registry, Listener((status, DENIED, {})).listening() as s3:
        registry.add(
            1, '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}', "orders-value"
        )
        add_table(with_login(s3.address, registry.address), tmp_path)
        result = CliRunner().invoke(main, [command, *READING[command]])
    assert result.exit_code in (1, 2) and f"S3 ({s3.address}) refused the request" in result.output, result.output
    assert not any(word in result.output for word in ("Traceback (", "unexpected", "canary"))


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("command", [["plan", "orders"], ["validate", "--online"]])
def test_command_with_wrong_login_of_the_registry_reports_the_refusal(command, status, with_login):
    with RegistryServer().listening() as registry:
        registry.status = status
        with_login(registry.address)
        result = CliRunner().invoke(main, command)
    assert result.exit_code == 2 and f"refused the login (HTTP {status})" in result.output, result.output
    assert "the API key and its permissions" in result.output and "canary" not in result.output


@pytest.mark.parametrize("command", SILENT)
def test_command_whose_system_never_responds_ends_in_time(command, with_login):
    arguments, message = SILENT[command]
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with_login(f"http://{address}", kafka=address)
        began = time.monotonic()
        result = CliRunner().invoke(main, [command, *arguments])
    assert result.exit_code in (1, 2) and message.format(address) in result.output, result.output
    assert time.monotonic() - began < SECONDS
    assert "Traceback (" not in result.output and any(word in result.output for word in REMEDY)


@click.command()
@click.option("--text", default="it broke")
def failing(text: str) -> None:
    raise KeyError(text) if text == "it broke" else RuntimeError(text)


@pytest.fixture
def broken(project):
    """A command that raises an error which the project does not know."""
    main.add_command(failing, "broken")
    yield
    main.commands.pop("broken")


@pytest.mark.usefixtures("broken")
def test_unexpected_error_is_three_lines_with_its_traceback_logged(tmp_path):
    result = CliRunner().invoke(main, ["broken"])
    log = tmp_path / "state" / "logs" / "errors.log"
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: `lakehouse broken` stopped with an unexpected error, KeyError: 'it broke'\n"
        f"What it had published remains, and nothing else was published\n"
        f"The traceback is in {log}, and `lakehouse --debug broken` prints it\n",
    )
    assert "Traceback (most recent call last)" in log.read_text() and "in failing" in log.read_text()
    assert stat.S_IMODE(os.stat(log).st_mode) == 0o600


@pytest.mark.usefixtures("broken")
def test_unexpected_error_with_debug_prints_the_traceback():
    result = CliRunner().invoke(main, ["--debug", "broken"])
    assert result.exit_code == 1 and "in failing" in result.stderr and "KeyError: 'it broke'" in result.stderr


@pytest.mark.usefixtures("broken")
def test_unexpected_error_quotes_one_line_without_credentials():
    result = CliRunner().invoke(main, ["broken", "--text", "at https://me:secret@host/\x1b[2J\nrow 4111"])
    assert "RuntimeError: at https://host/\\x1b[2J\n" in result.stderr
    assert "secret" not in result.stderr and "4111" not in result.stderr


@pytest.mark.usefixtures("broken")
def test_unwritable_state_folder_leaves_the_traceback_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "file"))
    result = CliRunner().invoke(main, ["broken"])
    [line] = [line for line in result.stderr.splitlines() if line.startswith("The traceback is in ")]
    assert Path(line.split()[4].rstrip(",")).exists()


@pytest.mark.usefixtures("project")
def test_known_error_with_debug_has_its_cause():
    result = CliRunner().invoke(main, ["--debug", "plan", "orders"])
    assert result.exit_code == 2 and "The above exception was the direct cause" in result.stderr
    assert "Traceback" not in CliRunner().invoke(main, ["plan", "orders"]).output


@pytest.mark.usefixtures("broken")
def test_traceback_with_logs_as_json_is_an_entry(monkeypatch):
    monkeypatch.setenv(FORMAT, "text")
    result = CliRunner().invoke(main, ["--log-format", "json", "--debug", "broken"])
    traceback, message = [json.loads(line) for line in result.stderr.splitlines()]
    assert (traceback["error"], message["error"]) == ("KeyError", "KeyError")
    assert "in failing" in traceback["message"] and "stopped with an unexpected error" in message["message"]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["status"], "Unreachable"),
        (["plan", "orders"], "Unreachable"),
        (["statsu"], "NoSuchCommand"),
        (["--formats", "json"], "NoSuchOption"),
    ],
)
@pytest.mark.usefixtures("project")
def test_error_with_logs_as_json_is_one_entry(monkeypatch, command, kind):
    monkeypatch.setenv(FORMAT, "json")
    result = CliRunner().invoke(main, command)
    [entry] = [json.loads(line) for line in result.stderr.splitlines()]
    assert (entry["level"], entry["error"]) == ("ERROR", kind)
    assert result.exit_code and "time" in entry and "Error:" not in entry["message"]
