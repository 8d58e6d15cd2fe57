"""Tables of Tableflow in Confluent's storage, which only Tableflow's own catalog has and vends credentials for."""

import uuid
from types import SimpleNamespace

import dagster as dg
import pyarrow as pa
import pytest

from assets.topics.iceberg_asset import tableflow_asset
from lakehouse.cli.check_runner import run_declared_checks
from lakehouse.config.model import Topic
from lakehouse.core.errors import RequestRejected, Unreachable
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.derivation.derivation import derive
from lakehouse.pipeline.engine_values import JobFailed
from lakehouse.readers.reader_lag import measure_lag, stages_of
from resources.iceberg.tableflow_catalog import TableflowCatalog
from tests.support.clouds.rest.client import CLIENT_ID, SECRET
from tests.support.servers.proxy import Fault
from tests.support.topics import Stream

NAMINGS = {"confluent": "$$", "confluent_portable": "cflt_metadata_"}


class Stored:
    """A topic, its table in Confluent's storage, and the topic of flags that is derived from the table."""

    def __init__(self, resources, server, naming, mode):
        self.server, self.prefix, self.trades = server, NAMINGS[naming], Stream(resources, partitions=2)
        entry = {"name": self.trades.name, "engine": "tableflow", "metadata": {"naming": naming}, "mode": mode}
        checks = {"has_price": {"type": "not_null", "column": "price"}}
        self.topic = Topic.model_validate(entry | {"checks": checks, "key": ["price"] if mode == "upsert" else []})
        flags = {"key": [], "source": {"type": "derived", "transform": "spark.flags:flagged", "from": self.topic.name}}
        self.flags = Stream(resources, partitions=2, settings=flags)
        self.flags.namespace = self.trades.namespace
        self.catalog = TableflowCatalog(uri=server.address, api_key=CLIENT_ID, api_secret=SECRET, region="us-east-1")
        settings = {"uri": server.address, "api_key": CLIENT_ID, "api_secret": SECRET, "region": "us-east-1"}
        self.config = self.trades.config.model_copy(
            update={
                "topics": {self.topic.name: self.topic, self.flags.name: self.flags.topic},
                "environments": {"local": {"tableflow_catalog": settings}},
            }
        )
        systems = {name: getattr(resources, name) for name in ("kafka", "schema_registry", "spark", "catalog")}
        self.systems = systems | {"tableflow_catalog": self.catalog}
        # A session of Spark keeps the catalogs that it has used, so an earlier test's is closed.
        resources.spark.close()
        # Tableflow's catalog alone has the table under the name of the topic.
        kept, namespace = resources.catalog.iceberg(), f"storage_{uuid.uuid4().hex[:8]}"
        kept.create_namespace(namespace)
        self.table = kept.create_table((namespace, "t"), schema=self.rows([]).schema)
        self.namespace = resources.kafka.cluster_id()
        server.register(self.namespace, self.topic.topic, self.table.metadata_location)

    def rows(self, origins):
        """Return trades at these partitions and offsets; the price of each is unique."""
        return pa.table(
            {
                "price": pa.array([1000 * partition + offset for partition, offset in origins], pa.int32()),
                "quantity": pa.array([1] * len(origins), pa.int32()),
                f"{self.prefix}partition": pa.array([partition for partition, _ in origins], pa.int32()),
                f"{self.prefix}offset": pa.array([offset for _, offset in origins], pa.int64()),
            }
        )

    def append(self, *origins):
        self.table.append(self.rows(origins))
        self.server.point(self.namespace, self.topic.topic, self.table.metadata_location)

    def materialize(self):
        asset = tableflow_asset(self.config, self.topic)
        needed = {key: self.systems[key] for key in asset.required_resource_keys & self.systems.keys()}
        return dg.materialize([asset], resources=needed, raise_on_error=False)

    def derive(self):
        return derive(self.config, self.flags.topic, Clients.of(SimpleNamespace(**self.systems))).messages


@pytest.fixture
def stored(resources, tableflow_own):
    return Stored(resources, tableflow_own, "confluent_portable", "append")


@pytest.mark.parametrize(("naming", "mode"), list(zip(NAMINGS, ("append", "upsert"), strict=True)))
def test_asset_checks_table_with_vended_credentials(resources, tableflow_own, naming, mode, monkeypatch):
    stored = Stored(resources, tableflow_own, naming, mode)
    stored.append((0, 0), (0, 1), (1, 0))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-nobody")

    result = stored.materialize()

    assert result.success
    [evaluation] = result.get_asset_check_evaluations()
    assert evaluation.passed and evaluation.metadata["rows_checked"].value == 3
    [event] = result.get_asset_materialization_events()
    metadata = event.materialization.metadata
    assert metadata["dagster/row_count"].value == 3
    assert metadata["snapshot_id"].value == str(stored.table.metadata.current_snapshot_id)
    assert stages_of(stored.config, stored.topic) == []
    outcomes = run_declared_checks(stored.config, [stored.topic], SimpleNamespace(**stored.systems))
    assert [(outcome.check, outcome.verdict) for outcome in outcomes] == [("has_price", "passed")]


def test_derive_from_table_in_confluent_storage_produces_new_rows(stored):
    stored.append((0, 0), (0, 1), (1, 0))
    assert stored.derive() == 3
    stored.append((0, 2), (1, 1))
    lag = measure_lag("kafka", stored.config, stored.flags.topic, SimpleNamespace(**stored.systems))
    assert lag.behind.missing == 1
    assert stored.derive() == 2
    stored.flags.ingest()
    assert sorted(stored.flags.table().scan().to_arrow()["price"].to_pylist()) == [0, 1, 2, 1000, 1001]


def test_spark_reads_files_with_vended_credentials_only(stored):
    stored.append((0, 0))
    stored.server.vended["s3.secret-access-key"] = "wrong"
    with pytest.raises(JobFailed, match="403"):
        stored.derive()
    assert not stored.materialize().success


def test_asset_without_table_names_it(stored):
    stored.topic = stored.topic.model_copy(update={"kafka_topic": "nothing"})
    [failure] = [event for event in stored.materialize().all_events if event.is_step_failure]
    description = failure.step_failure_data.user_failure_data.description
    assert f"has published no table '{stored.namespace}.nothing' yet" in description


def test_load_refused_or_unreachable_catalog_raises_without_secrets(stored):
    ref = TableRef(stored.namespace, stored.topic.topic)
    stored.server.inject(Fault("response", "tables", status=503))
    with pytest.raises(Unreachable, match="Tableflow's catalog does not answer at http"):
        stored.catalog.load(ref)
    stored.server.inject(Fault("response", "tables", status=401, times=4))
    with pytest.raises(RequestRejected, match="DeveloperRead") as refused:
        stored.catalog.load(ref)
    assert SECRET not in str(refused.value) and SECRET not in repr(stored.catalog)


def test_expired_token_is_renewed(stored):
    stored.append((0, 0))
    stored.server.expires_in = 0
    ref = TableRef(stored.namespace, stored.topic.topic)
    assert stored.catalog.load(ref) and stored.catalog.load(ref)
    assert stored.server.issued_tokens == 2
    stored.server.expires_in = 3600
    assert stored.catalog.load(ref)
    stored.server.expire_tokens()
    assert stored.catalog.load(ref)
    assert stored.server.issued_tokens == 4
