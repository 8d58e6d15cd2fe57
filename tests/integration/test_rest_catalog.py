"""Registration in a REST catalog: other tools read the table, it moves to newer metadata, and logins are renewed."""

import os
from dataclasses import replace
from types import SimpleNamespace

import dagster as dg
import duckdb
import pytest
from pyiceberg.catalog import load_catalog

from assets.freshness import freshness_sensor
from assets.topics.reader_assets import reader_asset, reader_check
from lakehouse.cli.status import status
from lakehouse.core.errors import LakehouseError, UnclearState, Unreachable
from lakehouse.readers import reader_of
from lakehouse.readers.reader_lag import stages_of
from resources.iceberg.rest_catalog import RestCatalog
from tests.support.clouds.rest.client import CLIENT_ID, SECRET
from tests.support.clouds.rest.server import SCOPE, WAREHOUSE, Polaris
from tests.support.servers.proxy import Fault
from tests.support.topics import Stream, in_order


@pytest.fixture(scope="module")
def ingested(resources):
    """A topic whose table has rows. Tests add to it, and compare all of its rows."""
    stream = Stream(resources)
    stream.produce_trades(range(50))
    stream.ingest()
    return stream


@pytest.fixture
def stream(ingested, rest_server):
    """A topic whose table the REST catalog does not have at first."""
    yield ingested
    with Polaris(*rest_server) as proxy:
        catalog, identifier = other_client(proxy), (ingested.namespace, ingested.topic.table)
        if catalog.table_exists(identifier):
            catalog.drop_table(identifier)


def connect(polaris, **settings):
    login = {"client_id": CLIENT_ID, "client_secret": SECRET} if "credential" not in settings else {}
    return RestCatalog(**{"uri": polaris.address, "warehouse": WAREHOUSE, **login, **settings})


def show(stream, rest_catalog):
    stream.show("rest", rest_catalog=rest_catalog)
    return rest_catalog.registration(stream.namespace, stream.topic.table)


def other_client(polaris):
    """Return the catalog as pyiceberg's own client loads it."""
    return load_catalog(
        "elsewhere",
        type="rest",
        uri=polaris.address,
        warehouse=WAREHOUSE,
        credential=f"{CLIENT_ID}:{SECRET}",
        scope=SCOPE,
        **{"oauth2-server-uri": f"{polaris.address}/v1/oauth/tokens"},
        **{"s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"], "s3.region": os.environ["AWS_REGION"]},
    )


def load_registered(polaris, stream):
    return other_client(polaris).load_table((stream.namespace, stream.topic.table))


def test_registered_table_has_same_rows_in_each_engine(resources, stream, polaris):
    show(stream, connect(polaris))
    expected = stream.expected_rows()

    rows = load_registered(polaris, stream).scan().to_arrow()
    assert in_order(rows.to_pylist()) == expected

    assert in_order(duckdb.sql("SELECT * FROM rows").to_arrow_table().to_pylist()) == expected

    name = f"rest_{stream.namespace}"
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": polaris.address,
        ".warehouse": WAREHOUSE,
        ".credential": f"{CLIENT_ID}:{SECRET}",
        ".scope": SCOPE,
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"],
        ".s3.path-style-access": "true",
        ".client.region": os.environ["AWS_REGION"],
    }
    spark = resources.spark.session({f"spark.sql.catalog.{name}{key}": value for key, value in settings.items()})
    in_spark = spark.table(f"{name}.`{stream.namespace}`.`{stream.topic.table}`").toArrow()
    assert in_order(in_spark.to_pylist()) == expected


@pytest.mark.parametrize(("move", "kind"), [("overwrite", "INTERNAL"), ("notify", "EXTERNAL"), ("replace", "INTERNAL")])
def test_register_moves_table_to_newer_metadata(stream, polaris, move, kind):
    polaris.kind = kind
    rest_catalog = connect(polaris, move=move)
    first = show(stream, rest_catalog)
    stream.produce_trades(range(50, 80))
    stream.ingest()

    second = show(stream, rest_catalog)

    assert second.metadata_location == stream.table().metadata_location != first.metadata_location
    assert second.table_uuid == first.table_uuid
    assert in_order(load_registered(polaris, stream).scan().to_arrow().to_pylist()) == stream.expected_rows()
    assert show(stream, rest_catalog) == second


@pytest.mark.parametrize(("kind", "knows_overwrite"), [("EXTERNAL", True), ("INTERNAL", False)])
def test_register_without_overwrite_keeps_registration(stream, polaris, kind, knows_overwrite):
    rest_catalog = connect(polaris)
    first = show(stream, rest_catalog)
    stream.produce_trades(range(50, 60))
    stream.ingest()
    polaris.kind, polaris.knows_overwrite = kind, knows_overwrite

    with pytest.raises(LakehouseError, match="`move: replace`, which drops and registers"):
        show(stream, rest_catalog)
    assert rest_catalog.registration(stream.namespace, stream.topic.table) == first


EXISTS = Fault("response", "POST .*/register", status=409, body=b'{"error": {"message": "Table already exists"}}')
"""The response to the registration before the drop."""


@pytest.mark.parametrize(
    "faults",
    [
        [EXISTS, Fault("cut", "POST .*/register")],
        [Fault("lost connection", "DELETE ")],
    ],
    ids=["cut", "drop without response"],
)
def test_register_interrupted_replacement_reports_missing_table(stream, polaris, faults):
    rest_catalog = connect(polaris, move="replace")
    show(stream, rest_catalog)
    stream.produce_trades(range(50, 60))
    stream.ingest()
    for fault in faults:
        polaris.inject(replace(fault))

    with pytest.raises(LakehouseError, match="was dropped .* and not registered again.* find no table there until"):
        show(stream, rest_catalog)
    assert show(stream, rest_catalog).metadata_location == stream.table().metadata_location


@pytest.mark.parametrize(
    ("first", "message"),
    [([], "not now.* The call changed nothing"), ([EXISTS], "not now.* previous one is registered again")],
    ids=["before the drop", "after the drop"],
)
def test_register_refused_replacement_keeps_previous_registration(stream, polaris, first, message):
    rest_catalog = connect(polaris, move="replace")
    registration = show(stream, rest_catalog)
    stream.produce_trades(range(50, 60))
    stream.ingest()
    refusal = Fault("response", "POST .*/register", status=403, body=b'{"error": {"message": "not now"}}')
    for fault in [*first, refusal]:
        polaris.inject(replace(fault))

    with pytest.raises(LakehouseError, match=message):
        show(stream, rest_catalog)
    assert rest_catalog.registration(stream.namespace, stream.topic.table) == registration
    assert show(stream, rest_catalog).metadata_location == stream.table().metadata_location


def test_register_after_commit_of_other_writer_is_refused(stream, polaris):
    rest_catalog = connect(polaris)
    show(stream, rest_catalog)
    table = load_registered(polaris, stream)
    table.append(table.scan().to_arrow())
    other_location = load_registered(polaris, stream).metadata_location

    with pytest.raises(UnclearState, match="another writer committed through that catalog"):
        show(stream, rest_catalog)
    assert load_registered(polaris, stream).metadata_location == other_location


def test_register_over_other_table_is_refused(stream, polaris):
    catalog = other_client(polaris)
    catalog.create_namespace_if_not_exists(stream.namespace)
    catalog.create_table((stream.namespace, stream.topic.table), stream.table().schema())
    with pytest.raises(UnclearState, match="another Iceberg table"):
        show(stream, connect(polaris))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"credential": f"{CLIENT_ID}:wrong-one"}, "unauthorized_client.*Check the client's id, secret and scope"),
        ({"credential": f"{CLIENT_ID}:{SECRET}", "scope": "catalog"}, "invalid_scope"),
        ({"warehouse": "another"}, "Unable to find warehouse.*Check the warehouse's name"),
        ({"credential": "only-an-id"}, "no secret"),
    ],
)
def test_failed_login_error_contains_no_secret(stream, polaris, settings, message):
    rest_catalog = connect(polaris, **settings)
    with pytest.raises(LakehouseError, match=message) as raised:
        show(stream, rest_catalog)
    for text in (str(raised.value), repr(rest_catalog)):
        assert SECRET not in text and "wrong-one" not in text


def test_token_is_reused_and_replaced_after_expiry(stream, polaris):
    rest_catalog = connect(polaris)
    show(stream, rest_catalog)
    show(stream, rest_catalog)
    assert polaris.issued_tokens == 1

    polaris.expire_tokens()
    show(stream, rest_catalog)
    assert (polaris.issued_tokens, polaris.refused_requests) == (2, 1)


def test_token_is_renewed_before_expiry(stream, polaris):
    polaris.expires_in = 0
    show(stream, connect(polaris))
    assert polaris.issued_tokens > 2 and polaris.refused_requests == 0


def test_unavailable_catalog_is_unreachable(stream, polaris):
    polaris.inject(Fault("response", "v1/config", status=503))
    with pytest.raises(Unreachable, match="The REST catalog does not answer"):
        show(stream, connect(polaris))


def test_reader_asset_and_check_report_snapshot_and_lag(resources, stream, polaris, monkeypatch):
    rest_catalog = connect(polaris)
    asset = reader_asset(stream.config, stream.topic, reader_of("rest"))
    systems = {"catalog": resources.catalog, "rest_catalog": rest_catalog}
    context = SimpleNamespace(resources=SimpleNamespace(**systems))
    with pytest.raises(LakehouseError, match="Materialize .*/rest"):
        reader_check(stream.config, stream.topic, reader_of("rest")).run(context)

    result = dg.materialize([asset], resources=systems)

    (event,) = result.get_asset_materialization_events()
    snapshot_id = stream.table().metadata.current_snapshot_id
    assert event.step_materialization_data.materialization.metadata["snapshot_id"].value == str(snapshot_id)
    verdict = reader_check(stream.config, stream.topic, reader_of("rest")).run(context)
    assert verdict.passed and "up to date" in verdict.description

    stream.produce_trades(range(50, 60))
    stream.ingest()
    monkeypatch.setattr(stream, "topic", stream.topic.model_copy(update={"max_lag_seconds": 0}))
    verdict = reader_check(stream.config, stream.topic, reader_of("rest")).run(context)
    assert not verdict.passed and "1 snapshot behind" in verdict.description


def test_status_and_sensor_report_lag_of_rest_catalog(resources, stream, polaris):
    local = {**stream.config.environments.get("local", {}), "rest_catalog": {}}
    config = stream.config.model_copy(update={"environments": {"local": local}})
    systems = {name: getattr(resources, name) for name in ("kafka", "catalog", "glue", "snowflake")}
    systems["rest_catalog"] = connect(polaris)
    show(stream, systems["rest_catalog"])

    def description():
        (topic_status,) = status(config, SimpleNamespace(**systems))
        return {stage.stage: stage.description for stage in topic_status.stages}["rest"]

    assert description() == "Iceberg → REST catalog: up to date"
    stream.produce_trades(range(50, 60))
    stream.ingest()
    assert description().startswith("Iceberg → REST catalog: 1 snapshot behind")
    assert "rest" not in stages_of(stream.config, stream.topic)

    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(instance=instance, resources=systems, definitions=dg.Definitions()) as context,
    ):
        result = freshness_sensor(config).evaluate_tick(context)
    descriptions = {event.asset_key.path[1]: event.description for event in result.asset_events}
    assert "1 snapshot behind" in descriptions["rest"]
