"""Tables that are moved from a SQL database or Glue to a REST catalog, with interruptions and writers in progress."""

import json
import signal
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse.cli.main import main
from lakehouse.core.errors import ConfigError, TransientError, UnclearState
from lakehouse.pipeline.commits.staged_commit import no_report
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.moving import Move, Place
from tests.integration.test_roll_over import Continued
from tests.support.clouds.rest.client import CREDENTIAL
from tests.support.clouds.rest.lake import catalog_at
from tests.support.clouds.rest.server import SCOPE, WAREHOUSE
from tests.support.faults.moments import attempt
from tests.support.faults.proxied import GlueStream, proxied
from tests.support.servers.proxy import GLUE_STALE, Fault
from tests.support.topics import Stream, in_order, once, s3_settings
from tools.repository import PROJECT

SYSTEMS = ("kafka", "schema_registry", "spark")
REGISTER = r"POST \S+/register "
FORBIDDEN = b'{"error": {"message": "location not allowed", "type": "ForbiddenException", "code": 403}}'


class Interrupted(Exception):
    """An interruption of a move."""


def move_of(stream, server, topics=None, source=None):
    """Return the move of a stream's tables from its catalog to a server."""
    places = Place("sql", source or stream.systems.catalog), Place("rest", catalog_at(server))
    cluster_id = stream.resources.kafka.cluster_id()
    return Move(stream.namespace, topics or [stream.topic], *places, cluster_id)


def interrupted_at_each_change(move):
    """Apply a move that is interrupted before each of its changes once, and return the changes."""
    changes = []

    def interrupt(change):
        if change not in changes:
            changes.append(change)
            raise Interrupted

    while True:
        try:
            move.apply(interrupt)
        except Interrupted:
            continue
        return changes


def in_rest(server):
    """Return the catalog of the server as pyiceberg reads it without the project's code."""
    login = {"credential": CREDENTIAL, "scope": SCOPE, "oauth2-server-uri": f"{server.address}/v1/oauth/tokens"}
    return load_catalog("rest", type="rest", uri=server.address, warehouse=WAREHOUSE, **login, **s3_settings())


def rows(catalog, namespace):
    """Return the rows of each table in a namespace, in the order of the log, with its UUID."""
    tables = [catalog.load_table(name) for name in catalog.list_tables(namespace)]
    read = {table.name()[-1]: table.scan().to_arrow().to_pylist() for table in tables}
    uuids = {table.name()[-1]: str(table.metadata.table_uuid) for table in tables}
    return {name: (uuids[name], sorted(map(repr, of))) for name, of in read.items()}


def run(environment, *command, exit_code=0):
    """Run a command in an environment, and return its output."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    result = CliRunner().invoke(main, ["--env", environment, *command])
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert result.exit_code == exit_code, result.output
    return result.output


@pytest.fixture
def server(polaris):
    return polaris


@pytest.fixture
def project(resources, server, tmp_path, monkeypatch):
    """Topics in a project with the environments `sql` and `rest`: one with a derived topic, one with two tables."""
    trades = Stream(resources)
    numbers = Continued(resources, partitions=1, namespace=trades.namespace + "n", settings={})
    systems = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())["environments"]["local"]
    shared = {name: systems[name] for name in SYSTEMS}
    login = {"credential": {"env": "ICEBERG_CATALOG_CREDENTIAL"}, "scope": SCOPE}
    place = {"type": "rest", "uri": server.address, "warehouse": WAREHOUSE, "region": {"env": "AWS_REGION"}}
    rest = place | login | {"s3_endpoint": {"env": "AWS_ENDPOINT_URL_S3"}}
    derived = {"type": "derived", "from": trades.name, "transform": "spark.flags:flagged"}
    config = {
        "namespace": trades.namespace,
        "topics": {
            trades.name: trades.settings,
            f"{trades.name}-flagged": {"source": derived},
            numbers.name: numbers.settings | {"on_incompatible": "new_table"},
        },
        "environments": {"sql": shared | {"catalog": systems["catalog"]}, "rest": shared | {"catalog": rest}},
    }
    file = tmp_path / "lakehouse.yaml"
    file.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))
    monkeypatch.setenv("LAKEHOUSE_ENV", "sql")
    monkeypatch.setenv("ICEBERG_CATALOG_CREDENTIAL", CREDENTIAL)
    # A Spark session keeps the catalog that it used first.
    resources.spark.close()
    yield trades, numbers
    resources.spark.close()


def state(environment, trades, numbers):
    """Return the status and the ledgers of all topics."""
    names = (trades.name, f"{trades.name}-flagged", numbers.name)
    ledgers = [json.loads(run(environment, "ledger", name, "--json")) for name in names]
    return json.loads(run(environment, "status", "--json"))["topics"], ledgers


def test_move_interrupted_at_each_change_continues_everything(server, project):
    trades, numbers = project
    for stream, first in ((trades, 0), (numbers, 0)):
        stream.produce_trades(range(first, first + 30))
    trades.produce([{"value": b"bad"}])
    run("sql", "stream", "--once")
    numbers.produce_numbers(range(30, 40))
    run("sql", "stream", "--once")
    run("sql", "pause", numbers.name, "--reason", "a test")
    before, old = state("sql", trades, numbers), trades.independent_catalog()
    tables = rows(old, trades.namespace)
    suffixes = {name.removeprefix(trades.topic.table) for name in tables if name.startswith(trades.topic.table)}
    assert suffixes >= {"", "__dead_letters", "_flagged"} and numbers.topic.table + "__v2" in tables

    with pytest.raises(ConfigError, match="has records of the Kafka cluster"):
        replace(move_of(trades, server), cluster_id="another").plan()
    assert f"{len(tables)} tables to move" in run("rest", "move", "--from", "sql", "--plan")
    assert rows(old, trades.namespace) == tables
    topics = [trades.topic, numbers.topic.model_copy(update={"on_incompatible": "new_table"})]
    changes = interrupted_at_each_change(replace(move_of(trades, server), topics=topics))
    assert len(changes) == 1 + 2 * (len(tables) - 1)
    moved = run("rest", "move", "--from", "sql", "--yes")

    assert "1 table to move" in moved and "All tables are in" in moved
    assert rows(in_rest(server), trades.namespace) == tables
    assert state("rest", trades, numbers) == before

    refusal = run("sql", "stream", "--once", exit_code=1)
    assert "was moved from the catalog sqlite:///" in refusal and server.address in refusal
    assert "`lakehouse --env rest move --from sql --plan`" in refusal
    markers = rows(old, trades.namespace)
    assert markers.keys() == tables.keys() and all(not of for _, of in markers.values())

    trades.produce_trades(range(30, 50))
    run("rest", "unpause", numbers.name)
    assert "0 tables to move" in run("rest", "move", "--from", "sql")
    numbers.produce_numbers(range(40, 50))
    run("rest", "stream", "--once")
    for name in (trades.name, f"{trades.name}-flagged", numbers.name):
        run("rest", "ledger", name, "--log")
    # No record was derived twice.
    counts = {name: len(of) for name, (_, of) in rows(in_rest(server), trades.namespace).items()}
    table = trades.topic.table
    assert (counts[table], counts[f"{table}_flagged"], counts[f"{table}__dead_letters"]) == (50, 50, 1)
    assert (counts[numbers.topic.table], counts[numbers.topic.table + "__v2"]) == (30, 20)
    assert rows(old, trades.namespace) == markers


@contextmanager
def stream_in(type_, resources):
    """Yield a topic without a table, whose catalog is in SQLite, or in Glue that refuses stale versions."""
    if type_ == "glue":
        with proxied(GlueStream(resources)) as stream:
            yield stream
    else:
        yield Stream(resources)


@pytest.mark.parametrize(("type_", "phase"), [("sql", "write"), ("glue", "publish")])
def test_batch_in_progress_of_old_catalog_is_not_published(resources, server, type_, phase):
    with stream_in(type_, resources) as stream:
        for numbers in (range(50), range(50, 80)):
            stream.produce_trades(numbers)
            on_phase, moved = once(phase, lambda: move_of(stream, server).apply(str))
            failure = attempt(stream, on_phase if numbers.start else no_report)

        assert moved == [None] and failure is not None
        with pytest.raises(UnclearState, match="was moved from the catalog"):
            stream.ingest()
        resources.spark.close()
        list(ingest(stream.namespace, stream.topic, replace(stream.systems, catalog=catalog_at(server))))
        resources.spark.close()
        table = in_rest(server).load_table((stream.namespace, stream.topic.table))
        assert in_order(table.scan().to_arrow().to_pylist()) == stream.expected_rows()


NUMBER = Schema(NestedField(1, "number", LongType(), required=False))


class Numbers:
    """A table of numbers in the place of a topic's, which pyiceberg writes in an old catalog."""

    def __init__(self, stream, server):
        self.stream, self.server = stream, server
        self.ref = stream.topic.table_in(stream.namespace)
        self.source = stream.systems.catalog
        self.source.ensure_table(self.ref, NUMBER)
        self.add(1)

    def add(self, number):
        self.source.load(self.ref).append(pa.table({"number": pa.array([number], pa.int64())}))

    def move(self, report=str):
        move_of(self.stream, self.server).apply(report)

    def moved(self):
        """Return the numbers in the new catalog."""
        table = in_rest(self.server).load_table(self.ref.identifier)
        return sorted(table.scan().to_arrow()["number"].to_pylist())


@pytest.fixture(params=["sql", "glue"])
def numbers(request, resources, server):
    with stream_in(request.param, resources) as stream:
        yield Numbers(stream, server)


@pytest.fixture
def numbers_in_sql(resources, server):
    return Numbers(Stream(resources), server)


def test_commit_of_a_writer_before_the_marker_is_moved(numbers):
    """The first marker is too late, so that the table is moved with the commit."""
    changes = []

    def add_before_first_marker(change):
        changes.append(change)
        if "marker" in change and len(changes) == 2:
            numbers.add(2)

    numbers.move(add_before_first_marker)

    assert sum("marker" in change for change in changes) == 2
    assert numbers.moved() == [1, 2]


def test_move_with_refused_registration_leaves_the_table(numbers):
    numbers.server.inject(Fault("response", REGISTER, status=403, body=FORBIDDEN))
    with pytest.raises(UnclearState, match="location not allowed.*is in .* as before.*move --from sql"):
        numbers.move()

    numbers.add(2)
    numbers.move()

    assert numbers.moved() == [1, 2]
    with pytest.raises(UnclearState, match="was moved from the catalog"):
        numbers.add(3)


@pytest.mark.parametrize("kind", ["lost response", "lost connection"])
def test_registration_with_lost_response_is_found(numbers_in_sql, kind):
    numbers_in_sql.server.inject(Fault(kind, REGISTER, status=500))
    numbers_in_sql.move()
    assert numbers_in_sql.moved() == [1]


def test_registration_without_a_response_is_completed_later(numbers_in_sql):
    numbers_in_sql.server.inject(Fault("cut", REGISTER))
    with pytest.raises(TransientError, match="is registered there or not.*`lakehouse --env rest move --from sql`"):
        numbers_in_sql.move()
    numbers_in_sql.move()
    assert numbers_in_sql.moved() == [1]


@pytest.mark.parametrize("kind", ["lost response", "response"])
def test_marker_in_glue_with_lost_or_stale_response_is_completed(resources, server, kind):
    with stream_in("glue", resources) as stream:
        numbers = Numbers(stream, server)
        stream.glue.inject(Fault(kind, "UpdateTable", status=400, body=GLUE_STALE))
        numbers.move()
        assert numbers.moved() == [1]


def test_move_refuses_a_table_that_is_not_the_same(numbers_in_sql):
    numbers, ref = numbers_in_sql, numbers_in_sql.ref
    before = numbers.source.load(ref).metadata_location
    numbers.server.register(ref.namespace, ref.name, before)
    with pytest.raises(UnclearState, match="a registration of .*without purge"):
        numbers.move()
    in_rest(numbers.server).drop_table(ref.identifier)
    in_rest(numbers.server).create_table(ref.identifier, NUMBER)
    with pytest.raises(UnclearState, match="another table with the name of"):
        numbers.move()
    assert numbers.source.load(ref).metadata_location == before


def test_move_refuses_files_of_another_table_in_the_folder(numbers_in_sql):
    numbers, other = numbers_in_sql, (numbers_in_sql.ref.namespace, "other")
    location = numbers.source.load(numbers.ref).location()
    numbers.source.iceberg().create_table(other, NUMBER, location=location)
    with pytest.raises(UnclearState, match="other, of no topic in lakehouse.yaml, has files in the folder"):
        numbers.move()


def test_move_to_a_catalog_that_is_no_rest_catalog_is_refused(numbers_in_sql):
    move = move_of(numbers_in_sql.stream, numbers_in_sql.server)
    with pytest.raises(ConfigError, match="from a catalog of type sql or glue to one of type rest"):
        replace(move, target=move.source)
