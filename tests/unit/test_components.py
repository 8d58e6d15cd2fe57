"""Components in the layout of create-dagster: every command has the topics, and definitions have each of them once."""

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner

import lakehouse
from lakehouse.cli.main import main
from lakehouse.config import loader
from lakehouse.config.sources import Existing
from lakehouse.core.errors import ConfigError
from lakehouse.definitions import definitions_of
from tests.support.declared import declare

STARTED = {"type": "lakehouse.LakehouseComponent"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that writes the files of a Dagster project and returns its definitions."""
    module = f"shop_{tmp_path.name.replace('-', '_')}"
    (tmp_path / "pyproject.toml").write_text(f'[tool.dg.project]\nroot_module = "{module}"\n')
    declare(monkeypatch, tmp_path, namespace="shop", topics={"payments": {}})
    monkeypatch.syspath_prepend(tmp_path / "src")
    monkeypatch.chdir(tmp_path)

    def load(**components):
        for name, documents in components.items():
            folder = tmp_path / "src" / module / "defs" / name
            folder.mkdir(parents=True)
            for package in (folder.parent.parent, folder.parent):
                (package / "__init__.py").touch()
            text = documents if isinstance(documents, str) else yaml.safe_dump_all([documents])
            (folder / "defs.yaml").write_text(text)
        return lambda: dg.load_from_defs_folder(path_within_project=tmp_path / "src" / module)

    return load


def topic(**attributes):
    return {"type": "lakehouse.TopicComponent", "attributes": attributes}


def graph_of(load):
    definitions = load()
    dg.Definitions.validate_loadable(definitions)
    return definitions, definitions.resolve_asset_graph()


def test_components_have_same_definitions_as_entries_of_file(project, monkeypatch, tmp_path_factory):
    declared = {"mode": "upsert", "key": "id", "errors": "log"}
    definitions, graph = graph_of(project(orders=topic(**declared), shop=topic(pattern=r"shop\..*"), all=STARTED))

    folder = tmp_path_factory.mktemp("file")
    declare(
        monkeypatch,
        folder,
        namespace="shop",
        topics={"payments": {}, "orders": declared},
        routes={"shop": {"pattern": r"shop\..*"}},
    )
    monkeypatch.chdir(folder)
    expected = definitions_of(loader.load())
    of_file = expected.resolve_asset_graph()

    assert graph.get_all_asset_keys() == of_file.get_all_asset_keys()
    assert graph.asset_check_keys == of_file.asset_check_keys
    for name in ("sensors", "schedules", "jobs"):
        assert {one.name for one in getattr(definitions, name)} == {one.name for one in getattr(expected, name)}
    automation = definitions.get_repository_def().get_sensor_def("automation").asset_selection
    assert automation.resolve(graph) == graph.get_all_asset_keys()
    assert automation.resolve_checks(graph) == graph.asset_check_keys


def test_topic_of_component_exists_for_commands(project):
    project(orders=topic(kafka_topic="shop.orders"), shop=topic(pattern=r"shop\..*"), all=STARTED)
    config = loader.load()
    assert config.topic("orders").topic == "shop.orders" and set(config.topics) == {"orders", "payments"}
    assert config.topics["orders"].source == Existing() and config.routes["shop"].topic_named("shop.a")
    result = CliRunner().invoke(main, ["validate"])
    assert result.exit_code == 0 and "assets" in result.output, result.output
    assert "Did you mean 'orders'?" in CliRunner().invoke(main, ["plan", "order"]).output


def test_attributes_of_asset_follow_entry_and_post_processing(project):
    grouped = topic(group="sales", tags={"domain": "sales"}, owners=["team:sales"], automation="none")
    daily = {"automation_condition": "{{ dg.AutomationCondition.on_cron('@daily') }}", "tags": {"mine": "yes"}}
    processed = topic() | {"post_processing": {"assets": [{"target": "key:orders/iceberg", "attributes": daily}]}}
    _, graph = graph_of(project(grouped=grouped, orders=processed, all=STARTED))

    for system in ("kafka", "iceberg", "ledger"):
        node = graph.get(dg.AssetKey(["grouped", system]))
        assert (node.group_name, [*node.owners], node.automation_condition) == ("sales", ["team:sales"], None)
        assert node.tags["domain"] == "sales"
    node = graph.get(dg.AssetKey(["orders", "iceberg"]))
    assert node.automation_condition == dg.AutomationCondition.on_cron("@daily") and node.tags["mine"] == "yes"
    assert graph.get(dg.AssetKey(["payments", "iceberg"])).automation_condition != node.automation_condition


TWICE = "type: lakehouse.TopicComponent\nattributes: {name: a}\n"


@pytest.mark.parametrize(
    ("components", "place", "problem"),
    [
        ({"orders": topic(mode="apend")}, "orders/defs.yaml:2: mode", "but is 'apend'"),
        ({"orders": topic(keyz="id")}, "orders/defs.yaml:2: keyz", "Did you mean 'key'?"),
        ({"orders": "type: lakehouse.TopicComponent\nattributes:\n  key: a\n  key: b\n"}, "orders/defs.yaml:3", "dupl"),
        ({"payments": topic()}, "payments/defs.yaml:", "lakehouse.yaml has an entry of this name, too"),
        ({"b": TWICE, "c": TWICE}, "c/defs.yaml:2", "two components have the name 'a': b/defs.yaml"),
        ({"orders": topic(key="{{ env.KEY }}")}, "orders/defs.yaml:2: key", "a template"),
        ({"orders": "type: lakehouse.TopicComponent\nattributes: [\n"}, "orders/defs.yaml:3", "cannot be read"),
    ],
)
def test_faults_name_file_and_line_of_component(project, components, place, problem):
    project(**components)
    with pytest.raises(ConfigError) as refused:
        loader.load()
    assert place in str(refused.value) and problem in str(refused.value)


def test_topic_component_without_lakehouse_component_is_refused(project):
    load = project(orders=topic())
    with pytest.raises(Exception) as refused:  # noqa: B017, PT011 (Dagster's own, with the cause)
        load()
    cause = refused.value
    while cause.__cause__:
        cause = cause.__cause__
    assert isinstance(cause, ConfigError) and "dg scaffold defs lakehouse.LakehouseComponent" in str(cause)


def test_components_are_attributes_of_the_package():
    assert {"TopicComponent", "LakehouseComponent"} <= {*dir(lakehouse)}
    assert lakehouse.TopicComponent.get_model_cls().model_fields.keys() >= {"mode", "key", "pattern", "name"}
    with pytest.raises(AttributeError):
        lakehouse.Absent  # noqa: B018
