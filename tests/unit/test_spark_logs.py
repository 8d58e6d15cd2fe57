"""Suppression of failed queries in pyspark's logs, which would quote values of records."""

import subprocess
import sys

import pytest

SCRIPT = """
import logging.config
import sys
from types import SimpleNamespace

import pyspark.sql.connect.logging
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from resources.spark.connection import silence_failed_queries

if sys.argv[1] == "silenced":
    silence_failed_queries()
# Dagster does this in each process of a run, which enables disabled loggers.
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


@pytest.mark.parametrize(("mode", "logged"), [("silenced", False), ("unchanged", True)])
def test_failed_query_is_logged_unless_silenced(mode, logged):
    result = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, check=True)
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "GRPC Error received"):
        assert (logger in result.stderr) == logged, result.stderr
    assert ("canary" in result.stderr) == logged
