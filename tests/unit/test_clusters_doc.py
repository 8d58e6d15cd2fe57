"""Commands and settings in docs/clusters.md, validated by the programs they are for."""

import json
import re
import shlex
import subprocess

import botocore.session
import pytest
from botocore.validate import ParamValidator
from pyspark.sql.connect.client import DefaultChannelBuilder

from lakehouse.local import jars
from lakehouse.local.servers.spark_server import SETTINGS, spark_environment, spark_java
from tools.repository import PROJECT

TEXT = (PROJECT / "docs/clusters.md").read_text()


def blocks(kind):
    matches = re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    assert matches, kind
    return matches


def test_documented_settings_equal_embedded_server_settings():
    [text] = blocks("properties")
    listed = dict(line.split(" ", 1) for line in text.splitlines())
    assert listed.pop("spark.driver.extraJavaOptions") == SETTINGS["spark.executor.extraJavaOptions"]
    assert listed == SETTINGS


def test_documented_address_is_accepted_by_pyspark():
    [text] = blocks("sh remote")
    channel = DefaultChannelBuilder(shlex.split(text)[1].partition("=")[2])
    assert (channel.host, channel.secure, channel.token) == ("spark.example.com", True, "SECRET")


def submitted(arguments, folder):
    """Let spark-submit parse options in a folder: `--version` takes effect only after all were parsed."""
    java = spark_java("org.apache.spark.deploy.SparkSubmit", *arguments, "--version", heap="256m")
    return subprocess.run(java, cwd=folder, env=spark_environment(), capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("command", blocks("sh submit"))
def test_documented_command_is_accepted_by_spark_submit(command, tmp_path):
    program, *arguments, resource = shlex.split(command.replace("\\\n", ""))
    assert (program, resource) == ("spark-submit", "spark-internal")
    (tmp_path / "lakehouse-spark.conf").write_text(*blocks("properties"))
    result = submitted(arguments, tmp_path)
    assert result.returncode == 0 and "version 4.1" in result.stderr, result.stderr


def test_documented_session_is_accepted_by_aws():
    [text] = blocks("json emr-serverless StartSession")
    model = botocore.session.get_session().get_service_model("emr-serverless")
    report = ParamValidator().validate(
        {"clientToken": "x", **json.loads(text)}, model.operation_model("StartSession").input_shape
    )
    assert not report.has_errors(), report.generate_report()


def test_documented_jars_command_lists_locked_jars():
    [text] = blocks("sh jars")
    program, option, code = shlex.split(text)
    assert (program, option) == ("python", "-c")
    compile(code, "docs/clusters.md", "exec")
    assert len(jars.locked(["spark"])) == sum(line.startswith("spark ") for line in jars.LOCK.read_text().splitlines())
