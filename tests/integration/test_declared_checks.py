"""Checks in lakehouse.yaml: blocking, warning and quarantine, and the samples and SQL in their results."""

import dagster as dg
import pytest

from assets.topics.topic_chain import topic_definitions
from lakehouse.config.loader import load
from lakehouse.config.model import Topic
from lakehouse.core.errors import BadRecords, ConfigError
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.commits.audit import AuditFailed
from lakehouse.pipeline.redrive import redrive
from lakehouse.pipeline.replay import replay
from resources.build import build_resources
from tests.support.topics import TRADES, Stream, framed, recreate, trade, with_checks, with_types
from tools.repository import PROJECT

CHECKS = {
    "price_sane": {"type": "range", "column": "price", "min": 0, "max": 1000},
    "side_known": {"type": "accepted_values", "column": "side", "values": ["BUY", "SELL"]},
    "symbol_spelt": {"type": "regex", "column": "symbol", "pattern": "[A-Z]{1,5}"},
    "volume": {"type": "expression", "sql": "price * quantity < 1000000"},
    "one_user": {"type": "unique", "columns": ["userid"]},
    "no_cheap_sale": {"type": "query", "sql": "SELECT * FROM {rows} WHERE side = 'SELL' AND price < 10"},
}


def create_stream(resources, severity, names=tuple(CHECKS), **settings):
    declared = {name: CHECKS[name] | {"severity": severity} for name in names}
    return Stream(resources, partitions=1, settings={"checks": declared, "errors": "suspend"} | settings)


def produce(stream, *trades):
    schema_id = stream.schema()
    stream.produce([{"key": t["userid"].encode(), "value": framed(schema_id, TRADES, t)} for t in trades])


def good(number, **changes):
    """Return a trade that passes every check."""
    return trade(
        number, **{"price": 100, "quantity": 10, "side": "BUY", "symbol": "ZVV", "userid": f"u{number}"} | changes
    )


BAD = {
    "price_sane": good(1, price=-1),
    "side_known": good(1, side="HOLD"),
    "symbol_spelt": good(1, symbol="zvv"),
    "volume": good(1, price=900, quantity=4_000),
    "one_user": good(1, userid="u0"),
    "no_cheap_sale": good(1, side="SELL", price=5),
}


@pytest.fixture(scope="module")
def refused(resources):
    """Return a topic of one published row whose second batch is refused, and the error.

    The batch has a good row, and a row for each check that fails this check only.
    """
    stream = create_stream(resources, "blocking")
    produce(stream, good(0))
    stream.ingest()
    users = {name: {} if name == "one_user" else {"userid": name} for name in CHECKS}
    produce(stream, good(2), *(BAD[name] | users[name] for name in CHECKS))
    with pytest.raises(AuditFailed) as failed:
        stream.ingest()
    return stream, failed.value


@pytest.mark.parametrize(("offset", "name"), list(enumerate(CHECKS, start=2)), ids=CHECKS)
def test_blocking_check_failing_publishes_nothing(refused, offset, name):
    stream, failed = refused

    assert f"{name}: 1 of 7" in str(failed)
    assert [row["userid"] for row in stream.rows()] == ["u0"]
    finding = next(f for f in failed.findings if f.check == name)
    assert finding.blocks and finding.result.failing == 1
    assert finding.result.sample[0]["kafka_offset"] == str(offset)
    # Users can run the SQL in the result.
    spark = stream.resources.spark.session(stream.resources.catalog.spark_settings())
    assert [row["kafka_offset"] for row in spark.sql(finding.result.sql).collect()] == [offset]


def test_warning_check_failing_publishes_and_reports(resources):
    stream = create_stream(resources, "warn")
    produce(stream, good(0), BAD["side_known"])

    (published,) = stream.ingest()

    assert len(stream.rows()) == 2
    assert {f.check for f in published.findings if not f.passed} == {"side_known"}
    assert not any(f.blocks for f in published.findings)


def test_quarantined_rows_are_ingested_after_check_is_removed(resources):
    stream = create_stream(resources, "quarantine", ("price_sane", "side_known", "volume"))
    produce(stream, good(0), BAD["price_sane"], BAD["volume"] | {"userid": "u7"}, good(3))

    (published,) = stream.ingest()

    assert [row["userid"] for row in stream.rows()] == ["u0", "u3"]
    assert (published.counts.rows, published.counts.dead_letters, published.counts.is_balanced) == (2, 2, True)
    letters = stream.dead_letters()
    assert [(letter["kafka_offset"], dict(letter["error_details"])["check"]) for letter in letters] == [
        (1, "price_sane"),
        (2, "volume"),
    ]
    assert [letter["value"] for letter in letters] == [m.value for m in stream.messages() if m.offset in (1, 2)]
    results = {f.check: (f.passed, f.result.failing) for f in published.findings if f.result}
    assert results == {"price_sane": (False, 1), "side_known": (True, 0), "volume": (False, 1)}
    spark = resources.spark.session(resources.catalog.spark_settings())
    sql = next(f.result.sql for f in published.findings if f.check == "volume")
    assert [row["source_record"]["offset"] for row in spark.sql(sql).collect()] == [2]

    stream.topic = stream.topic.model_copy(update={"checks": {}, "errors": "log"})
    assert redrive(stream.namespace, stream.topic, stream.systems).recovered == 2
    assert sorted(row["userid"] for row in stream.rows()) == ["u0", "u1", "u3", "u7"]


def test_undecodable_record_suspends_despite_quarantine(resources):
    stream = create_stream(resources, "quarantine", ("price_sane",))
    produce(stream, good(0), BAD["price_sane"])
    stream.produce([{"value": b"bad"}])

    with pytest.raises(BadRecords, match="1 record"):
        stream.ingest()
    assert (stream.rows(), stream.dead_letters()) == ([], [])


def test_check_with_unknown_column_is_config_error(resources):
    for severity in ("blocking", "quarantine"):
        wrong = {"wrong": {"type": "expression", "sql": "prise > 0", "severity": severity}}
        stream = Stream(resources, partitions=1, settings={"checks": wrong, "errors": "log"})
        produce(stream, good(0))
        with pytest.raises(ConfigError, match="check 'wrong' does not fit the table: .*prise"):
            stream.ingest()
        assert (stream.rows(), stream.dead_letters()) == ([], [])


def test_references_check_reads_other_table(resources):
    users = Stream(resources, partitions=1, settings={"mode": "upsert"})
    produce(users, good(0), good(1))
    users.ingest()
    known = {"type": "references", "column": "userid", "table": users.topic.table, "severity": "warn"}
    stream = Stream(
        resources, partitions=1, settings={"checks": {"user_known": known}}, namespace=users.namespace + "x"
    )
    stream.namespace = users.namespace
    produce(stream, good(1), good(2), good(3))

    (published,) = stream.ingest()

    (finding,) = [f for f in published.findings if f.result]
    assert finding.result.failing == 2
    assert [row["userid"] for row in finding.result.sample] == ["u2", "u3"]


def test_row_count_check_unusual_count_warns(resources, monkeypatch):
    monkeypatch.setattr("lakehouse.config.checks.MIN_HISTORY", 2)
    steady = {"steady": {"type": "row_count", "sigmas": 3, "severity": "warn"}}
    stream = Stream(resources, partitions=1, settings={"checks": steady})
    passed = []
    for count in (3, 2, 50):
        produce(stream, *(good(n) for n in range(count)))
        (published,) = stream.ingest()
        passed.append(next(f.passed for f in published.findings if f.check == "steady"))
    assert passed == [True, True, False]


def test_check_sample_omits_sensitive_columns(resources):
    stream = create_stream(resources, "warn", ("price_sane", "volume"), sensitive=["price"])
    produce(stream, good(0, price=2_000, quantity=4_000))
    (published,) = stream.ingest()
    samples = [f.result.sample[0] for f in published.findings if f.result]
    assert len(samples) == 2
    assert set(samples[0]) == {"kafka_partition", "kafka_offset", "userid"}
    assert all("price" not in sample and "2000" not in sample.values() for sample in samples)


def test_dagster_blocking_check_stops_chain_warning_does_not(resources):
    checks = {
        "price_sane": CHECKS["price_sane"] | {"severity": "blocking"},
        "side_known": CHECKS["side_known"] | {"severity": "warn"},
    }
    stream = Stream(resources, partitions=1, settings={"checks": checks})
    assets = list(topic_definitions(stream.config, stream.topic).assets)
    chain = [asset for asset in assets if asset.key.path[1] in ("iceberg", "glue")]
    built = build_resources(load(PROJECT / "lakehouse.yaml"), "local")

    def run():
        return dg.materialize(chain, resources=built, raise_on_error=False)

    produce(stream, good(0), BAD["side_known"])
    first = run()
    produce(stream, BAD["price_sane"])
    second = run()

    evaluations = {e.check_name: e for e in first.get_asset_check_evaluations()}
    assert first.success
    assert (evaluations["side_known"].passed, evaluations["side_known"].severity.value) == (False, "WARN")
    [row] = evaluations["side_known"].metadata["sample"].value.records
    assert row.data["side"] == "HOLD"
    assert not second.success
    blocked = {e.check_name: e.passed for e in second.get_asset_check_evaluations()}
    assert (blocked["price_sane"], blocked["record_count"]) == (False, True)
    assert [e.asset_key.path[1] for e in second.get_asset_materialization_events()] == []
    assert len(stream.rows()) == 2


def test_replay_failing_blocking_check_publishes_nothing(resources):
    stream = Stream(resources, partitions=1)
    produce(stream, BAD["side_known"], good(2))
    stream.ingest()
    checked = {"side_known": CHECKS["side_known"]}
    stream.topic = Topic.model_validate(stream.settings | {"name": stream.name, "checks": checked})
    published = stream.rows()

    with pytest.raises(AuditFailed, match="side_known: 1 of 2"):
        replay(stream.namespace, stream.topic, stream.systems, "earliest")
    assert stream.rows() == published
    assert replay(stream.namespace, stream.topic, stream.systems, "0:1").counts.rows == 1


def failing_rows(stream):
    """Ingest one batch, and return the number of rows that fail each declared check."""
    [published] = stream.ingest()
    return {finding.check: finding.result.failing for finding in published.findings if finding.result}


@pytest.mark.parametrize("others", [(), (2000.0,)])
def test_query_finds_nan_and_negative_zero_whatever_is_in_their_file(resources, others):
    stream = Stream(resources, partitions=1)
    queries = {"large": "price > 1000", "zero": "price = 0.0"}
    checks = {
        name: {"type": "query", "sql": f"SELECT * FROM {{rows}} WHERE {condition}", "severity": "warn"}
        for name, condition in queries.items()
    }
    stream.topic = with_checks(stream.topic, checks)
    schema = with_types(TRADES, price="double")
    prices = (float("nan"), -0.0, *others)
    stream.produce([{"value": framed(stream.schema(schema), schema, trade(0, price=price))} for price in prices])
    assert failing_rows(stream) == {"large": 1 + len(others), "zero": 1}


def test_checks_compare_with_tables_before_roll_over(resources):
    stream = Stream(resources, partitions=1, settings={"on_incompatible": "new_table"})
    schema_id = stream.schema()
    stream.produce([{"value": framed(schema_id, TRADES, trade(0, userid=user))} for user in ("anna", "carl")])
    stream.ingest()
    once = {"type": "unique", "columns": ["userid"], "severity": "warn"}
    stream.topic = with_checks(stream.topic, {"once": once})
    stream.produce_with_types(range(1), {"account": "long"}, account=1, userid="anna")
    stream.produce_with_types(range(1), {"account": "long"}, account=1, userid="berta")
    assert failing_rows(stream) == {"once": 1}
    known = {"type": "references", "column": "userid", "table": stream.topic.table, "severity": "warn"}
    stream.topic = with_checks(stream.topic, {"known": known})
    stream.produce_with_types(range(1), {"account": "long"}, account=1, userid="carl")
    stream.produce_with_types(range(1), {"account": "long"}, account=1, userid="dora")
    assert failing_rows(stream) == {"known": 1}


def test_row_count_of_recreated_topic_counts_its_rows_only(resources):
    stream = Stream(resources, partitions=1, settings={"checks": {"enough": {"type": "row_count", "min": 5}}})
    stream.produce_trades(range(6))
    stream.ingest()
    recreate(stream)
    stream.produce_trades(range(1))
    resume(stream.systems, stream.namespace, stream.topic, "earliest", "recreated on purpose")
    with pytest.raises(AuditFailed, match="enough"):
        stream.ingest()
