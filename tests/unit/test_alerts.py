"""Alerts, as a server receives them."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dagster as dg
import pytest

from assets.alerts import failed_checks_sensor, failed_runs
from lakehouse.errors import Unreachable
from resources.webhook import Webhook, escaped

SECRET = "T000/B000/XXXX"


class Receiver(ThreadingHTTPServer):
    """A server that takes messages; `answers` are the statuses it gives next, 200 when there are none left."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Receiving)
        self.messages, self.answers = [], []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def webhook(self):
        return Webhook(url=f"http://127.0.0.1:{self.server_port}/services/{SECRET}")


class Receiving(BaseHTTPRequestHandler):
    def do_POST(self):  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.answers.pop(0) if self.server.answers else 200
        if status == 200:
            self.server.messages.append(body["text"])
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver():
    server = Receiver()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def instance():
    with dg.instance_for_test() as instance:
        yield instance


class World:
    """An asset with a check whose verdict is set from outside, and one that fails."""

    def __init__(self, instance):
        self.instance, self.passes = instance, True

        @dg.asset
        def table():
            if self.passes is None:
                raise dg.Failure("Kafka <b> does not answer & more", allow_retries=False)

        @dg.asset_check(asset=table)
        def sane():
            return dg.AssetCheckResult(passed=bool(self.passes), description="3 of 5 rows fail", metadata={"n": 3})

        jobs = [dg.define_asset_job("everything", dg.AssetSelection.all())]
        self.defs = dg.Definitions(assets=[table], asset_checks=[sane], jobs=jobs)
        self.sensor = failed_checks_sensor([dg.AssetCheckKey(dg.AssetKey("table"), "sane")])
        self.cursor = None

    def run(self, passes):
        self.passes = passes
        job = self.defs.resolve_job_def("everything")
        return job.execute_in_process(instance=self.instance, raise_on_error=False)

    def tick(self, webhook):
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources={"alerts": webhook}
        ) as context:
            self.cursor = self.sensor(context).cursor


def test_a_check_is_told_of_when_it_begins_to_fail_and_when_it_passes_again(instance, receiver):
    world = World(instance)
    heard = []
    for passes in (True, False, False, True, True):
        assert world.run(passes).success, "a failed check leaves its run green"
        world.tick(receiver.webhook)
        heard.append(len(receiver.messages))
    assert heard == [0, 1, 1, 2, 2]
    assert "*table sane*: 3 of 5 rows fail" in receiver.messages[0]
    assert "passes again" in receiver.messages[1]


def test_a_verdict_without_a_run_is_heard_too_and_one_that_does_not_come_changes_nothing(instance, receiver):
    world = World(instance)
    world.run(True)
    world.tick(receiver.webhook)
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey("table"), check_name="sane", passed=False, metadata={}, description="topic → Iceberg"
        )
    )
    world.tick(receiver.webhook)
    world.run(None)
    world.tick(receiver.webhook)
    assert [message.partition(":")[2].partition(" ")[0] for message in receiver.messages] == ["red_circle:"]
    assert "topic → Iceberg" in receiver.messages[0]


def test_a_message_that_does_not_arrive_is_sent_by_a_later_tick(instance, receiver):
    world = World(instance)
    world.run(False)
    receiver.answers = [500] * 10
    with pytest.raises(Unreachable) as raised:
        world.tick(receiver.webhook)
    assert SECRET not in str(raised.value)
    receiver.answers = [500]
    world.tick(receiver.webhook)
    world.tick(receiver.webhook)
    assert len(receiver.messages) == 1


def test_a_failed_run_is_told_of_with_its_error(instance, receiver, monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_UI_URL", "https://dagster.example")
    done = World(instance).run(None)
    context = dg.build_run_status_sensor_context(
        sensor_name="failed_runs",
        dagster_event=done.get_run_failure_event(),
        dagster_instance=instance,
        dagster_run=done.dagster_run,
        resources={"alerts": receiver.webhook},
    ).for_run_failure()
    failed_runs(context)
    (message,) = receiver.messages
    assert message.startswith(":red_circle: Run *everything* failed <https://dagster.example/runs/")
    assert "• `table`: Kafka &lt;b&gt; does not answer &amp; more" in message


def test_nobody_is_told_where_there_is_no_webhook(instance):
    world = World(instance)
    world.run(False)
    world.tick(Webhook())
    assert json.loads(world.cursor) == ["table sane"]


def test_an_unreachable_server_is_named_without_its_url():
    with pytest.raises(Unreachable) as raised:
        Webhook(url=f"http://127.0.0.1:1/services/{SECRET}").send("x")
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


def test_what_others_wrote_is_escaped():
    assert escaped("a < b & c > d") == "a &lt; b &amp; c &gt; d"
