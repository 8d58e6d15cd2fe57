"""Topics derived row by row from a table that Tableflow writes, whose snapshots have no offsets."""

import uuid
from types import SimpleNamespace

import pyarrow as pa
import pytest

from lakehouse.config.model import Topic
from lakehouse.core.errors import UnclearState
from lakehouse.pipeline.bookmarks import set_derived_bookmark
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.derivation.derivation import derive
from lakehouse.readers.reader_lag import measure_lag
from resources.aws.glue import Glue
from tests.support.topics import Stream, recreate

PREFIXES = {"confluent": "$$", "confluent_portable": "cflt_metadata_"}


class Tableflow:
    """A topic, its table as Tableflow writes it, and the topic of flags that is derived from the table."""

    def __init__(self, resources, naming="confluent_portable"):
        self.database, self.prefix = f"lkc-{uuid.uuid4().hex[:8]}", PREFIXES[naming]
        self.trades = Stream(resources, partitions=2)
        declared = {"name": self.trades.name, "engine": "tableflow", "metadata": {"naming": naming}}
        source = Topic.model_validate(declared)
        flags = {"key": [], "source": {"type": "derived", "transform": "spark.flags:flagged", "from": source.name}}
        self.flags = Stream(resources, partitions=2, settings=flags)
        self.flags.namespace = self.trades.namespace
        topics = {source.name: source, self.flags.name: self.flags.topic}
        self.config = self.trades.config.model_copy(update={"topics": topics})
        self.glue = Glue(
            region=resources.glue.region, catalog_id=resources.glue.catalog_id, tableflow_database=self.database
        )
        systems = {name: getattr(resources, name) for name in ("kafka", "schema_registry", "spark", "catalog")}
        self.systems = SimpleNamespace(**systems, glue=self.glue)
        catalog = resources.catalog.iceberg()
        catalog.create_namespace(self.database)
        self.table = catalog.create_table((self.database, source.topic), schema=self.rows([]).schema)

    def rows(self, origins):
        """Return trades at these partitions and offsets; the price of each is unique."""
        separator = "-" if self.prefix == "$$" else "_"
        return pa.table(
            {
                "price": pa.array([1000 * partition + offset for partition, offset in origins], pa.int32()),
                "quantity": pa.array([1] * len(origins), pa.int32()),
                f"{self.prefix}partition": pa.array([partition for partition, _ in origins], pa.int32()),
                f"{self.prefix}offset": pa.array([offset for _, offset in origins], pa.int64()),
                f"{self.prefix}leader{separator}epoch": pa.array([0] * len(origins), pa.int32()),
                f"{self.prefix}raw{separator}value": pa.array([b"hidden"] * len(origins), pa.binary()),
            }
        )

    def append(self, *origins):
        self.table.append(self.rows(origins))

    def derive(self):
        return derive(self.config, self.flags.topic, Clients.of(self.systems)).messages

    def flagged(self):
        """Return the prices of all flagged trades in order, and the columns of the derived table."""
        self.flags.ingest()
        table = self.flags.table().scan().to_arrow()
        return sorted(table["price"].to_pylist()), set(table.column_names)


def test_derive_rows_of_tableflow_once_in_any_order_of_commits(resources):
    tableflow = Tableflow(resources, "confluent")
    assert tableflow.derive() == 0
    tableflow.append((0, 0), (0, 1), (1, 0))
    assert tableflow.derive() == 3
    tableflow.append((0, 3))
    assert tableflow.derive() == 1
    tableflow.append((0, 2), (1, 1))
    assert tableflow.derive() == 2
    assert tableflow.derive() == 0
    prices, columns = tableflow.flagged()
    assert prices == [0, 1, 2, 3, 1000, 1001]
    assert {"price", "quantity", "anomaly_flag"} <= columns
    assert not [name for name in columns if name.startswith(("$$", "cflt_", "kafka_leader", "kafka_raw"))]


def test_derive_after_compaction_and_retention_continues(resources):
    tableflow = Tableflow(resources)
    tableflow.append((0, 5), (0, 6), (1, 7))
    assert tableflow.derive() == 3
    tableflow.table.overwrite(tableflow.rows([(0, 5), (0, 6), (1, 7)]))
    assert tableflow.derive() == 0
    tableflow.table.delete("cflt_metadata_partition = 0")
    assert tableflow.derive() == 0
    tableflow.append((0, 7))
    assert tableflow.derive() == 1
    assert tableflow.flagged()[0] == [5, 6, 7, 1007]


def test_derive_from_expired_tableflow_snapshot_stops_until_resumed(resources):
    tableflow = Tableflow(resources)
    tableflow.append((0, 0))
    assert tableflow.derive() == 1
    derived_from = tableflow.table.current_snapshot().snapshot_id
    tableflow.append((0, 1))
    tableflow.table.maintenance.expire_snapshots().by_id(derived_from).commit()
    tableflow.table.refresh()
    with pytest.raises(UnclearState, match=f"snapshot {derived_from} of .*, which is expired.* Nothing was produced"):
        tableflow.derive()

    clients = Clients.of(tableflow.systems)
    tableflow.trades.produce([{"value": b"", "partition": 0}] * 3)  # the third is not in the table yet
    set_derived_bookmark(tableflow.config, tableflow.flags.topic, clients, "latest", "skipped")
    tableflow.append((0, 2))

    assert tableflow.derive() == 1
    assert tableflow.flagged()[0] == [0, 2]


def test_derive_recreated_topic_in_same_table_is_refused(resources):
    tableflow = Tableflow(resources)
    tableflow.append((0, 0))
    assert tableflow.derive() == 1
    recreate(tableflow.trades)
    tableflow.append((0, 1))
    with pytest.raises(UnclearState, match="was recreated, and its table has rows of both topics.* Nothing was"):
        tableflow.derive()


def test_lag_of_topic_derived_from_tableflow_counts_snapshots(resources):
    tableflow = Tableflow(resources)

    def behind():
        lag = measure_lag("kafka", tableflow.config, tableflow.flags.topic, tableflow.systems)
        assert not lag.failure, lag.failure
        return lag.behind.missing

    tableflow.append((0, 0))
    assert behind() == 1
    tableflow.derive()
    assert behind() == 0
    tableflow.append((0, 1))
    tableflow.append((0, 2))
    assert behind() == 2
