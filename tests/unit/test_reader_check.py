"""The check that compares a reader with the published table, while snapshots are published."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from assets.topics.reader_assets import reader_check
from lakehouse.config.model import Config, Topic
from lakehouse.readers.reader import Reader, Registration
from resources.iceberg.catalog import Catalog

ROWS = pa.table({"id": pa.array([1], pa.int64())})


class Follower(Reader):
    """A reader that shows the newest snapshot, which another process publishes just before it answers."""

    name = "glue"
    label = "Follower"
    resource = "glue"
    description = check_description = ""

    def __init__(self, table):
        self.table = table

    def current(self, ref, resources):
        self.table.refresh()
        self.table.append(ROWS)
        rows = len(self.table.scan().to_arrow())
        return Registration(self.table.metadata_location, self.table.metadata.current_snapshot_id, rows)

    def publish(self, topic, ref, table, resources): ...

    def dataset(self, ref, resources): ...


@pytest.fixture
def catalog(tmp_path):
    return Catalog(type="sql", warehouse=f"file://{tmp_path}", uri=f"sqlite:///{tmp_path}/catalog.db")


def test_reader_that_shows_a_snapshot_published_meanwhile_passes(catalog):
    iceberg = catalog.iceberg()
    iceberg.create_namespace("shop")
    table = iceberg.create_table(("shop", "orders"), ROWS.schema)
    table.append(ROWS)
    topic = Topic.model_validate({"name": "orders"})
    config = Config(namespace="shop", topics={"orders": topic}, environments={})

    result = reader_check(config, topic, Follower(table)).run(
        SimpleNamespace(resources=SimpleNamespace(catalog=catalog))
    )

    assert result.passed, result.description
    assert result.metadata["glue_rows"].value == result.metadata["iceberg_rows"].value == 2
