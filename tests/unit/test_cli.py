"""The command line as a whole."""

import subprocess
import sys

SLOW = ["dagster", "pydantic", "pyiceberg", "pyspark", "boto3", "snowflake.connector", "requests"]


def test_help_waits_for_no_library_that_takes_long_to_import():
    script = f"import sys, lakehouse.cli.main; print([name for name in {SLOW!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
