"""pyspark writes no text of a failed query to standard error, where it would quote values of records."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from types import SimpleNamespace
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from resources.spark_logs import silence_failed_queries

if sys.argv[1] == "silenced":
    silence_failed_queries()
for kind in ("SQL", "DataFrame"):
    context = SimpleNamespace(
        contextType=lambda: SimpleNamespace(name=kind), callSite=lambda: "a.py:1", fragment=lambda: "f"
    )
    SparkConnectGrpcException("[CAST_INVALID_INPUT] The value 'canary'", contexts=[context])
"""


@pytest.mark.parametrize(("how", "lines"), [("silenced", 0), ("as it is", 2)])
def test_the_text_of_a_failed_query_is_not_logged(how, lines):
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    assert sum("canary" in line for line in done.stderr.splitlines()) == lines, done.stderr
