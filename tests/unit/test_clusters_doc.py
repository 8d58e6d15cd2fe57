"""What docs/clusters.md tells people to type, as those who will be told understand it."""

import json
import re
import shlex
import subprocess

import botocore.session
import pytest
from botocore.validate import ParamValidator
from pyspark.sql.connect.client import DefaultChannelBuilder

from lakehouse.config.loader import PROJECT
from lakehouse.local import jars
from lakehouse.local.spark import SETTINGS, spark_environment, spark_java

TEXT = (PROJECT / "docs/clusters.md").read_text()


def blocks(kind):
    found = re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    assert found, kind
    return found


def test_the_settings_are_those_of_the_embedded_server():
    [text] = blocks("properties")
    listed = dict(line.split(" ", 1) for line in text.splitlines())
    assert listed.pop("spark.driver.extraJavaOptions") == SETTINGS["spark.executor.extraJavaOptions"]
    assert listed == SETTINGS


def test_the_address_is_one_that_pyspark_takes():
    [text] = blocks("sh remote")
    channel = DefaultChannelBuilder(shlex.split(text)[1].partition("=")[2])
    assert (channel.host, channel.secure, channel.token) == ("spark.example.com", True, "SECRET")


@pytest.mark.parametrize("command", blocks("sh submit"))
def test_spark_submit_takes_the_options(command, tmp_path):
    """Its own parser does, which answers --version only once it has understood what stands before."""
    program, *arguments, resource = shlex.split(command.replace("\\\n", ""))
    assert (program, resource) == ("spark-submit", "spark-internal")
    (tmp_path / "lakehouse-spark.conf").write_text(*blocks("properties"))
    java = spark_java("org.apache.spark.deploy.SparkSubmit", *arguments, "--version", heap="256m")
    done = subprocess.run(java, cwd=tmp_path, env=spark_environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "version 4.1" in done.stderr, done.stderr


def test_aws_takes_the_session():
    [text] = blocks("json emr-serverless StartSession")
    model = botocore.session.get_session().get_service_model("emr-serverless")
    report = ParamValidator().validate(
        {"clientToken": "x", **json.loads(text)}, model.operation_model("StartSession").input_shape
    )
    assert not report.has_errors(), report.generate_report()


def test_the_jars_are_those_of_the_lock():
    [text] = blocks("sh jars")
    program, option, code = shlex.split(text)
    assert (program, option) == ("python", "-c")
    compile(code, "docs/clusters.md", "exec")
    assert len(jars.paths("spark")) == sum(line.startswith("spark ") for line in jars.LOCK.read_text().splitlines())
