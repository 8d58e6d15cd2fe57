"""Reports of a stream to Dagster: every commit once, and of repeated events at least the first and the last."""

import dagster as dg
import pytest

from assets.streaming.reports import Reporter
from tests.support.waiting import wait_until

SECONDS = 60


def event(stage, number):
    return dg.AssetMaterialization(["trades", stage], metadata={"number": number})


def reported(instance, stage):
    """Return the numbers reported to Dagster, in order."""
    records = instance.fetch_materializations(dg.AssetKey(["trades", stage]), limit=1_000, ascending=True).records
    return [record.asset_materialization.metadata["number"].value for record in records]


@pytest.fixture
def home(tmp_path):
    return tmp_path / "dagster"


@pytest.fixture
def instance(home):
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


@pytest.fixture
def log():
    return []


@pytest.fixture
def reporter(instance, log):
    reporter = Reporter(instance, log.append)
    reporter.start()
    yield reporter
    reporter.finish(0)


def test_report_sends_all_and_report_latest_first_and_last(instance, reporter, log):
    reporter.report_latest("glue", event("glue", 0))
    wait_until(lambda: reported(instance, "glue") == [0])
    for number in range(1, 5):
        reporter.report(event("iceberg", number))
        reporter.report_latest("glue", event("glue", number))
    reporter.finish(SECONDS)

    assert (reported(instance, "iceberg"), reported(instance, "glue")) == ([1, 2, 3, 4], [0, 4])
    assert log == []


def test_report_unavailable_dagster_receives_events_later(instance, reporter, log, home):
    reporter.report(event("iceberg", 1))
    wait_until(lambda: reported(instance, "iceberg") == [1])
    unavailable = home.with_name("away")
    home.rename(unavailable)
    reporter.report(event("iceberg", 2))
    reporter.report(event("iceberg", 3))
    wait_until(lambda: log)
    unavailable.rename(home)
    reporter.finish(SECONDS)

    assert reported(instance, "iceberg") == [1, 2, 3]
    assert log[0].message.startswith("Events cannot be reported to Dagster:") and "\n" not in log[0].message


def test_finish_unavailable_dagster_does_not_block(instance, reporter, log, home):
    home.rename(home.with_name("away"))
    reporter.report(event("iceberg", 1))
    reporter.report_latest("glue", event("glue", 1))
    wait_until(lambda: log)
    reporter.finish(SECONDS)
    home.with_name("away").rename(home)

    assert log[-1].message.startswith("2 events were not reported to Dagster.")
    assert reported(instance, "iceberg") == reported(instance, "glue") == []


def test_report_above_queue_limit_drops_oldest_and_logs(instance, log, monkeypatch):
    monkeypatch.setattr("assets.streaming.reports.MAX_QUEUED", 2)
    bounded = Reporter(instance, log.append)
    for number in range(5):
        bounded.report(event("iceberg", number))
    bounded.start()
    bounded.finish(SECONDS)

    assert reported(instance, "iceberg") == [3, 4]
    assert log[-1].message.startswith("3 events were not reported to Dagster.")
