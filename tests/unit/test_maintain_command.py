"""`lakehouse maintain` when one table cannot be maintained: the others are, and the exit code says so."""

import pyarrow as pa
from click.testing import CliRunner

from lakehouse.cli.main import main
from tests.support.declared import declare

ROWS = pa.table({"id": [1]})


def test_maintain_topic_that_fails_leaves_others_maintained(monkeypatch, tmp_path):
    topics = {name: {"key": "id"} for name in ("broken", "orders", "unreadable")}
    iceberg = declare(monkeypatch, tmp_path, namespace="shop", topics=topics).iceberg()
    monkeypatch.setattr("resources.spark.connection.RETRIES", 0)
    iceberg.create_namespace("shop")
    for name in topics:
        iceberg.create_table(f"shop.{name}", ROWS.schema)
    # A table without a snapshot needs no work, so Spark, which does not answer, is asked about the other one only.
    table = iceberg.load_table("shop.broken")
    table.append(ROWS)
    unreadable = iceberg.load_table("shop.unreadable").metadata_location
    (tmp_path / unreadable.removeprefix(f"file://{tmp_path}/")).write_text("{}")

    result = CliRunner().invoke(main, ["maintain"])

    assert result.exit_code == 1
    assert "broken: Spark" in result.output and "unexpected: see the log" in result.output
    assert "orders: " not in result.output
    assert "run `lakehouse maintain broken unreadable`" in result.output
