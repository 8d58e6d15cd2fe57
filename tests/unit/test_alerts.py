"""Alerts about failed runs and changed checks: exactly one message each, also while the webhook fails."""

import json
import logging
import traceback

import dagster as dg
import pytest

from assets import alert_causes, alerts, run_alerts
from assets.alerts import OFF, alert_failed_checks
from assets.factories import dagster_failures
from assets.run_alerts import RESTARTED, alert_failed_runs
from assets.streaming.check import Verdicts
from lakehouse.config import loader
from lakehouse.config.model import Config
from lakehouse.core.errors import ConfigError, LakehouseError, Unreachable
from resources.build import build_resources
from resources.webhook import SECTION_CHARACTERS, Webhook
from tests.support.servers.listener import OK, Listener

GONE = Unreachable("Kafka", "broker:9092", "that it is up")
"""An error of a system, which all of its users report."""

SECRET = "services/T00/B00/a-secret"


class Slack(Listener):
    """A webhook that responds with the queued responses, then with 200 and `ok`."""

    read = 0
    """Number of requests whose messages `texts` has returned."""

    @property
    def url(self) -> str:
        return f"{self.address}/{SECRET}"

    @property
    def posts(self) -> list[dict]:
        return [json.loads(request.body) for request in self.received]

    def texts(self) -> list[str]:
        """Return the messages accepted since the last call."""
        new, self.read = self.received[self.read :], len(self.received)
        return [json.loads(request.body)["text"] for request in new if request.status == 200]


@pytest.fixture
def slack():
    with Slack().listening() as server:
        yield server


@pytest.fixture
def instance():
    with dg.instance_for_test() as instance:
        yield instance


@dg.asset
def trades(context: dg.AssetExecutionContext):
    with dagster_failures():
        match context.run.tags.get("fails"):
            case "known":
                records = context.run.tags.get("records", "3")
                raise LakehouseError(f"{records} records <of> 'trades' & more are gone. Nothing was changed")
            case "system":
                raise GONE
            case "unexpected":
                raise ValueError("row: alice@example.com")


@dg.asset_check(asset=trades)
def fresh(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    lag = int(context.run.tags.get("lag", 0))
    return dg.AssetCheckResult(
        passed=lag == 0,
        description=f"{lag:,} records behind <!channel>",
        metadata={"lag_records": lag, "sample": "alice@example.com", "rows": dg.MarkdownMetadataValue("|alice|")},
    )


DEFINITIONS = dg.Definitions([trades], asset_checks=[fresh], jobs=[dg.define_asset_job("everything", "*")])


class Sensor:
    """A sensor that is ticked as by the daemon, which discards the cursor of a tick that raises."""

    def __init__(self, sensor, instance, url: str, ui_url: str = "", definitions: dg.Definitions | None = None):
        self.sensor, self.instance, self.definitions = sensor, instance, definitions
        self.webhook, self.cursor = Webhook(url=url, ui_url=ui_url), None

    def tick(self):
        resources = {"alerts": self.webhook}
        with dg.build_sensor_context(
            self.instance, self.cursor, resources=resources, definitions=self.definitions
        ) as context:
            result = self.sensor.evaluate_tick(context)
        self.cursor = result.cursor
        return result


def run(instance, **tags) -> dg.ExecuteInProcessResult:
    """Run the asset and its check, as the UI does."""
    return DEFINITIONS.resolve_implicit_global_asset_job_def().execute_in_process(
        asset_selection=[trades.key], instance=instance, tags=tags, raise_on_error=False
    )


def report(instance, asset: str, passed: bool, partition: str | None = None):
    """Report a check evaluation without a run, as a sensor does."""
    warn, key = dg.AssetCheckSeverity.WARN, dg.AssetKey(asset.split("/"))
    evaluation = dg.AssetCheckEvaluation(key, "fresh", passed, severity=warn, partition=partition)
    instance.report_runless_asset_event(evaluation)


def full_text(error: BaseException) -> str:
    """Return more than Dagster stores of an error: its message, traceback and causes."""
    return "".join(traceback.format_exception(error)) + repr(error.__context__) + repr(error.__cause__)


def test_alert_failed_run_sends_one_message_with_steps_and_link(instance, slack):
    failures = Sensor(alert_failed_runs, instance, slack.url, "http://ui/")
    run(instance, fails="known")
    failures.tick()
    assert slack.posts == []  # the first tick starts at the end of the log
    failed = run(instance, fails="known")

    failures.tick()
    failures.tick()

    [post] = slack.posts
    assert post["text"] == (
        "*Run failed: trades*\n"
        "trades: 3 records &lt;of&gt; 'trades' &amp; more are gone. Nothing was changed\n"
        f"Run {failed.run_id}\n"
        f"<http://ui/runs/{failed.run_id}|Open in Dagster>"
    )
    assert "\n".join(block["text"]["text"] for block in post["blocks"]) == post["text"]


def test_alert_cause_of_several_runs_is_sent_once_and_its_end(instance, slack):
    failures = Sensor(alert_failed_runs, instance, slack.url)
    failures.tick()
    for records in ("3", "14"):
        run(instance, fails="known", records=records)
        failures.tick()
    [text] = slack.texts()
    assert text.startswith("*Run failed: trades*\ntrades: 3 records")

    other = run(instance, fails="unexpected")
    failures.tick()
    ended = "Resolved: trades: records &lt;of&gt; 'trades' &amp; more are gone. Nothing was changed"
    cause = "trades: ValueError, see the run's log"
    assert slack.texts() == [f"*Run failed: trades*\n{cause}\n{ended}\nRun {other.run_id}"]

    recovered = run(instance)
    run(instance)
    failures.tick()
    failures.tick()
    assert slack.texts() == [f"*Run recovered: trades*\nResolved: {cause}\nRun {recovered.run_id}"]


def test_alert_failing_system_is_sent_once_for_all_of_its_users(instance, slack):
    failures, checks = (Sensor(sensor, instance, slack.url) for sensor in (alert_failed_runs, alert_failed_checks))
    failures.tick()
    checks.tick()
    users = "orders", "users"
    now = iter(range(0, 9000, 60))
    verdicts = Verdicts(instance.report_runless_asset_event, lambda: next(now))
    run(instance, fails="system")
    for name in users:
        for _ in range(2):
            verdicts.failed((name, "iceberg"), "", GONE)
        verdicts.failed((name, "glue"), "", LakehouseError(f"Table {name} is not registered"))
    failures.tick()
    checks.tick()
    assert [text.partition("\n")[0] for text in slack.texts()] == [
        "*Run failed: trades*",
        "*Check failed (ERROR): streaming of orders/iceberg*",
        "*Check failed (ERROR): streaming of orders/glue*",
        "*Check failed (ERROR): streaming of users/glue*",
    ]
    verdicts.passed(("orders", "iceberg"), "")
    checks.tick()
    assert slack.texts() == []
    verdicts.passed(("users", "iceberg"), "")
    run(instance)
    failures.tick()
    checks.tick()
    ended = "Resolved: Kafka at broker:9092 fails"
    recovered = slack.texts()
    assert [text.partition("\n")[0] for text in recovered] == [
        "*Run recovered: trades*",
        "*Check recovered: streaming of users/iceberg*",
    ]
    assert all(ended in text for text in recovered)


def test_alert_cursors_of_version_0_1_0_are_read(instance, slack):
    failures, checks = (Sensor(sensor, instance, slack.url) for sensor in (alert_failed_runs, alert_failed_checks))
    failures.cursor = '{"__class__": "RunStatusSensorCursor", "record_id": 1, "update_timestamp": null}'
    checks.cursor = json.dumps({"after": 0, "failing": ["fresh of trades"]})
    run(instance, lag="1")
    failures.tick()
    checks.tick()
    assert slack.texts() == []
    run(instance, fails="known")
    failures.tick()
    run(instance)
    checks.tick()
    assert [text.partition("\n")[0] for text in slack.texts()] == [
        "*Run failed: trades*",
        "*Check recovered: fresh of trades*",
    ]


def test_alert_unexpected_error_shows_its_type_only(instance, slack):
    failures = Sensor(alert_failed_runs, instance, slack.url)
    failures.tick()
    job = DEFINITIONS.resolve_job_def("everything")
    failed = job.execute_in_process(instance=instance, tags={"fails": "unexpected"}, raise_on_error=False)
    failures.tick()
    reason = "trades: ValueError, see the run's log"
    assert slack.texts() == [f"*Run failed: everything*\n{reason}\nRun {failed.run_id}"]


def test_alert_run_that_fails_outside_steps_is_sent(instance, slack):
    failures = Sensor(alert_failed_runs, instance, slack.url)
    failures.tick()
    lost = run(instance)
    instance.report_run_failed(lost.dagster_run, "The worker is gone\nand its log")
    failures.tick()
    assert slack.texts() == [f"*Run failed: trades*\nRun of trades: The worker is gone\nRun {lost.run_id}"]


def test_alert_stream_failing_after_restart_is_sent_once(instance, slack):
    failures = Sensor(alert_failed_runs, instance, slack.url)
    failures.tick()
    for _ in range(3):
        run(instance, fails="known", **{RESTARTED: "yes"})
        failures.tick()
    assert len(slack.texts()) == 1
    run(instance, **{RESTARTED: "yes"})
    run(instance, fails="known", **{RESTARTED: "yes"})
    failures.tick()
    failures.tick()
    assert [text.partition("\n")[0] for text in slack.texts()] == ["*Run recovered: trades*", "*Run failed: trades*"]


def test_alert_stream_failing_after_long_run_is_sent_again(instance, slack, monkeypatch):
    monkeypatch.setattr(run_alerts, "LASTING_SECONDS", 0)
    failures = Sensor(alert_failed_runs, instance, slack.url)
    failures.tick()
    for _ in range(2):
        run(instance, fails="known", **{RESTARTED: "yes"})
        failures.tick()
    assert len(slack.texts()) == 2


def test_alert_failed_delivery_of_run_is_repeated_by_later_tick(instance, slack):
    failures = Sensor(alert_failed_runs, instance, slack.url)
    failures.tick()
    run(instance, fails="known")
    slack.always = (500, "", {})
    with pytest.raises(Unreachable, match="webhook does not answer at 127.0.0.1: HTTP 500") as raised:
        failures.tick()
    assert SECRET not in full_text(raised.value)
    slack.always = OK
    failures.tick()
    failures.tick()
    assert len(slack.texts()) == 1


def test_alert_check_is_sent_only_when_result_changes(instance, slack):
    checks = Sensor(alert_failed_checks, instance, slack.url, "http://ui")
    assert run(instance, lag="9").success  # a failed check does not fail its run
    checks.tick()
    assert slack.posts == []  # before the first tick

    run(instance)
    checks.tick()
    assert slack.posts == []  # passes, and its failure was not reported

    run(instance, lag="1234")
    checks.tick()
    checks.tick()
    assert slack.texts() == [
        "*Check failed (ERROR): fresh of trades*\n1,234 records behind &lt;!channel&gt;\nlag_records 1,234\n"
        "<http://ui/assets/trades?view=checks&amp;checkDetail=fresh|Open in Dagster>"
    ]
    run(instance, lag="2000")
    checks.tick()
    assert slack.texts() == []
    run(instance)
    run(instance)
    checks.tick()
    [text] = slack.texts()
    assert text.startswith("*Check recovered: fresh of trades*\n0 records behind")
    assert "alice" not in json.dumps(slack.posts)


def test_alert_check_without_run_is_sent_per_partition(instance, slack):
    checks = Sensor(alert_failed_checks, instance, slack.url)
    checks.tick()
    # Dagster 1.13 stores one evaluation without a run for each partition of a check, and rejects the next.
    for passed, partition in [(False, "a"), (True, "b"), (False, "c"), (False, None), (False, None), (True, None)]:
        report(instance, "shop/iceberg", passed, partition)
    checks.tick()
    commands = "See `lakehouse check {}`, and `lakehouse status` for the cause"
    assert slack.texts() == [
        f"*Check failed (WARN): fresh of shop/iceberg [a]*\n{commands.format('a')}",
        f"*Check failed (WARN): fresh of shop/iceberg [c]*\n{commands.format('c')}",
        f"*Check failed (WARN): fresh of shop/iceberg*\n{commands.format('shop')}",
        "*Check recovered: fresh of shop/iceberg*",
    ]
    assert [*json.loads(checks.cursor)["failing"]] == ["fresh of shop/iceberg [a]", "fresh of shop/iceberg [c]"]


def test_alert_check_of_other_code_location_is_not_sent(instance, slack):
    checks = Sensor(alert_failed_checks, instance, slack.url, definitions=DEFINITIONS)
    checks.tick()
    report(instance, "theirs", False)
    run(instance, lag="1")
    checks.tick()
    [text] = slack.texts()
    assert "fresh of trades" in text


def test_alert_server_error_is_retried_and_delivered_once(instance, slack):
    checks = Sensor(alert_failed_checks, instance, slack.url)
    checks.tick()
    run(instance, lag="1")
    slack.responses.append((500, "", {}))
    checks.tick()
    checks.tick()
    assert (len(slack.posts), len(slack.texts())) == (2, 1)


def test_alert_webhook_down_fails_tick_and_later_tick_delivers(instance, slack):
    checks = Sensor(alert_failed_checks, instance, slack.url)
    checks.tick()
    run(instance, lag="1")
    slack.always = (500, "", {})
    with pytest.raises(Unreachable, match="HTTP 500"):
        checks.tick()
    slack.always = OK
    checks.tick()
    checks.tick()
    assert len(slack.texts()) == 1


def test_alert_delivered_before_webhook_failure_is_not_repeated(instance, slack):
    checks = Sensor(alert_failed_checks, instance, slack.url)
    checks.tick()
    for name in ("a", "b", "c"):
        report(instance, name, False)
    slack.responses.append((200, "ok", {}))
    slack.always = (404, "no_service", {})
    checks.tick()
    with pytest.raises(Unreachable, match="HTTP 404 no_service"):
        checks.tick()
    slack.always = OK
    checks.tick()
    assert slack.texts() == [f"*Check failed (WARN): fresh of {name}*" for name in ("a", "b", "c")]


def test_alert_tick_out_of_time_leaves_rest_to_next_tick(instance, slack, monkeypatch):
    monkeypatch.setattr(alerts, "MAX_SEND_SECONDS", -1)
    checks = Sensor(alert_failed_checks, instance, slack.url)
    checks.tick()
    for name in ("a", "b"):
        report(instance, name, False)
    for name in ("a", "b"):
        checks.tick()
        assert slack.texts() == [f"*Check failed (WARN): fresh of {name}*"]


def test_alert_cursor_exceeds_limit_drops_oldest_checks(instance, slack, monkeypatch):
    monkeypatch.setattr(alert_causes, "MAX_FAILING", 2)
    checks = Sensor(alert_failed_checks, instance, slack.url)
    checks.tick()
    for name in ("a", "b", "c"):
        report(instance, name, False)
    checks.tick()
    assert [*json.loads(checks.cursor)["failing"]] == ["fresh of b", "fresh of c"]


@pytest.mark.parametrize("sensor", [alert_failed_runs, alert_failed_checks])
def test_alert_without_webhook_skips(instance, sensor, slack):
    off = Sensor(sensor, instance, "")
    off.tick()
    run(instance, fails="known", lag="1")
    assert off.tick().skip_message == OFF
    off.webhook = Webhook(url=slack.url)
    off.tick()
    assert slack.posts == []  # failures before alerts were switched on


def test_send_retry_after_header_is_respected(slack):
    slack.responses.append((429, "", {"Retry-After": "1"}))
    Webhook(url=slack.url).send("hello")
    assert (len(slack.posts), slack.texts()) == (2, ["*hello*"])


@pytest.mark.parametrize(
    ("url", "response", "expected"),
    [
        (
            "{slack}",
            (404, "no_service", {}),
            "at 127.0.0.1: HTTP 404 no_service. The call did not complete. Check the URL",
        ),
        ("{slack}", (400, f"cannot POST /{SECRET}", {}), "at 127.0.0.1: HTTP 400. The call"),
        ("{slack}", (302, "", {"Location": f"/{SECRET}"}), "at 127.0.0.1: HTTP 302. The call"),
        ("{slack}", (503, f"/{SECRET}", {}), "at 127.0.0.1: HTTP 503. The call"),
        (f"http://user:a-secret@127.0.0.1:9/{SECRET}", None, "at 127.0.0.1: NewConnectionError"),
        (f"http://nowhere.invalid/{SECRET}", None, "at nowhere.invalid: "),
        (f"hooks.example/{SECRET}", None, "at its URL: MissingSchema"),
        (f"http://[{SECRET}", None, "at its URL: "),
        (f"http://127.0.0.1:port/{SECRET}", None, "at 127.0.0.1: InvalidURL"),
        (f"file:///{SECRET}", None, "at its URL: InvalidSchema"),
    ],
)
def test_send_failure_never_shows_url(monkeypatch, caplog, slack, url, response, expected):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,.invalid")
    caplog.set_level(logging.DEBUG)
    slack.always = response
    webhook = Webhook(url=url.replace("{slack}", slack.url))
    with pytest.raises(Unreachable) as raised:
        webhook.send("hello")
    assert expected in str(raised.value)
    for text in (full_text(raised.value), caplog.text, repr(webhook), str(webhook)):
        assert "a-secret" not in text


def test_send_long_message_is_cut_to_section_size(slack):
    Webhook(url=slack.url, ui_url="http://ui").send("long", ["<" * 5000], "/runs")
    [post] = slack.posts
    assert all(len(block["text"]["text"]) <= SECTION_CHARACTERS for block in post["blocks"])
    assert post["text"].endswith("…\n<http://ui/runs|Open in Dagster>")


def test_webhook_unset_variable_uses_default_or_fails(monkeypatch):
    def webhook(environment: str) -> Webhook:
        built = {"alerts": build_resources(loader.load(), environment)["alerts"]}
        with dg.build_resources(built) as resolved:
            return resolved.alerts

    monkeypatch.delenv("LAKEHOUSE_ALERT_WEBHOOK", raising=False)
    assert webhook("local").url == ""
    with pytest.raises(dg.DagsterInvalidConfigError, match="LAKEHOUSE_ALERT_WEBHOOK"):
        webhook("aws")
    monkeypatch.setenv("LAKEHOUSE_ALERT_WEBHOOK", "http://hook")
    assert (webhook("local").url, webhook("aws").url) == ("http://hook", "http://hook")


def test_webhook_left_out_is_off_and_wrong_key_is_explained():
    systems = dict(loader.load().environments["local"])
    del systems["alerts"]
    config = Config(namespace="n", topics={}, environments={"local": systems})
    assert build_resources(config, "local")["alerts"].url == ""
    config = Config(namespace="n", topics={}, environments={"local": systems | {"alerts": {"urls": ""}}})
    with pytest.raises(ConfigError, match="alerts.urls: unknown key. Did you mean 'url'"):
        build_resources(config, "local")
