"""`lakehouse validate --online`: lakehouse.yaml compared with a registry's schemas, and with a table."""

import json

import pytest
from click.testing import CliRunner

from lakehouse.cli.main import main
from lakehouse.config import loader
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.schemas.decoding import resolve_schemas
from lakehouse.pipeline.schemas.schema_decision import ensure_table
from resources.schema_registry import SchemaRegistry
from tests.support.declared import declare
from tests.support.servers.registry_server import RegistryServer

FIELDS = [{"name": "id", "type": "string"}, {"name": "price", "type": "long"}]
ORDER = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
ORIGINAL = {"key": "id", "partition_by": ["bucket(4, id)"], "sort_by": ["price desc"]}
UPSERT = ORIGINAL | {"mode": "upsert"}


@pytest.fixture
def registry():
    with RegistryServer().listening() as server:
        server.add(1, ORDER, "orders-value")
        yield server


@pytest.fixture
def edit(monkeypatch, tmp_path, registry):
    """A function that declares the topic `orders` with other settings and returns the catalog."""

    def edit(settings, **entries):
        systems = {"schema_registry": {"url": registry.address}}
        return declare(
            monkeypatch, tmp_path, systems=systems, **{"namespace": "shop"} | entries, topics={"orders": settings}
        )

    return edit


@pytest.fixture
def with_rows(edit, registry):
    """A function that creates the table of `orders`, with a snapshot of no rows, in a namespace."""

    def create(namespace="shop"):
        catalog, topic = edit(ORIGINAL), loader.load().topics["orders"]
        catalog.iceberg().create_namespace(namespace)
        schemas = resolve_schemas(SchemaRegistry(url=registry.address), topic)
        table = ensure_table(catalog, topic, TableRef(namespace, "orders"), schemas)
        table.append(table.schema().as_arrow().empty_table())

    return create


def validate():
    return CliRunner().invoke(main, ["validate", "--online"])


def test_validate_online_compares_columns_with_the_registry(edit):
    edit({"partition_by": ["day(id)"], "checks": {"known": {"type": "not_null", "column": "prize"}}})
    result = validate()
    assert result.exit_code == 1
    assert "topics.orders.partition_by: 'id' is a string, to which day does not apply" in result.stderr
    assert "topics.orders.checks.known: subject 'orders-value' has no column 'prize'" in result.stderr
    assert CliRunner().invoke(main, ["validate"]).exit_code == 0


def test_validate_online_of_unchanged_settings_is_silent(edit, with_rows):
    edit(ORIGINAL)
    assert validate().exit_code == 0, "there is no table yet"
    with_rows()
    result = validate()
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("policy", ["stop", "new_table"])
def test_validate_online_after_edited_mode_names_both_and_the_remedy(edit, with_rows, policy):
    with_rows()
    edit(UPSERT | {"on_incompatible": policy})
    result = validate()
    assert (
        "topics.orders: The rows of table shop.orders were made with `mode: append`, but 'orders' declares `mode: "
        in (result.stderr)
    )
    if policy == "stop":
        assert result.exit_code == 1 and result.stderr.startswith("Error: lakehouse.yaml:")
        assert "Restore the settings, choose another `table`" in result.stderr
    else:
        assert result.exit_code == 0 and result.stderr.startswith("Note: ")
        assert "The next batch continues in orders__v2" in result.stderr


def test_validate_online_after_edited_layout_notes_the_change(edit, with_rows):
    with_rows()
    edit(ORIGINAL | {"partition_by": ["id", "truncate(10, price)"], "sort_by": []})
    result = validate()
    assert (result.exit_code, result.stderr) == (
        0,
        "Note: topics.orders: the next batch changes `partition_by` from `[bucket(4, id)]` to "
        "`[id, truncate(10, price)]` and `sort_by` from `[price desc]` to `[]` for new files\n",
    )


def test_validate_online_reads_the_table_of_the_deployment(edit, with_rows):
    deployments = {"here": {"name": "shop", "account": "123456789012", "namespace": "shop_here"}}
    with_rows("shop_here")
    edit(UPSERT, deployments=deployments)
    result = validate()
    assert result.exit_code == 1 and "The rows of table shop_here.orders were made with" in result.stderr, result.output


def test_validate_online_without_a_system_exits_with_2(edit, with_rows, registry):
    with_rows()
    registry.status = 503
    result = validate()
    assert result.exit_code == 2 and "schema registry" in result.stderr and "Traceback" not in result.output


def test_validate_online_without_the_catalog_exits_with_2(monkeypatch, tmp_path, registry):
    catalog = {"uri": f"sqlite:///{tmp_path}/missing/catalog.db"}
    systems = {"schema_registry": {"url": registry.address}, "catalog": catalog}
    declare(monkeypatch, tmp_path, systems=systems, namespace="shop", topics={"orders": ORIGINAL})
    result = validate()
    assert (result.exit_code, "The catalog's database does not answer" in result.stderr) == (2, True), result.output
