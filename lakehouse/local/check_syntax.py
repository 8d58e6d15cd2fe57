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

from lakehouse.config.base import Fault
from lakehouse.config.checks import AcceptedValues, NotNull, Range, References, Regex, RowCheck, SetCheck, Unique, scope
from lakehouse.config.model import Config
from lakehouse.core.pattern_syntax import pattern_problem
from lakehouse.local.java import java

QUOTED = (NotNull, AcceptedValues, Range, Unique, References)
"""Types of check that quote all their settings, so that their SQL is always valid."""


def syntax_faults(config: Config) -> list[Fault]:
    """Return the checks whose SQL or regular expression cannot be parsed. A JVM is started if there is one to parse."""
    written = {
        (kind, name, "checks", check_name): check
        for kind, entries in (("topics", config.topics), ("routes", config.routes))
        for name, entry in entries.items()
        for check_name, check in entry.checks.items()
        if isinstance(check, RowCheck | SetCheck) and not isinstance(check, QUOTED)
    }
    if not written:
        return []
    with _jvm() as jvm:
        problems = {location: _problem(jvm, check) for location, check in written.items()}
    return [(location, f"{problem}. Correct the check") for location, problem in problems.items() if problem]


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
        # Positions refer to the statement that contains the check.
        reason = re.sub(r"^\[\w+(\.\w+)*\] |[.:]? SQLSTATE.*$", "", message)
        return f"not valid Spark SQL: {reason}"
    return ""


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
