"""Diagnosis of AWS identities without AWS."""

from types import SimpleNamespace

from lakehouse.config.model import Config
from lakehouse.deploy.verification.role_diagnosis import examine

ROLE = "arn:aws:iam::123456789012:role/writer"


def test_examine_missing_profile_is_a_failure_of_each_identity(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "missing")
    catalog = SimpleNamespace(region="us-east-1", role_arn=ROLE, maintenance_role_arn="", reader_role_arn="")
    resources = SimpleNamespace(catalog=catalog, tableflow_catalog=SimpleNamespace(role_arn=ROLE))
    findings = {
        finding.subject: finding
        for finding in examine(Config(namespace="trading", topics={}, environments={}), resources)
    }
    failed = [subject for subject, finding in findings.items() if not finding.ok]
    assert failed == ["AWS credentials", "ingestion", "Tableflow"]
    assert all("profile (missing) could not be found" in findings[subject].observation for subject in failed)
    assert {*findings} == {*failed, "maintenance", "DuckDB", "Spark executors"}, "the environment has no other systems"


def test_examine_needs_no_credentials_of_aws_for_systems_elsewhere():
    vended = SimpleNamespace(region="eu", access_delegation="vended-credentials", s3_endpoint=None, role_arn="")
    elsewhere = SimpleNamespace(region="eu", access_delegation="none", s3_endpoint="http://minio:9000", role_arn="")
    config = Config(namespace="trading", topics={}, environments={})
    for catalog in (vended, elsewhere):
        [credentials, *_] = examine(config, SimpleNamespace(catalog=catalog))
        assert (credentials.subject, credentials.ok) == ("AWS credentials", True)
        assert credentials.observation == "not checked: no system of the environment is in AWS"
