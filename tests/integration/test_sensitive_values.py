"""Values of sensitive columns are only in the table: not in Dagster, messages, lineage, output or files."""

import json
import os
import struct
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner

from assets import factories
from assets.alerts import alert_failed_checks
from assets.lineage import lineage_sensor
from assets.run_alerts import alert_failed_runs
from lakehouse.cli.main import main
from lakehouse.config.loader import load
from lakehouse.definitions import defs
from resources.build import build_resources
from resources.open_lineage import OpenLineage
from resources.webhook import Webhook
from tests.support.servers.listener import Listener
from tests.support.topics import Stream, framed, register
from tools.repository import PROJECT

TEXT, NUMBER = "canary7q4x", 471_100_815
"""Values in every sensitive column. CANARIES has the digits of the number with and without separators."""
CANARIES = tuple(text.encode() for text in (TEXT, str(NUMBER), f"{NUMBER:,}", TEXT.encode().hex(), TEXT.upper()))

STREET = {"type": "record", "name": "A", "fields": [{"name": n, "type": "string"} for n in ("street", "city")]}
PHONES = {"type": "array", "items": {"type": "record", "name": "P", "fields": [{"name": "number", "type": "string"}]}}


def schema(secret, *aliases):
    fields = [
        *({"name": name, "type": "string"} for name in ("ssn", "name", "side")),
        {"name": "account", "type": "long"},
        {"name": "quantity", "type": "long"},
        {"name": "address", "type": STREET},
        {"name": "phones", "type": PHONES},
        {"name": secret, "type": "string", "aliases": list(aliases)},
    ]
    return json.dumps({"type": "record", "name": "Person", "fields": fields})


BEFORE, AFTER = schema("maiden_name"), schema("born_as", "maiden_name")
SETTINGS = {
    "mode": "upsert",
    "key": "ssn",
    "errors": "log",
    "sensitive": ["SSN", "Name", "account", "address.STREET", "phones.number", "maiden_name"],
    "metadata": {"columns": ["partition", "offset", "timestamp", "schema_id", "headers", "raw_key", "raw_value"]},
    "checks": {
        "side_known": {"type": "accepted_values", "column": "side", "values": ["BUY"], "severity": "warn"},
        "ssn_spelt": {"type": "regex", "column": "ssn", "pattern": "[0-9]+", "severity": "warn"},
        "all_of_it": {"type": "expression", "sql": "account < 0", "severity": "warn"},
        "by_query": {
            "type": "query",
            "sql": "SELECT ssn AS side, account AS quantity, to_json(struct(*)) AS name FROM {rows}",
            "severity": "warn",
        },
        "enough_of_it": {"type": "expression", "sql": "quantity >= 0 OR name = ''", "severity": "quarantine"},
    },
}
BLOCKING = {"blocked": {"type": "range", "column": "account", "max": 5}}
BROKEN = {"broken": {"type": "expression", "sql": "CAST(name AS INT) > 0", "severity": "warn"}}


def produce(stream, text, number, *, secret, quantity=1):
    """Produce a person whose sensitive parts are canaries, and a record that cannot be decoded."""
    person = {
        "ssn": f"{TEXT}-{number}",
        "name": TEXT,
        "side": "SELL",
        "account": NUMBER,
        "quantity": quantity,
        "address": {"street": TEXT, "city": "Paris"},
        "phones": [{"number": TEXT}],
        secret: TEXT,
    }
    value = framed(register(f"{stream.name}-value", text), text, person)
    message = {"key": person["ssn"].encode(), "headers": [(TEXT, TEXT.encode())]}
    stream.produce([message | {"value": value}])
    stream.produce([message | {"value": struct.pack(">bI", 0, 999_999) + TEXT.encode()}])


class World:
    """A topic in its own Dagster instance, and all output of its commands and messages."""

    def __init__(self, stream, folder, instance, listener):
        self.stream, self.folder, self.instance = stream, folder, instance
        self.built = build_resources(load(PROJECT / "lakehouse.yaml"), "local")
        self.built |= {"alerts": Webhook(url=listener.address), "open_lineage": OpenLineage(url=listener.address)}
        self.cursors = {}
        self.outputs = {}

    def declare(self, **settings):
        self.stream.settings = SETTINGS | settings
        os.environ["LAKEHOUSE_CONFIG"] = str(self.stream.declare(self.folder))

    def materialize(self, *systems):
        """Run the topic's assets of these systems, or of all, and their checks; then the alert and lineage sensors."""
        keys = [[self.stream.name, system] for system in systems]
        assets = dg.AssetSelection.assets(*keys) if keys else dg.AssetSelection.all(include_sources=False)
        definitions = dg.Definitions.merge(defs(), dg.Definitions(jobs=[dg.define_asset_job("whole", assets)]))
        run = definitions.resolve_job_def("whole").execute_in_process(
            instance=self.instance, resources=self.built, raise_on_error=False
        )
        for sensor in (alert_failed_checks, alert_failed_runs, lineage_sensor(load())):
            self.tick(sensor, definitions)
        return run

    def tick(self, sensor, definitions):
        with dg.build_sensor_context(
            self.instance, self.cursors.get(sensor.name), resources=self.built, definitions=definitions
        ) as context:
            self.cursors[sensor.name] = sensor.evaluate_tick(context).cursor

    def command(self, *arguments):
        """Run a command, and add its output and any exception to those of earlier ones."""
        result = CliRunner().invoke(main, arguments)
        output = result.output + result.stderr + (repr(result.exception) if result.exception else "")
        self.outputs[" ".join(arguments)] = self.outputs.get(" ".join(arguments), "") + output
        return result

    def logs(self):
        return [entry for run in self.instance.get_runs() for entry in self.instance.all_logs(run.run_id)]

    def events(self):
        return [dg.serialize_value(entry) for entry in self.logs()]


@pytest.fixture(scope="module")
def world(resources, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sensitive")
    with pytest.MonkeyPatch.context() as patch, Listener().listening() as listener:
        patch.setenv("LAKEHOUSE_CONFIG", "")
        # One retry leaves all kinds of events.
        patch.setattr(factories, "RETRY", dg.RetryPolicy(max_retries=1))
        # The stream whose check fails would attempt its batch five times, with 15 s of pauses.
        patch.setattr("lakehouse.streaming.scheduler.ATTEMPTS", 2)
        with dg.instance_for_test(temp_dir=str(tmp_path_factory.mktemp("dagster"))) as instance:
            stream = Stream(resources, partitions=1, settings=SETTINGS)
            world = World(stream, folder, instance, listener)
            world.declare()
            for sensor in (alert_failed_checks, lineage_sensor(load())):
                world.tick(sensor, defs())
            produce(stream, BEFORE, 1, secret="maiden_name")
            produce(stream, BEFORE, 2, secret="maiden_name", quantity=-1)
            first = world.materialize()
            assert first.success, [event.message for event in first.all_events if event.is_failure]
            produce(stream, AFTER, 3, secret="born_as")
            assert world.materialize("iceberg").success
            _commands(world)
            _duplicate_row(stream)
            world.materialize("ledger")
            world.command("ledger", stream.name, "--deep")
            for checks, is_published in ((BLOCKING, False), (BROKEN, True)):
                world.declare(checks=SETTINGS["checks"] | checks)
                produce(stream, AFTER, 4, secret="born_as")
                assert world.materialize("iceberg").success == is_published
            for command in (["check"], ["stream", "--once"]):
                world.command(*command, stream.name)
            world.outputs["messages"] = "\n".join(f"{r.path} {r.body.decode()}" for r in listener.received)
            yield world


def _commands(world):
    name = world.stream.name
    for arguments in (
        ["status"],
        ["dead-letters", name],
        ["dead-letters", name, "--json"],
        ["dry-run", name],
        ["redrive", name],
        ["replay", name, "--since", "earliest"],
        ["maintain", name],
    ):
        world.command(*arguments)


def _duplicate_row(stream):
    """Duplicate a row, as another writer might."""
    spark = stream.resources.spark.session(stream.resources.catalog.spark_settings())
    table = f"lake.`{stream.namespace}`.`{stream.topic.table}`"
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 1")


def samples(world, check):
    """Return the columns of the samples that a check shows."""
    key = dg.AssetKey([world.stream.name, "iceberg"])
    events = [event.dagster_event.event_specific_data for event in world.logs() if event.is_dagster_event]
    evaluated = [
        evaluation
        for evaluation in events
        if isinstance(evaluation, dg.AssetCheckEvaluation) and evaluation.asset_key == key
    ]
    shown = [
        evaluation.metadata["sample"].value
        for evaluation in evaluated
        if evaluation.check_name == check and "sample" in evaluation.metadata
    ]
    return [[column.name for column in table.schema.columns] for table in shown]


def test_sensitive_values_are_in_table_and_dead_letters(world):
    rows, letters = world.stream.rows(), world.stream.dead_letters()
    assert {row["born_as"] for row in rows} == {TEXT} and {row["account"] for row in rows} == {NUMBER}
    assert {letter["error_reason"] for letter in letters} == {"unknown_schema", "check"}


def test_check_samples_show_only_columns_not_sensitive(world):
    origin = ["kafka_partition", "kafka_offset"]
    assert samples(world, "side_known")[0] == [*origin, "side"]
    assert samples(world, "all_of_it")[0] == samples(world, "enough_of_it")[0] == [*origin, "side", "quantity"]
    assert samples(world, "ssn_spelt")[0] == origin
    assert samples(world, "by_query") == [], "the query leaves out where its rows are from"


def test_dagster_events_contain_no_sensitive_value(world):
    events = world.events()
    kinds = "".join(events)
    for expected in ("preview", "sample", "Key (sensitive) has 2 rows", "sums are the same", "raises CAST", "blocked"):
        assert expected in kinds
    assert [event[:2_000] for event in events if leaks(event.encode())] == []


def test_blocking_check_fails_run_without_retry(world):
    retried = {
        entry.run_id for entry in world.logs() if entry.dagster_event_type == dg.DagsterEventType.STEP_UP_FOR_RETRY
    }
    [blocked] = [
        entry.dagster_event.step_failure_data.error
        for entry in world.logs()
        if entry.dagster_event_type == dg.DagsterEventType.STEP_FAILURE and entry.run_id not in retried
    ]
    assert "(blocked: " in blocked.message and "are unchanged" in blocked.message


def test_messages_output_and_lineage_contain_no_sensitive_value(world):
    assert "Run failed" in world.outputs["messages"] and "columnLineage" in world.outputs["messages"]
    assert "Key (sensitive) has 2 rows" in world.outputs[f"ledger {world.stream.name} --deep"]
    assert {name: leaks(output.encode()) for name, output in world.outputs.items() if leaks(output.encode())} == {}


def test_files_except_tables_contain_no_sensitive_value(world, stack):
    # Kafka, S3, the catalog, Spark's scratch folder and the local Snowflake server contain the rows themselves.
    table_folders = {stack.path / name for name in ("kafka", "s3", "catalog", "tmp/spark", "snowflake/data")}
    files = [file for file in stack.path.rglob("*") if file.is_file()]
    searched = [file for file in files if not table_folders & {*file.parents}]
    instance = [file for file in Path(world.instance.root_directory).rglob("*") if file.is_file()]
    assert len(searched) > 10 and len(instance) > 3
    assert {
        str(file): surroundings for file in (*searched, *instance) if (surroundings := leaks(file.read_bytes()))
    } == {}


def leaks(content):
    """Return the text around each canary in bytes."""
    positions = (content.find(canary) for canary in CANARIES)
    return [content[max(0, at - 300) : at + 30] for at in positions if at >= 0]


def test_misspelt_sensitive_column_stops_topic(resources, tmp_path):
    stream = Stream(resources, partitions=1, settings={"sensitive": ["nmae"], "key": "ssn"})
    produce(stream, BEFORE, 1, secret="maiden_name")
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("LAKEHOUSE_CONFIG", str(stream.declare(tmp_path)))
        asset = next(a for a in defs().assets if dg.AssetKey([stream.name, "iceberg"]) in getattr(a, "keys", ()))
        built = build_resources(load(), "local")
        run = dg.materialize([asset], instance=instance, resources=built, raise_on_error=False)
        [failure] = [event for event in run.all_events if event.is_step_failure]
        assert "'nmae'" in failure.step_failure_data.error.message and "Did you mean 'name'?" in str(failure)
        assert run.get_asset_materialization_events() == [] and stream.rows() == []
        assert not any(leaks(dg.serialize_value(entry).encode()) for entry in instance.all_logs(run.run_id))


def test_declared_settings_contain_no_sensitive_value(world):
    """Assert that the search cannot match the configuration, which is in many outputs."""
    assert not leaks(yaml.safe_dump(SETTINGS | BLOCKING | BROKEN).encode())
