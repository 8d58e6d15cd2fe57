"""Start of the command line."""

import subprocess
import sys

SLOW = ["dagster", "pydantic", "pyiceberg", "pyspark", "boto3", "snowflake.connector", "requests"]


def test_main_import_loads_no_slow_library():
    script = f"import sys, lakehouse.cli.main; print([name for name in {SLOW!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (result.returncode, result.stdout.strip()) == (0, "[]"), result.stderr
