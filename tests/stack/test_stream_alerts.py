"""What a stream cannot serve is one message with its reason, within seconds, and one when it is served again."""

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
from click.testing import CliRunner
from listener import Listener
from support import Stream

from assets.sensors.alerts import alert_failed_checks
from assets.streaming.service import Streaming
from lakehouse.cli.main import main
from lakehouse.core.errors import LakehouseError
from lakehouse.local.environment import environment
from resources.snowflake import Snowflake
from resources.webhook import Webhook

SECONDS = 300
"""How long anything may take on a busy machine."""

REFUSED = "Role READER may not create a table. Nothing was changed. Grant it"


class Refusing(Snowflake):
    """A Snowflake that lets nobody in."""

    def staying(self):
        raise LakehouseError(REFUSED)


class Watched:
    """A Dagster that streams report to, whose failing checks are messages."""

    def __init__(self, instance: dg.DagsterInstance, slack: Listener):
        self._instance, self._slack, self._cursor = instance, slack, None
        self.messages()  # alerts begin at the end of the log

    def messages(self) -> list[str]:
        """All messages up to now."""
        given = {"alerts": Webhook(url=self._slack.address)}
        with dg.build_sensor_context(self._instance, self._cursor, resources=given) as context:
            self._cursor = alert_failed_checks.evaluate_tick(context).cursor
        return [json.loads(request.body)["text"] for request in self._slack.received]


def until(met) -> None:
    deadline = time.monotonic() + SECONDS
    while not met():
        assert time.monotonic() < deadline, f"not within {SECONDS} s"
        time.sleep(0.2)


def run_until(streaming: Streaming, met) -> None:
    thread = threading.Thread(target=streaming.run)
    thread.start()
    try:
        until(met)
    finally:
        streaming.stream.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()


def test_a_bad_record_is_one_message_with_its_reason_and_one_when_it_is_resolved(
    stack, resources, tmp_path, monkeypatch
):
    stream = Stream(resources, settings={"errors": "suspend", "continuous": True})
    stream.produce_trades(range(3))
    stream.produce([{"value": b"no Avro"}])
    # Commands read the checks of the stack's own Dagster.
    dagster_home = Path(environment(stack)["DAGSTER_HOME"])
    dagster_home.mkdir(exist_ok=True)
    if not (dagster_home / "dagster.yaml").exists():
        (dagster_home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(stream.declare(tmp_path)))
    said: list[str] = []
    with dg.DagsterInstance.get() as instance, Listener().listening() as slack:
        watched = Watched(instance, slack)
        run_until(
            Streaming(stream.config, [stream.topic], resources, said.append, instance),
            lambda: watched.messages() and sum("BadRecords" in line for line in said) > 2,
        )
        [message] = watched.messages()
        assert message.startswith(f"*Check failed (ERROR): streaming of iceberg/{stream.name}*\n1 record of ")
        assert "cannot be decoded" in message and "partition" in message

        checked = CliRunner().invoke(main, ["check", stream.name, "--json"])
        found = {one["check"]: one for one in json.loads(checked.output)["checks"] if one["verdict"] == "failed"}
        assert (checked.exit_code, found["streaming"]["asset"]) == (1, f"iceberg/{stream.name}")
        assert "cannot be decoded" in found["streaming"]["said"]
        assert "a stream reports that 'streaming' fails" in CliRunner().invoke(main, ["status"]).output

        mended = stream.topic.model_copy(update={"errors": "log"})
        Streaming(stream.config, [mended], resources, said.append, instance, once=True).run()
        assert [text.partition("\n")[0] for text in watched.messages()[1:]] == [
            f"*Check holds again: streaming of iceberg/{stream.name}*"
        ]
    assert "streaming" not in CliRunner().invoke(main, ["check", stream.name]).output
    assert len(stream.rows()) == 3


def test_a_system_that_cannot_show_a_table_is_one_message_and_one_when_it_can(resources):
    stream = Stream(resources)
    stream.produce_trades(range(3))
    given = resources.snowflake
    refusing = Refusing(**{name: getattr(given, name) for name in type(given).model_fields})
    systems = SimpleNamespace(
        kafka=resources.kafka,
        schema_registry=resources.schema_registry,
        spark=resources.spark,
        catalog=resources.catalog,
        glue=resources.glue,
        snowflake=refusing,
    )
    said: list[str] = []
    with dg.instance_for_test() as instance, Listener().listening() as slack:
        watched = Watched(instance, slack)
        run_until(
            Streaming(stream.config, [stream.topic], systems, said.append, instance),
            lambda: watched.messages() and sum(REFUSED in line for line in said) > 2,
        )
        [message] = watched.messages()
        assert message == f"*Check failed (ERROR): streaming of snowflake/{stream.name}*\n{REFUSED}"

        stream.produce_trades(range(3, 5))
        Streaming(stream.config, [stream.topic], resources, said.append, instance, once=True).run()
        assert [text.partition("\n")[0] for text in watched.messages()[1:]] == [
            f"*Check holds again: streaming of snowflake/{stream.name}*"
        ]
