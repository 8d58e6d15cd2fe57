"""Topics whose tables Confluent's Tableflow makes: what is refused, and what Dagster has of them."""

import dagster as dg
import pytest

from lakehouse.config import loader
from lakehouse.core.errors import ConfigError
from lakehouse.definitions import defs


@pytest.fixture
def declare(tmp_path, monkeypatch):
    """lakehouse.yaml with further topics."""

    def declare(topics):
        text = loader.config_path().read_text()
        for folder in ("schemas",):
            if not (tmp_path / folder).exists():
                (tmp_path / folder).symlink_to(loader.PROJECT / folder)
        (tmp_path / "lakehouse.yaml").write_text(text.replace("topics:", f"topics:\n{topics}", 1))
        monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "lakehouse.yaml"))

    return declare


def test_its_table_is_observed_and_nothing_else_is_made_of_it(declare):
    declare("  orders: {engine: tableflow, checks: {paid: {type: not_null, column: paid}}}")
    loaded = defs()
    dg.Definitions.validate_loadable(loaded)
    graph = loaded.resolve_asset_graph()
    assert {key.path[0] for key in graph.get_all_asset_keys() if key.path[-1] == "orders"} == {"kafka", "iceberg"}
    assert [key.name for key in graph.asset_check_keys if key.asset_key.path[-1] == "orders"] == ["paid"]
    nodes = {node.name for node in loaded.resolve_job_def("lakehouse").nodes}
    assert "iceberg__orders" in nodes and "glue__orders" not in nodes


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        ("  t: {engine: tableflow, mode: upsert, key: id}", "topics.t.mode: Tableflow appends"),
        (
            "  t: {engine: tableflow, checks: {c: {type: not_null, column: x, severity: quarantine}}}",
            "topics.t.checks: Tableflow publishes before anything is checked",
        ),
        (
            "  t: {engine: tableflow}\n  d: {source: {type: derived, from: t, transform: 'a:b'}}",
            "topics.d.source.from: 't' is made a table by Tableflow",
        ),
    ],
)
def test_what_tableflow_does_not_do_is_refused(declare, topics, said):
    declare(topics)
    with pytest.raises(ConfigError, match=said):
        loader.load()
