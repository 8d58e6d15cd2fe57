"""Alerts of streams: one message with the reason when a topic fails, and one when it recovers."""

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
from click.testing import CliRunner

from assets.alerts import alert_failed_checks
from assets.streaming.service import StreamService
from lakehouse.cli.main import main
from lakehouse.core.errors import LakehouseError
from lakehouse.core.log_entry import LogEntry
from lakehouse.local.client_environment import environment
from resources.snowflake.snowflake import Snowflake
from resources.webhook import Webhook
from tests.support.servers.listener import Listener
from tests.support.topics import Stream

SECONDS = 300
"""The longest that a condition may take on a busy machine."""

REFUSED = "Role READER may not create a table. Nothing was changed. Grant it"


class Refusing(Snowflake):
    """A Snowflake resource that refuses each session."""

    def keep_session(self):
        raise LakehouseError(REFUSED)


class Watched:
    """A Dagster instance to which streams report, with the messages that its alert sensor sends."""

    def __init__(self, instance: dg.DagsterInstance, slack: Listener):
        self._instance, self._slack, self._cursor = instance, slack, None
        self.messages()  # The sensor starts at the end of the log.

    def messages(self) -> list[str]:
        """Return all messages so far."""
        webhooks = {"alerts": Webhook(url=self._slack.address)}
        with dg.build_sensor_context(self._instance, self._cursor, resources=webhooks) as context:
            self._cursor = alert_failed_checks.evaluate_tick(context).cursor
        return [json.loads(request.body)["text"] for request in self._slack.received]


def until(condition) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS} s"
        time.sleep(0.2)


def run_until(streaming: StreamService, condition) -> None:
    thread = threading.Thread(target=streaming.run)
    thread.start()
    try:
        until(condition)
    finally:
        streaming.stream.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()


def test_bad_record_is_one_alert_and_one_recovery(stack, resources, tmp_path, monkeypatch):
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
    lines: list[LogEntry] = []
    with dg.DagsterInstance.get() as instance, Listener().listening() as slack:
        watched = Watched(instance, slack)
        run_until(
            StreamService(stream.config, [stream.topic], resources, lines.append, instance),
            lambda: watched.messages() and sum("BadRecords" in line.message for line in lines) > 1,
        )
        [message] = watched.messages()
        assert message.startswith(f"*Check failed (ERROR): streaming of {stream.name}/iceberg*\n1 record of ")
        assert "cannot be decoded" in message and "partition" in message

        checked = CliRunner().invoke(main, ["check", stream.name, "--json"])
        failed = {
            check["check"]: check for check in json.loads(checked.output)["checks"] if check["verdict"] == "failed"
        }
        assert (checked.exit_code, failed["streaming"]["asset"]) == (1, f"{stream.name}/iceberg")
        assert "cannot be decoded" in failed["streaming"]["message"]
        assert "a stream reports that 'streaming' fails" in CliRunner().invoke(main, ["status"]).output

        corrected = stream.topic.model_copy(update={"errors": "log"})
        StreamService(stream.config, [corrected], resources, lines.append, instance, once=True).run()
        assert [text.partition("\n")[0] for text in watched.messages()[1:]] == [
            f"*Check recovered: streaming of {stream.name}/iceberg*"
        ]
    assert "streaming" not in CliRunner().invoke(main, ["check", stream.name]).output
    assert len(stream.rows()) == 3


def test_reader_failure_is_one_alert_and_one_recovery(resources):
    stream = Stream(resources)
    stream.produce_trades(range(3))
    original = resources.snowflake
    refusing = Refusing(**{name: getattr(original, name) for name in type(original).model_fields})
    systems = SimpleNamespace(
        kafka=resources.kafka,
        schema_registry=resources.schema_registry,
        spark=resources.spark,
        catalog=resources.catalog,
        glue=resources.glue,
        snowflake=refusing,
    )
    lines: list[LogEntry] = []
    with dg.instance_for_test() as instance, Listener().listening() as slack:
        watched = Watched(instance, slack)
        run_until(
            StreamService(stream.config, [stream.topic], systems, lines.append, instance),
            lambda: watched.messages() and sum(REFUSED in line.message for line in lines) > 1,
        )
        [message] = watched.messages()
        assert message == f"*Check failed (ERROR): streaming of {stream.name}/snowflake*\n{REFUSED}"

        errors = StreamService(stream.config, [stream.topic], systems, lines.append, instance, once=True).run()
        assert {name: str(error) for name, error in errors.items()} == {f"{stream.name}/snowflake": REFUSED}

        stream.produce_trades(range(3, 5))
        assert StreamService(stream.config, [stream.topic], resources, lines.append, instance, once=True).run() == {}
        assert [text.partition("\n")[0] for text in watched.messages()[1:]] == [
            f"*Check recovered: streaming of {stream.name}/snowflake*"
        ]
