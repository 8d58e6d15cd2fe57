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
