"""Dagster checks of the states of connectors, Tableflow and the cluster, in the simulated Confluent Cloud."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import dagster as dg
import pytest
from moto import mock_aws

from assets.topics.confluent_state import cluster_definitions
from assets.topics.topic_chain import topic_definitions
from lakehouse.config import loader
from lakehouse.config.environment import SYSTEMS
from lakehouse.config.model import Config
from lakehouse.definitions import defs
from resources.confluent.confluent_cloud import ConfluentCloud
from tests.support.clouds.confluent.server import ADMIN, ConfluentServer, Fault

CONNECTOR, TABLE, CLUSTER = "trades/kafka:connector", "trades/iceberg:tableflow", "confluent/kafka_cluster:provisioned"
TOPIC = {"key": "userid", "engine": "tableflow", "source": {"type": "datagen", "schema_file": "schemas/users.avsc"}}
ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


def configuration(topic: dict[str, Any] = TOPIC) -> Config:
    environments = {"local": {"glue": {}, "confluent_cloud": {}}}
    return Config(
        namespace="trading", topics={"trades": {"name": "trades", **topic}}, environments=environments, root=Path(".")
    )


def checked(cloud: ConfluentCloud, topic: dict[str, Any] = TOPIC) -> dict[str, dg.AssetCheckEvaluation]:
    """Return the evaluations of all checks of Confluent Cloud, by asset and name."""
    config = configuration(topic)
    others = dict.fromkeys(SYSTEMS, dg.ResourceDefinition.none_resource())
    loaded = dg.Definitions.merge(
        topic_definitions(config, config.topics["trades"]),
        cluster_definitions(config),
        dg.Definitions(resources=others | {"confluent_cloud": cloud}),
    )
    keys = [key for key in loaded.resolve_asset_graph().asset_check_keys if label(key) in (CONNECTOR, TABLE, CLUSTER)]
    job = dg.define_asset_job("checks", dg.AssetSelection.checks(*keys))
    run = dg.Definitions.merge(loaded, dg.Definitions(jobs=[job])).resolve_job_def("checks").execute_in_process()
    return {label(evaluation.asset_check_key): evaluation for evaluation in run.get_asset_check_evaluations()}


def label(key: dg.AssetCheckKey) -> str:
    return f"{key.asset_key.to_user_string()}:{key.name}"


def status(vendor: ConfluentServer) -> dict[str, Any]:
    [connector] = vendor.state.connectors.values()
    return connector["status"]


def table(vendor: ConfluentServer) -> dict[str, Any]:
    [topic] = vendor.state.tableflow_topics.values()
    return topic


def test_check_running_passes_with_state(vendor: ConfluentServer, cloud: ConfluentCloud):
    evaluations = checked(cloud)

    assert {name: evaluation.passed for name, evaluation in evaluations.items()} == {
        CONNECTOR: True,
        TABLE: True,
        CLUSTER: True,
    }
    shown = {name: text.value for evaluation in evaluations.values() for name, text in evaluation.metadata.items()}
    assert shown == {
        "connector_state": "RUNNING",
        "connector_name": "datagen-trades",
        "connector_tasks": "0: RUNNING",
        "tableflow_state": "RUNNING",
        "tableflow_table_path": table(vendor)["spec"]["storage"]["table_path"],
        "cluster_state": "PROVISIONED",
        "cluster_id": cloud.cluster_id,
        "cluster_name": "lake",
    }
    assert {method for method, _ in vendor.calls[-3:]} == {"GET"}


def failed(vendor: ConfluentServer) -> None:
    trace = (
        "org.apache.kafka.connect.errors.ConnectException: no schema for password=hunter2\n"
        "\tat io.confluent.Datagen.start(Datagen.java:7)\n"
        "\t... 7 more\n"
        "Caused by: java.io.IOException: jdbc:postgresql://ann:hunter2@db/x refused" + " and so on" * 100
    )
    status(vendor)["connector"] |= {"state": "FAILED", "trace": trace}


def one_task_failed(vendor: ConfluentServer) -> None:
    status(vendor)["tasks"][0] |= {"state": "FAILED", "msg": "out of memory"}


def connector_paused(vendor: ConfluentServer) -> None:
    status(vendor)["connector"]["state"] = "PAUSED"


def degraded(vendor: ConfluentServer) -> None:
    status(vendor)["connector"]["state"] = "DEGRADED"


def connector_deleted(vendor: ConfluentServer) -> None:
    vendor.state.connectors.clear()


def suspended(vendor: ConfluentServer) -> None:
    table(vendor)["spec"]["suspended"] = True
    table(vendor)["status"]["error_message"] = "record 7 is not valid"


def tableflow_paused(vendor: ConfluentServer) -> None:
    table(vendor)["status"]["phase"] = "PAUSED"


def tableflow_failed(vendor: ConfluentServer) -> None:
    table(vendor)["status"] |= {"phase": "FAILED", "error_message": "no access to the bucket"}


def format_failed(vendor: ConfluentServer) -> None:
    failing = [{"format": "ICEBERG", "error_message": "Schema validation failed"}]
    table(vendor)["status"]["failing_table_formats"] = failing


def tableflow_off(vendor: ConfluentServer) -> None:
    vendor.state.tableflow_topics.clear()


def cluster_failed(vendor: ConfluentServer) -> None:
    [cluster] = vendor.state.clusters.values()
    cluster["status"]["phase"] = "FAILED"


def cluster_provisioning(vendor: ConfluentServer) -> None:
    [cluster] = vendor.state.clusters.values()
    cluster["status"]["phase"] = "PROVISIONING"


@pytest.mark.parametrize(
    ("happens", "check", "severity", "state", "problem", "effect", "remedy"),
    [
        (failed, CONNECTOR, ERROR, "FAILED", "ConnectException: no schema", "New records may not arrive", "resume"),
        (one_task_failed, CONNECTOR, ERROR, "RUNNING", "task 0: out of memory", "may not arrive", "restart it"),
        (connector_paused, CONNECTOR, WARN, "PAUSED", "is PAUSED", "New records may not arrive", "resume"),
        (degraded, CONNECTOR, ERROR, "DEGRADED", "is DEGRADED", "New records may not arrive", "resume"),
        (connector_deleted, CONNECTOR, ERROR, "MISSING", "does not exist", "No new records", "lakehouse deploy create"),
        (suspended, TABLE, ERROR, "SUSPENDED", "record 7 is not valid", "may not become rows", "resume Tableflow"),
        (tableflow_paused, TABLE, WARN, "PAUSED", "is PAUSED", "may not become rows", "resume Tableflow"),
        (
            tableflow_failed,
            TABLE,
            ERROR,
            "FAILED",
            "no access to the bucket",
            "may not become rows",
            "Remove the cause",
        ),
        (format_failed, TABLE, ERROR, "RUNNING", "ICEBERG: Schema validation failed", "not become rows", "the cause"),
        (tableflow_off, TABLE, ERROR, "MISSING", "is off", "do not become rows", "lakehouse deploy create"),
        (cluster_failed, CLUSTER, ERROR, "FAILED", "is FAILED", "tables are unchanged", "Cloud Console"),
        (cluster_provisioning, CLUSTER, WARN, "PROVISIONING", "is PROVISIONING", "Topics may be", "Cloud Console"),
    ],
)
def test_check_not_running_fails_with_problem_effect_remedy(
    vendor: ConfluentServer,
    cloud: ConfluentCloud,
    happens: Callable[[ConfluentServer], None],
    check: str,
    severity: dg.AssetCheckSeverity,
    state: str,
    problem: str,
    effect: str,
    remedy: str,
):
    happens(vendor)
    evaluations = checked(cloud)
    assert [name for name, evaluation in evaluations.items() if not evaluation.passed] == [check]
    evaluation = evaluations[check]
    assert evaluation.severity == severity
    message = evaluation.description.replace("\\", "")
    assert problem in message and effect in message and remedy in message
    [shown] = [text.value for name, text in evaluation.metadata.items() if name.endswith("_state")]
    assert shown == state


def test_check_trace_is_short_without_credentials(vendor: ConfluentServer, cloud: ConfluentCloud):
    failed(vendor)
    evaluation = checked(cloud)[CONNECTOR]
    message = evaluation.description
    assert "Caused by: java.io.IOException" in message and "Datagen.java" not in message
    assert "hunter2" not in repr(evaluation) and len(message) < 700


def test_check_trace_of_sensitive_topic_is_hidden(vendor: ConfluentServer, cloud: ConfluentCloud):
    failed(vendor)
    suspended(vendor)
    evaluations = checked(cloud, TOPIC | {"sensitive": ["userid"]})
    for check, text in ((CONNECTOR, "no schema"), (TABLE, "record 7")):
        assert "withheld: it may quote values" in evaluations[check].description
        assert text not in repr(evaluations[check])


@pytest.mark.parametrize(
    ("fault", "severity", "problem", "remedy"),
    [
        (Fault(times=99, cut="before"), WARN, "does not answer at", "https://status.confluent.cloud"),
        (Fault(times=99, response=(503, {}, "busy")), WARN, "503 busy", "https://status.confluent.cloud"),
        (Fault(times=99, response=(401, {}, "no")), ERROR, "does not accept the key", "was not deleted"),
    ],
)
def test_check_unreadable_state_does_not_pass(
    vendor: ConfluentServer, cloud: ConfluentCloud, fault: Fault, severity: dg.AssetCheckSeverity, problem, remedy
):
    vendor.faults = [fault]
    evaluations = checked(cloud)
    assert set(evaluations) == {CONNECTOR, TABLE, CLUSTER}
    for evaluation in evaluations.values():
        message = evaluation.description.replace("\\", "")
        assert not evaluation.passed and evaluation.severity == severity
        assert "is in an unknown state" in message and problem in message and remedy in message
        assert vendor.admin_secret not in repr(evaluation)


def test_check_without_tableflow_key_skips_only_tableflow(cloud: ConfluentCloud):
    settings = {name: getattr(cloud, name) for name in ConfluentCloud.model_fields}
    evaluations = checked(ConfluentCloud(**settings | {"tableflow_api_key": ""}))
    assert [name for name, evaluation in evaluations.items() if not evaluation.passed] == [TABLE]
    assert "tableflow\\_secret" in evaluations[TABLE].description


def test_resource_reads_keys_from_secrets_manager(
    vendor: ConfluentServer, cloud: ConfluentCloud, monkeypatch: pytest.MonkeyPatch
):
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    # Processes keep the values of names that they have read.
    operator, tableflow = f"/operator/{uuid.uuid4()}", f"/tableflow/{uuid.uuid4()}"
    place = {"environment.id": cloud.environment_id, "kafka.cluster.id": cloud.cluster_id}
    keys = {
        operator: {"api.key": ADMIN, "api.key.secret": vendor.admin_secret} | place,
        tableflow: {"api.key": cloud.tableflow_api_key, "api.key.secret": cloud.tableflow_api_secret},
    }
    with mock_aws():
        client = boto3.client("secretsmanager", region_name="eu-west-1")
        for name, value in keys.items():
            client.create_secret(Name=name, SecretString=json.dumps(value))
        resource = ConfluentCloud(secret=operator, tableflow_secret=tableflow, url=vendor.url)
        evaluations = checked(resource)
    assert all(evaluation.passed for evaluation in evaluations.values()) and len(evaluations) == 3


def test_environment_without_confluent_has_no_such_check(monkeypatch: pytest.MonkeyPatch):
    loaded = {}
    for environment in ("local", "aws"):
        monkeypatch.setenv("LAKEHOUSE_ENV", environment)
        loaded[environment] = defs()
        dg.Definitions.validate_loadable(loaded[environment])
    checks = {
        environment: {label(key) for key in definitions.resolve_asset_graph().asset_check_keys}
        for environment, definitions in loaded.items()
    }
    datagen = {
        f"{name}/kafka:connector" for name, topic in loader.load().topics.items() if topic.source.connector(name)
    }
    assert len(datagen) == 2
    assert checks["aws"] - checks["local"] == {*datagen, CLUSTER}
    assert ["confluent_cloud" in (state.resources or {}) for state in loaded.values()] == [False, True]
