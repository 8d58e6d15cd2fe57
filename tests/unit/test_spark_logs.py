"""pyspark writes no text of a failed query to standard error, where it would quote values of records."""

import subprocess
import sys

import pytest

SCRIPT = """
import logging.config
import sys
from types import SimpleNamespace

import pyspark.sql.connect.logging
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from resources.spark_logs import silence_failed_queries

if sys.argv[1] == "silenced":
    silence_failed_queries()
# As Dagster does in each process of a run, which enables loggers that are disabled.
logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
for kind in ("SQL", "DataFrame"):
    context = SimpleNamespace(
        contextType=lambda: SimpleNamespace(name=kind), callSite=lambda: "a.py:1", fragment=lambda: "f"
    )
    SparkConnectGrpcException("[CAST_INVALID_INPUT] The value 'canary'", contexts=[context])
try:
    raise ValueError("canary")
except ValueError:
    pyspark.sql.connect.logging.logger.exception("GRPC Error received")
"""


@pytest.mark.parametrize(("how", "quoted"), [("silenced", False), ("as it is", True)])
def test_the_text_of_a_failed_query_is_not_logged(how, quoted):
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "GRPC Error received"):
        assert (logger in done.stderr) == quoted, done.stderr
    assert ("canary" in done.stderr) == quoted
