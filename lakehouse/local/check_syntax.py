"""Validation of the SQL and the regular expressions of checks, with Spark's parser and RE2.

Neither needs a Spark server: the parser runs in a JVM of its own, which ends with the validation.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from lakehouse.config.base import Fault
from lakehouse.config.checks import (
    AcceptedValues,
    Expression,
    NotNull,
    Query,
    Range,
    References,
    Regex,
    RowCheck,
    Scope,
    SetCheck,
    Unique,
    scope,
)
from lakehouse.config.known_columns import Columns, KnownColumns
from lakehouse.config.model import Config, Topic
from lakehouse.core.pattern_syntax import pattern_problem
from lakehouse.core.sql import SPARK
from lakehouse.core.text import did_you_mean
from lakehouse.local.java import java

QUOTED = (NotNull, AcceptedValues, Range, Unique, References)
"""Types of check that quote all their settings, so that their SQL is always valid."""

_UNRESOLVED = re.compile(r"with name (?:or key )?`(.+?)` cannot be resolved")
_name = SPARK.identifier


def syntax_faults(config: Config, columns: Columns) -> list[Fault]:
    """Return the checks whose SQL or regular expression cannot be parsed, or does not fit the columns of the table.

    A JVM is started if there is one to parse.

    Args:
        config: The configuration.
        columns: The columns of each topic.
    """
    written = {
        (kind, name, "checks", check_name): (check, entry)
        for kind, entries in (("topics", config.topics), ("routes", config.routes))
        for name, entry in entries.items()
        for check_name, check in entry.checks.items()
        if isinstance(check, RowCheck | SetCheck) and not isinstance(check, QUOTED)
    }
    if not written:
        return []
    with _jvm() as jvm:
        problems = {
            location: _problem(jvm, check) or _misfit(jvm, check, entry, columns(entry))
            for location, (check, entry) in written.items()
        }
    return [
        (location, f"{problem}{'' if problem.endswith('?') else '.'} Correct the check")
        for location, problem in problems.items()
        if problem
    ]


def _problem(jvm: Any, check: RowCheck | SetCheck) -> str:
    """Return the reason why a check cannot be parsed; empty if it can."""
    if isinstance(check, Regex):
        problem = pattern_problem(check.test)
        return f"not a valid regular expression (RE2): {problem}" if problem else ""
    try:
        parser = jvm.org.apache.spark.sql.catalyst.parser.CatalystSqlParser()
        if isinstance(check, RowCheck):
            parser.parseExpression(check.condition)
        parser.parseQuery(check.failing_rows(scope("t", 1, {0: 1}, {}, {name: "o" for name in check.tables})))
    except Py4JJavaError as error:
        [message, *_] = str(error.java_exception.getMessage()).strip().splitlines()
        return f"not valid Spark SQL: {_reason(message)}"
    return ""


def _misfit(jvm: Any, check: RowCheck | SetCheck, topic: Topic, known: KnownColumns | None) -> str:
    """Return why Spark's analyzer refuses a check for a table with these columns; empty if it does not.

    The analyzer has Spark's own functions and no tables, so that a query of other tables is not analyzed.
    """
    if known is None or isinstance(check, Regex):
        return ""
    fields = known.schema(topic).fields
    table = f"(SELECT {', '.join(f'CAST(NULL AS {_sql_type(f.field_type)}) AS {_name(f.name)}' for f in fields)})"
    if isinstance(check, RowCheck):
        query = f"SELECT {check.condition} FROM {table}"  # noqa: S608 (it is analyzed, and not executed)
    else:
        query = check.failing_rows(Scope(table, table, {}))
    try:
        plan = jvm.org.apache.spark.sql.catalyst.parser.CatalystSqlParser().parsePlan(query)
        analyzer = jvm.org.apache.spark.sql.catalyst.analysis.SimpleAnalyzer
        analyzed = analyzer.execute(plan)
        analyzer.checkAnalysis(analyzed)
    except Py4JJavaError as error:
        condition = str(error.java_exception.getCondition())
        [message, *_] = str(error.java_exception.getMessage()).splitlines()
        if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
            return ""
        if condition.startswith("UNRESOLVED_COLUMN") and (unresolved := _UNRESOLVED.search(message)):
            column = unresolved[1].rpartition("`.`")[2]
            names = [field.name for field in fields]
            return f"{known.origin} has no column '{column}'.{did_you_mean(column, names)}".removesuffix(".")
        if "loadFunction" in message:
            return _unknown_function(jvm, check.sql if isinstance(check, Expression | Query) else query)
        return f"not valid Spark SQL: {_reason(message)}"
    type_ = str(analyzed.schema().apply(0).dataType().simpleString())
    if isinstance(check, Expression) and type_ != "boolean":
        return f"'{check.sql}' is a {type_}, and not a condition. Compare it with a value"
    return ""


def _unknown_function(jvm: Any, text: str) -> str:
    functions = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin().listFunction().mkString(" ")
    known = str(functions).split()
    called = re.findall(r"([A-Za-z_]\w*)\s*\(", text)
    name = next((name for name in called if name.lower() not in known), called[0])
    return f"Spark has no function '{name}'.{did_you_mean(name.lower(), known)}"


def _sql_type(type_: IcebergType) -> str:
    """Return the type of a column in Spark SQL (Iceberg, Spark type to Iceberg type)."""
    match type_:
        case StructType():
            fields = (f"{_name(field.name)}: {_sql_type(field.field_type)}" for field in type_.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case ListType():
            return f"ARRAY<{_sql_type(type_.element_type)}>"
        case MapType():
            return f"MAP<{_sql_type(type_.key_type)}, {_sql_type(type_.value_type)}>"
    text = str(type_)
    names = {"long": "BIGINT", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP", "uuid": "STRING"}
    return "BINARY" if text.startswith("fixed") else names.get(text, text.upper())


def _reason(message: str) -> str:
    """Return a message of Spark without its condition and position, which refer to a larger statement."""
    return re.sub(r"^\[\w+(\.\w+)*\] |[.:]? SQLSTATE.*$", "", message).rstrip(".")


@contextmanager
def _jvm() -> Iterator[Any]:
    """Yield the classes of a JVM with Spark's libraries."""
    pyspark = find_spec("pyspark")
    assert pyspark and pyspark.submodule_search_locations
    jars = Path(pyspark.submodule_search_locations[0]) / "jars"
    path, *options = java("-XX:TieredStopAtLevel=1", heap="256m")
    port, token, process = launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        classpath=f"{jars}/*",
        javaopts=options,
        java_path=path,
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait()
