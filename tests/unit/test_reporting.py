"""What a stream tells Dagster reaches it: all of what is told once, the first and the last of what comes on and on."""

import time

import dagster as dg
import pytest

from assets.streaming.reports import Reporter

SECONDS = 60


def event(hop, number):
    return dg.AssetMaterialization([hop, "trades"], metadata={"number": number})


def told(instance, hop):
    """The numbers that Dagster was told of, in order."""
    records = instance.fetch_materializations(dg.AssetKey([hop, "trades"]), limit=1_000, ascending=True).records
    return [record.asset_materialization.metadata["number"].value for record in records]


def until(met):
    deadline = time.monotonic() + SECONDS
    while not met():
        assert time.monotonic() < deadline, f"not within {SECONDS} s"
        time.sleep(0.05)


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
def said():
    return []


@pytest.fixture
def reporter(instance, said):
    reporter = Reporter(instance, said.append)
    reporter.start()
    yield reporter
    reporter.end(0)


def test_each_commit_is_told_and_of_what_comes_on_and_on_the_first_and_the_last(instance, reporter, said):
    reporter.newest("glue", event("glue", 0))
    until(lambda: told(instance, "glue") == [0])
    for number in range(1, 5):
        reporter.each(event("iceberg", number))
        reporter.newest("glue", event("glue", number))
    reporter.end(SECONDS)

    assert (told(instance, "iceberg"), told(instance, "glue")) == ([1, 2, 3, 4], [0, 4])
    assert said == []


def test_a_dagster_that_is_gone_is_told_when_it_is_there_again(instance, reporter, said, home):
    reporter.each(event("iceberg", 1))
    until(lambda: told(instance, "iceberg") == [1])
    away = home.with_name("away")
    home.rename(away)
    reporter.each(event("iceberg", 2))
    reporter.each(event("iceberg", 3))
    until(lambda: said)
    away.rename(home)
    reporter.end(SECONDS)

    assert told(instance, "iceberg") == [1, 2, 3]
    assert said[0].startswith("Dagster does not take what happened:") and "\n" not in said[0]


def test_a_dagster_that_stays_away_keeps_nobody_from_ending(instance, reporter, said, home):
    home.rename(home.with_name("away"))
    reporter.each(event("iceberg", 1))
    reporter.newest("glue", event("glue", 1))
    until(lambda: said)
    reporter.end(SECONDS)
    home.with_name("away").rename(home)

    assert said[-1].startswith("Dagster was not told of 2 events.")
    assert told(instance, "iceberg") == told(instance, "glue") == []


def test_what_is_dropped_because_too_much_waits_is_told(instance, said, monkeypatch):
    monkeypatch.setattr("assets.streaming.reports.MOST_WAITING", 2)
    few = Reporter(instance, said.append)
    for number in range(5):
        few.each(event("iceberg", number))
    few.start()
    few.end(SECONDS)

    assert told(instance, "iceberg") == [3, 4]
    assert said[-1].startswith("Dagster was not told of 3 events.")
