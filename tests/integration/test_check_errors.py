"""Conditions of checks that raise errors, and patterns: they fail rows, and stop neither batches nor servers."""

from __future__ import annotations

from typing import Any

import pytest

from lakehouse.config.checks import Scope
from lakehouse.config.model import Topic
from lakehouse.core.errors import ConfigError
from lakehouse.core.patterns import MOST_BYTES
from lakehouse.pipeline.commits.audit import AuditFailed
from lakehouse.pipeline.engine_values import CheckedRows, Checking
from lakehouse.pipeline.redrive import redrive
from spark.engine import SparkEngine, SparkEngines
from tests.support.topics import TRADES, Stream, framed, trade, with_checks

ROWS = """
    SELECT * FROM VALUES
        (0, 1L, 1000000, 1000000, 'n/a', 'ABC'), (0, 2L, 3, 4, '1', 'abc'), (0, 3L, null, 4, '9', null),
        (0, 4L, 5, 0, null, 'Ab')
    AS t(kafka_partition, kafka_offset, price, quantity, text, word)
    UNION ALL SELECT 0, 5L, 1, 1, '2', repeat('ab', 200000)
    UNION ALL SELECT 0, 6L, 1, 1, '2', repeat('a', 2000000)
"""
"""Products over 32 bits, text that is no number, and long values."""

CHECKS: dict[str, tuple[dict[str, Any], list[int], str]] = {
    "product": ({"type": "expression", "sql": "price * quantity < 10"}, [1, 2], "ARITHMETIC_OVERFLOW"),
    "same_product": ({"type": "expression", "sql": "price * quantity >= 0"}, [1], "ARITHMETIC_OVERFLOW"),
    "quotient": ({"type": "expression", "sql": "price / quantity > 0"}, [4], "DIVIDE_BY_ZERO"),
    "number": ({"type": "accepted_values", "column": "text", "values": [1, 2]}, [1, 3], "CAST_INVALID_INPUT"),
    "limit": ({"type": "range", "column": "text", "min": 2}, [1, 2], "CAST_INVALID_INPUT"),
    "letters": ({"type": "regex", "column": "word", "pattern": "([A-Z]|[a-z])*"}, [6], ""),
    "capitals": ({"type": "regex", "column": "word", "pattern": "(A|B)*C?"}, [2, 4, 5, 6], ""),
    "cast": ({"type": "query", "sql": "SELECT * FROM {rows} WHERE CAST(text AS INT) > 5"}, [], "CAST_INVALID_INPUT"),
    "map": ({"type": "expression", "sql": "size(map_from_arrays(array(text, text), array(1, 2))) = 1"}, [], "an error"),
    "format": ({"type": "query", "sql": "SELECT * FROM {rows} WHERE format_string('%d', text) = '1'"}, [], "an error"),
    "large": ({"type": "query", "sql": "SELECT * FROM {rows} WHERE price > 4"}, [1, 4], ""),
}
"""Checks, the offsets of the rows that fail, and the error."""


def declared(checks: dict[str, dict[str, Any]]) -> Any:
    return Topic.model_validate({"name": "t", "checks": checks}).checks


@pytest.fixture(scope="module")
def engine(resources: Any) -> SparkEngine:
    """Return an engine with the view `rows_with_errors`."""
    resources.spark.session({}).sql(ROWS).createOrReplaceTempView("rows_with_errors")
    return SparkEngines(resources.spark).engine({})


@pytest.fixture(scope="module")
def results(engine: SparkEngine) -> dict[str, CheckedRows]:
    """Return the results of all checks in one run."""
    scope = Scope("(SELECT * FROM rows_with_errors)", "rows_with_errors", {})
    checks = declared({name: check for name, (check, _, _) in CHECKS.items()})
    return engine.check(checks, scope, dict.fromkeys(checks, ["kafka_partition", "kafka_offset"]))


@pytest.mark.parametrize("name", CHECKS)
def test_check_fails_rows_for_which_it_raises_an_error(results, name):
    _, failing, error = CHECKS[name]
    assert (results[name].checked, results[name].failing, results[name].error) == (6, len(failing), error)
    assert [int(row["kafka_offset"]) for row in results[name].sample] == failing


def test_value_of_the_most_bytes_matches_and_a_longer_one_does_not(engine):
    sql = "(SELECT 0 AS kafka_partition, n AS kafka_offset, repeat('a', n) AS word FROM VALUES ({}), ({}) AS t(n))"
    scope = Scope(sql.format(MOST_BYTES, MOST_BYTES + 1), "t", {})
    checks = declared({"letters": {"type": "regex", "column": "word", "pattern": "a*"}})
    result = engine.check(checks, scope, {"letters": ["kafka_offset"]})["letters"]
    assert [row["kafka_offset"] for row in result.sample] == [str(MOST_BYTES + 1)]


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "[a-z&&[^b]]", "a++"])
def test_pattern_that_cannot_match_in_linear_time_is_config_error(engine, pattern):
    checks = declared({"letters": {"type": "regex", "column": "word", "pattern": pattern}})
    with pytest.raises(ConfigError, match="the pattern of check 'letters' is not valid: .*Correct the check"):
        engine.completes(Checking(checks, Scope("rows_with_errors", "rows_with_errors", {})))


VOLUME = {"volume": {"type": "expression", "sql": "price * quantity < 10000000"}}
"""A check whose product exceeds 32 bits for the trade of `sent`."""


def sent(resources, severity):
    """Return a topic with a trade that passes, and one for which the check raises an error."""
    checks = {name: check | {"severity": severity} for name, check in VOLUME.items()}
    stream = Stream(resources, partitions=1, settings={"checks": checks, "errors": "log"})
    trades = (trade(0, price=1, quantity=1), trade(1, price=2_000_000, quantity=2_000))
    stream.produce([{"value": framed(stream.schema(), TRADES, sent_trade)} for sent_trade in trades])
    return stream


def test_error_of_warning_check_publishes_and_reports(resources):
    stream = sent(resources, "warn")
    (published,) = stream.ingest()
    assert [row["kafka_offset"] for row in stream.rows()] == [0, 1]
    [finding] = [finding for finding in published.findings if not finding.passed]
    assert finding.message == "1 of 2 rows fail, 1 of them because the condition raises ARITHMETIC_OVERFLOW"


def test_error_of_blocking_check_publishes_nothing(resources):
    stream = sent(resources, "blocking")
    with pytest.raises(AuditFailed, match="volume: 1 of 2 rows fail, 1 of them because"):
        stream.ingest()
    assert stream.rows() == []


def test_error_of_quarantining_check_is_its_letter_until_redriven(resources):
    stream = sent(resources, "quarantine")
    stream.ingest()
    assert [row["kafka_offset"] for row in stream.rows()] == [0]
    [letter] = stream.dead_letters()
    assert (letter["kafka_offset"], letter["error_reason"]) == (1, "check")
    assert dict(letter["error_details"])["check"] == "volume"
    stream.topic = with_checks(stream.topic, {})
    assert redrive(stream.namespace, stream.topic, stream.systems).recovered == 1
    assert [row["kafka_offset"] for row in stream.rows()] == [0, 1]
