"""Commands whose rows do not pass their audit."""

import pyarrow as pa
import pytest
from click.testing import CliRunner

from lakehouse.cli.main import main
from lakehouse.pipeline.commits.audit import AuditFailed, CheckResult
from lakehouse.pipeline.engine_values import CheckedRows
from resources.spark.spark import Spark
from tests.support.declared import declare

SQL = "SELECT * FROM orders VERSION AS OF 5 WHERE id > 9"


def test_remedies_name_each_kind_of_failure():
    findings = [CheckResult("record_count", False, "1 file is missing"), CheckResult("small", False, "1 of 2 rows")]
    message = str(AuditFailed("orders", "ingest_1", findings, "the next run replaces the branch"))
    assert "Retry the run or command" in message and "relax the check in lakehouse.yaml" in message
    assert "lakehouse.yaml" not in str(AuditFailed("orders", "ingest_1", findings[:1], "then"))


def refusing(server):
    """Raise the error of an audit in place of creating the client of an engine."""
    findings = [CheckResult("small", False, "1 of 2 rows fail", result=CheckedRows(2, 1, SQL))]
    raise AuditFailed("orders", "ingest_1", findings, "the next run replaces the branch")


@pytest.mark.parametrize("command", [["redrive", "orders"], ["replay", "orders", "--since", "earliest"]])
def test_refused_command_prints_query_of_failing_rows(monkeypatch, tmp_path, command):
    catalog = declare(monkeypatch, tmp_path, namespace="shop", topics={"orders": {"key": "id"}}).iceberg()
    catalog.create_namespace("shop")
    catalog.create_table("shop.orders", pa.schema({"id": pa.int64()}))
    monkeypatch.setattr(Spark, "engine", f"{__name__}:refusing")
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    assert f"Rows that fail check 'small': {SQL}" in result.output


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["quer"], "Error: No such command 'quer'. Did you mean 'query'?\n"),
        (["deadletters"], "Error: No such command 'deadletters'. Did you mean 'dead-letters'?\n"),
        (["deploy", "plann"], "Error: No such command 'plann'. Did you mean 'plan'?\n"),
        (["xyzzy"], "Error: No such command 'xyzzy'.\n"),
    ],
)
def test_unknown_command_suggests_a_similar_one(command, message):
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2 and result.output.endswith(message)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["validate", "--env", "dev"], "is an option of lakehouse itself. Write `lakehouse --env NAME validate`"),
        (["check", "--config", "x"], "is an option of lakehouse itself. Write `lakehouse --config FILE check`"),
        (
            ["validate", "x.yaml"],
            "extra argument (x.yaml). Write `lakehouse --config x.yaml validate` to use that file",
        ),
        (["check", "orders,users"], "is not declared in {folder}/lakehouse.yaml. Separate names by spaces"),
        (["replay", "orders", "--since", "0:x"], "'0:x' is not a valid position. Nothing was changed. Use earliest"),
        (["resume", "orders", "--at", "noon", "--reason", "x"], "'noon' is not a valid position. Nothing was changed."),
        (["resume", "orders", "--at", "0:1", "--reason", " "], "Invalid value for '--reason': it is empty. Write why"),
        (["bookmark", "orders", "--at", "now", "--reason", "x"], "'now' is not a valid position. Nothing was changed."),
    ],
)
def test_wrong_arguments_are_refused_before_any_system_is_asked(monkeypatch, tmp_path, command, message):
    declare(monkeypatch, tmp_path, namespace="shop", topics={"orders": {"key": "id"}})
    result = CliRunner().invoke(main, command)
    assert result.exit_code in (1, 2) and message.replace("{folder}", str(tmp_path)) in result.output
