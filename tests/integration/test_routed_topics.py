"""Topics of a route in Dagster: the sensor adds each as a partition, and each has its own table."""

import dagster as dg
import yaml
from click.testing import CliRunner
from confluent_kafka.admin import NewTopic

from assets.topics.kafka_asset import topic_offsets_sensor
from assets.topics.topic_chain import route_definitions
from lakehouse.cli.main import main
from lakehouse.config.loader import load
from lakehouse.config.model import Config, Route
from resources.build import build_resources
from tests.support.declared import EMBEDDED_READERS
from tests.support.topics import TRADES, Stream, admin, framed, register, trade
from tools.repository import PROJECT


def test_route_new_topics_become_partitions_with_tables(resources):
    stream = Stream(resources)
    pattern = rf"{stream.namespace}\.(?P<user>\w+)"
    settings = {"pattern": pattern, "table": "of_{user}", "key": "userid", "mode": "upsert", "name": "by_user"}
    route = Route.model_validate(settings)
    config = Config(namespace=stream.namespace, topics={}, routes={"by_user": route}, environments=EMBEDDED_READERS)
    built = build_resources(load(PROJECT / "lakehouse.yaml"), "local")
    defs = dg.Definitions.merge(route_definitions(config, route), dg.Definitions(resources=built))
    assets = list(defs.assets)

    def produce(user, count):
        name = f"{stream.namespace}.{user}"
        for created in admin().create_topics([NewTopic(name, 1)]).values():
            created.result()
        stream.topic = stream.topic.model_copy(update={"name": name})
        schema_id = register(f"{name}-value", TRADES)
        trades = [trade(n, userid=f"{user}_{n}") for n in range(count)]
        stream.produce([{"key": t["userid"].encode(), "value": framed(schema_id, TRADES, t)} for t in trades])
        return name

    def tick(instance, cursor):
        with dg.build_sensor_context(instance=instance, cursor=cursor, resources=built, definitions=defs) as context:
            result = topic_offsets_sensor(config)(context)
        for request in result.dynamic_partitions_requests or ():
            instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
        return result

    with dg.DagsterInstance.ephemeral() as instance:
        first = produce("ada", 5)
        first_tick = tick(instance, None)
        second = produce("bob", 7)
        second_tick = tick(instance, first_tick.cursor)
        assert [event.partition for event in first_tick.asset_events] == [first]
        assert [event.partition for event in second_tick.asset_events] == [second]
        assert instance.get_dynamic_partitions("topics_by_user") == [first, second]

        for topic in (first, second):
            result = dg.materialize(assets, resources=built, instance=instance, partition_key=topic)
            assert result.success

    counts = {name: len(stream.table(name).scan().to_arrow()) for name in ("of_ada", "of_bob")}
    assert counts == {"of_ada": 5, "of_bob": 7}
    for name, count in counts.items():
        sql = f'SELECT COUNT(*) FROM {stream.namespace}."{name.upper()}"'
        assert resources.snowflake.query(sql)[1] == [(count,)]


def test_commands_for_all_topics_or_a_route_include_those_of_the_route(resources, tmp_path, monkeypatch):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(3))
    stream.ingest()
    declared = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())
    route = {"pattern": stream.name, "table": stream.topic.table, "key": "userid"}
    entries = {"namespace": stream.namespace, "topics": {}, "routes": {"trades": route}}
    (tmp_path / "lakehouse.yaml").write_text(yaml.safe_dump(declared | entries))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "lakehouse.yaml"))

    for command in ("maintain", "dry-run", "plan"):
        for names in ([], ["trades"]):
            result = CliRunner().invoke(main, [command, *names])
            assert result.exit_code == 0, result.output
            assert stream.topic.table in result.output or stream.name in result.output, command
    assert CliRunner().invoke(main, ["validate", "--online"]).exit_code == 0

    route["mode"] = "upsert"
    (tmp_path / "lakehouse.yaml").write_text(yaml.safe_dump(declared | entries))
    edited = CliRunner().invoke(main, ["validate", "--online"])
    assert edited.exit_code == 1
    assert (
        f"routes.trades: topic '{stream.name}': The rows of table {stream.topic.table_in(stream.namespace)} were made"
        in edited.output
    )
