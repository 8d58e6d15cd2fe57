"""Registration in a REST catalog: readable by others, moved in one step where the server can, and its login."""

import os
from types import SimpleNamespace

import dagster as dg
import duckdb
import pytest
from proxy import Fault
from pyiceberg.catalog import load_catalog
from rest_fixtures import CLIENT_ID, SCOPE, SECRET, WAREHOUSE
from support import Stream, in_order

from assets.readers import reader_asset, reader_check
from assets.sensors.freshness_sensor import freshness_sensor
from lakehouse.cli.status import status
from lakehouse.core.errors import LakehouseError, UnclearState, Unreachable
from lakehouse.readers import reader_of
from lakehouse.readers.hops import hops_of
from resources.rest_catalog import RestCatalog

pytest_plugins = ["rest_fixtures"]


@pytest.fixture
def stream(resources):
    stream = Stream(resources)
    stream.produce_trades(range(50))
    stream.ingest()
    return stream


def connect(polaris, **settings):
    login = {"client_id": CLIENT_ID, "client_secret": SECRET} if "credential" not in settings else {}
    return RestCatalog(**{"uri": polaris.address, "warehouse": WAREHOUSE, **login, **settings})


def show(stream, rest_catalog):
    stream.show("rest", rest_catalog=rest_catalog)
    return rest_catalog.registered(stream.namespace, stream.topic.table)


def elsewhere(polaris):
    """The catalog as another tool finds it: pyiceberg's own client."""
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


def there(polaris, stream):
    return elsewhere(polaris).load_table((stream.namespace, stream.topic.table))


def test_pyiceberg_duckdb_and_spark_read_the_oracles_rows(resources, stream, polaris):
    show(stream, connect(polaris))
    expected = stream.expected_rows()

    rows = there(polaris, stream).scan().to_arrow()
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
def test_a_registered_table_moves_to_the_newer_metadata(stream, polaris, move, kind):
    polaris.kind = kind
    rest_catalog = connect(polaris, move=move)
    first = show(stream, rest_catalog)
    stream.produce_trades(range(50, 80))
    stream.ingest()

    second = show(stream, rest_catalog)

    assert second.metadata_location == stream.table().metadata_location != first.metadata_location
    assert second.table_uuid == first.table_uuid
    assert in_order(there(polaris, stream).scan().to_arrow().to_pylist()) == stream.expected_rows()
    assert show(stream, rest_catalog) == second


@pytest.mark.parametrize(("kind", "knows_overwrite"), [("EXTERNAL", True), ("INTERNAL", False)])
def test_a_catalog_that_cannot_overwrite_says_so_and_shows_what_it_showed(stream, polaris, kind, knows_overwrite):
    rest_catalog = connect(polaris)
    first = show(stream, rest_catalog)
    stream.produce_trades(range(50, 60))
    stream.ingest()
    polaris.kind, polaris.knows_overwrite = kind, knows_overwrite

    with pytest.raises(LakehouseError, match="`move: replace`, which drops and registers"):
        show(stream, rest_catalog)
    assert rest_catalog.registered(stream.namespace, stream.topic.table) == first


@pytest.mark.parametrize(
    "fault",
    [
        Fault("answer", "POST .*/register", status=403, body=b'{"error": {"message": "not now"}}'),
        Fault("cut", "POST .*/register"),
        Fault("lost connection", "DELETE "),
    ],
    ids=["refused", "cut", "drop not answered"],
)
def test_a_replacement_that_stops_half_way_says_that_there_is_no_table(stream, polaris, fault):
    rest_catalog = connect(polaris, move="replace")
    show(stream, rest_catalog)
    stream.produce_trades(range(50, 60))
    stream.ingest()
    polaris.inject(fault)

    with pytest.raises(LakehouseError, match="was dropped .* to be registered anew.* find no table until"):
        show(stream, rest_catalog)
    assert show(stream, rest_catalog).metadata_location == stream.table().metadata_location


def test_a_move_whose_answer_is_lost_is_found_to_have_happened(stream, polaris):
    rest_catalog = connect(polaris)
    show(stream, rest_catalog)
    stream.produce_trades(range(50, 60))
    stream.ingest()
    polaris.inject(Fault("lost answer", "POST .*/register", status=503))
    assert show(stream, rest_catalog).metadata_location == stream.table().metadata_location


def test_what_somebody_else_wrote_there_is_left_alone(stream, polaris):
    rest_catalog = connect(polaris)
    show(stream, rest_catalog)
    table = there(polaris, stream)
    table.append(table.scan().to_arrow())
    theirs = there(polaris, stream).metadata_location

    with pytest.raises(UnclearState, match="somebody wrote through that catalog"):
        show(stream, rest_catalog)
    assert there(polaris, stream).metadata_location == theirs


def test_another_table_of_the_name_is_left_alone(stream, polaris):
    catalog = elsewhere(polaris)
    catalog.create_namespace(stream.namespace)
    catalog.create_table((stream.namespace, stream.topic.table), stream.table().schema())
    with pytest.raises(UnclearState, match="another Iceberg table"):
        show(stream, connect(polaris))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"credential": f"{CLIENT_ID}:wrong-one"}, "unauthorized_client.*Check the client's id, secret and scope"),
        ({"credential": f"{CLIENT_ID}:{SECRET}", "scope": "catalog"}, "invalid_scope"),
        ({"warehouse": "another"}, "Unable to find warehouse.*Check the warehouse's name"),
        ({"credential": "only-an-id"}, "no secret"),
    ],
)
def test_a_login_that_fails_is_a_sentence_without_the_secret(stream, polaris, settings, said):
    rest_catalog = connect(polaris, **settings)
    with pytest.raises(LakehouseError, match=said) as told:
        show(stream, rest_catalog)
    for text in (str(told.value), repr(rest_catalog)):
        assert SECRET not in text and "wrong-one" not in text


def test_a_token_is_kept_and_asked_for_again_when_it_ends(stream, polaris):
    rest_catalog = connect(polaris)
    show(stream, rest_catalog)
    show(stream, rest_catalog)
    assert polaris.given == 1

    polaris.end_tokens()
    show(stream, rest_catalog)
    assert (polaris.given, polaris.ended) == (2, 1)


def test_a_token_is_renewed_before_it_ends(stream, polaris):
    polaris.expires_in = 0
    show(stream, connect(polaris))
    assert polaris.given > 2 and polaris.ended == 0


def test_a_catalog_that_does_not_answer(stream, polaris):
    polaris.inject(Fault("answer", "v1/config", status=503))
    with pytest.raises(Unreachable, match="The REST catalog does not answer"):
        show(stream, connect(polaris))


def test_the_asset_and_its_check(resources, stream, polaris):
    rest_catalog = connect(polaris)
    asset = reader_asset(stream.config, stream.topic, reader_of("rest"))
    given = {"catalog": resources.catalog, "rest_catalog": rest_catalog}
    context = SimpleNamespace(resources=SimpleNamespace(**given))
    with pytest.raises(LakehouseError, match="Materialize rest/"):
        reader_check(stream.config, stream.topic, reader_of("rest")).run(context)

    result = dg.materialize([asset], resources=given)

    (event,) = result.get_asset_materialization_events()
    snapshot_id = stream.table().metadata.current_snapshot_id
    assert event.step_materialization_data.materialization.metadata["snapshot_id"].value == str(snapshot_id)
    verdict = reader_check(stream.config, stream.topic, reader_of("rest")).run(context)
    assert verdict.passed and "newest published snapshot" in verdict.description

    stream.produce_trades(range(50, 60))
    stream.ingest()
    stream.topic = stream.topic.model_copy(update={"max_lag_seconds": 0})
    verdict = reader_check(stream.config, stream.topic, reader_of("rest")).run(context)
    assert not verdict.passed and "1 snapshot behind" in verdict.description


def test_the_hop_is_in_the_status_and_in_the_sensor_where_the_environment_has_it(resources, stream, polaris):
    local = {**stream.config.environments.get("local", {}), "rest_catalog": {}}
    config = stream.config.model_copy(update={"environments": {"local": local}})
    systems = {name: getattr(resources, name) for name in ("kafka", "catalog", "glue", "snowflake")}
    systems["rest_catalog"] = connect(polaris)
    show(stream, systems["rest_catalog"])

    def told():
        (found,) = status(config, SimpleNamespace(**systems))
        return {hop.asset: hop.said for hop in found.hops}["rest"]

    assert told() == "Iceberg → REST catalog: shows the newest published snapshot"
    stream.produce_trades(range(50, 60))
    stream.ingest()
    assert told().startswith("Iceberg → REST catalog: 1 snapshot behind")
    assert "rest" not in hops_of(stream.config, stream.topic)

    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(instance=instance, resources=systems, definitions=dg.Definitions()) as context,
    ):
        result = freshness_sensor(config).evaluate_tick(context)
    said = {event.asset_key.path[0]: event.description for event in result.asset_events}
    assert "1 snapshot behind" in said["rest"]
