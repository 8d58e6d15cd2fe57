"""The files in containers/kubernetes, by the schemas of Kubernetes and the documented values of Dagster's chart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml
from dagster._cli.api import grpc_command
from dagster._core.instance.config import dagster_instance_config_schema

from lakehouse.cli.main import main
from lakehouse.local.servers.spark_server import SETTINGS
from lakehouse.streaming.stream import STOP_SECONDS
from tests.unit.test_clusters_doc import submitted
from tools.repository import PROJECT

FOLDER = PROJECT / "containers/kubernetes"
VALUES_FILE = FOLDER / "dagster-values.yaml"
VALUES = yaml.safe_load(VALUES_FILE.read_text())
CHART = PROJECT / "tests/support/kubernetes/dagster_chart_values.txt"
OBJECTS = [
    (f"{path.name}: {document['kind']} {document['metadata']['name']}", document)
    for path in sorted(FOLDER.glob("*.yaml"))
    if path != VALUES_FILE
    for document in yaml.safe_load_all(path.read_text())
]
RESTRICTED = {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def objects(kind: str) -> Iterator[dict[str, Any]]:
    return (document for _, document in OBJECTS if document["kind"] == kind)


def pods() -> dict[str, dict[str, Any]]:
    """Return the specification of each pod of the manifests, with that of Spark's executors."""
    executor = yaml.safe_load(spark_files()["executor.yaml"])
    deployments = {document["metadata"]["name"]: document["spec"]["template"] for document in objects("Deployment")}
    return {"executor": executor["spec"], **{name: template["spec"] for name, template in deployments.items()}}


def spark_files() -> dict[str, str]:
    return next(document["data"] for document in objects("ConfigMap") if document["metadata"]["name"] == "spark")


def spark_settings() -> dict[str, str]:
    return dict(line.split(" ", 1) for line in spark_files()["lakehouse-spark.conf"].splitlines())


def paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the paths of the leaves of values; entries of a list have that of the list."""
    if isinstance(value, dict) and value:
        for key, content in value.items():
            yield from paths(content, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        for entry in value:
            yield from paths(entry, prefix)
    else:
        yield prefix


@pytest.mark.parametrize("document", [document for _, document in OBJECTS], ids=[name for name, _ in OBJECTS])
def test_manifest_agrees_with_the_schema_of_kubernetes(document):
    kubernetes_validate.validate(document, "1.34", strict=True)


def test_executor_template_agrees_with_the_schema_of_kubernetes():
    template = yaml.safe_load(spark_files()["executor.yaml"])
    kubernetes_validate.validate(template | {"metadata": {"name": "executor"}}, "1.34", strict=True)


@pytest.mark.parametrize("name", pods())
def test_pod_has_no_rights_of_its_machine(name):
    pod = pods()[name]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert [container["securityContext"] for container in pod["containers"]] == [RESTRICTED] * len(pod["containers"])
    mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_manifests_have_secrets_by_reference_only():
    named = re.compile(r"password|secret|token|api_?key", re.IGNORECASE)
    variables = [
        entry for pod in pods().values() for container in pod["containers"] for entry in container.get("env", ())
    ]
    assert {entry["name"] for entry in variables if named.search(entry["name"])} == {
        "DAGSTER_POSTGRES_PASSWORD",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN",
    }
    assert [entry["name"] for entry in variables if named.search(entry["name"]) and "valueFrom" not in entry] == []
    assert not [document for document in objects("Secret")]
    assert [path for path in paths(VALUES) if path.endswith("Password")] == []


@pytest.mark.parametrize(
    ("pod", "command", "parameters"),
    [
        ("stream-orders", "stream", {"topics": ("orders", "payments"), "metrics": ("0.0.0.0", 9464)}),  # noqa: S104 (of a pod)
        ("lakehouse-metrics", "metrics", {"listen": ("0.0.0.0", 9465), "file": None}),  # noqa: S104 (of a pod)
    ],
)
def test_command_of_pod_is_accepted(pod, command, parameters):
    program, *arguments = pods()[pod]["containers"][0]["args"]
    assert program == "lakehouse"
    context = main.make_context(program, [*arguments], resilient_parsing=True)
    name, accepted, rest = main.resolve_command(context, [*context._protected_args, *context.args])
    assert name == command and accepted is not None
    assert parameters.items() <= accepted.make_context(command, [*rest], parent=context).params.items()


@pytest.mark.parametrize(
    ("pod", "port", "readiness"), [("stream-orders", 9464, "/readyz"), ("lakehouse-metrics", 9465, "/healthz")]
)
def test_probes_and_prometheus_reach_port_of_metrics(pod, port, readiness):
    [container] = pods()[pod]["containers"]
    assert container["ports"] == [{"name": "metrics", "containerPort": port}]
    paths = {probe: container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {path["port"] for path in paths.values()} == {"metrics"}
    assert (paths["livenessProbe"]["path"], paths["readinessProbe"]["path"]) == ("/healthz", readiness)


def test_stream_outlives_its_batches_when_it_is_stopped():
    assert pods()["stream-orders"]["terminationGracePeriodSeconds"] > STOP_SECONDS


def test_spark_settings_authenticate_and_encrypt():
    settings = spark_settings()
    needed = SETTINGS | {"spark.sql.shuffle.partitions": settings["spark.sql.shuffle.partitions"]}
    assert needed.items() <= settings.items()
    assert settings["spark.driver.extraJavaOptions"] == SETTINGS["spark.executor.extraJavaOptions"]
    assert settings["spark.authenticate"] == settings["spark.network.crypto.enabled"] == "true"
    assert settings["spark.connect.grpc.binding.address"] == "127.0.0.1"
    cores = int(settings["spark.executor.instances"]) * int(settings["spark.executor.cores"])
    assert int(settings["spark.sql.shuffle.partitions"]) == 2 * cores


def test_spark_command_is_accepted_by_spark_submit(tmp_path):
    server = pods()["spark-connect"]["containers"][0]
    (tmp_path / "lakehouse-spark.conf").write_text(spark_files()["lakehouse-spark.conf"])
    arguments = [argument.replace("/etc/spark/", "") for argument in server["args"]]
    assert server["command"] == ["/opt/spark/bin/spark-submit"] and arguments.pop() == "spark-internal"
    result = submitted(arguments, tmp_path)
    assert result.returncode == 0 and "version 4.1" in result.stderr, result.stderr


def test_ports_of_policies_are_those_of_the_services():
    policies = {policy["metadata"]["name"]: policy["spec"] for policy in objects("NetworkPolicy")}
    ports = {
        name: {port["port"] for rule in spec.get("ingress", ()) for port in rule["ports"]}
        for name, spec in policies.items()
    }
    [service] = objects("Service")
    [location] = VALUES["dagster-user-deployments"]["deployments"]
    assert ports == {
        "lakehouse-refuse-others": set(),
        "code-location": {location["port"]},
        "webserver": {VALUES["dagsterWebserver"]["service"]["port"]},
        "stream": {port["containerPort"] for port in pods()["stream-orders"]["containers"][0]["ports"]},
        "metrics": {port["containerPort"] for port in pods()["lakehouse-metrics"]["containers"][0]["ports"]},
        "spark-connect": {port["port"] for port in service["spec"]["ports"]},
        "spark-executor": {int(spark_settings()["spark.blockManager.port"])},
    }


def test_policies_select_only_labels_that_pods_have():
    labels = [document["spec"]["template"]["metadata"]["labels"] for document in objects("Deployment")]
    labels += [yaml.safe_load(spark_files()["executor.yaml"])["metadata"]["labels"]]
    labels += [VALUES["dagsterWebserver"]["labels"], VALUES["dagsterDaemon"]["labels"]]
    labels += [deployment["labels"] for deployment in VALUES["dagster-user-deployments"]["deployments"]]
    labels += [VALUES["runLauncher"]["config"]["k8sRunLauncher"]["labels"]]
    existing = {item for of_pod in labels for item in of_pod.items()}
    for policy in objects("NetworkPolicy"):
        rules = [rule["from"] for rule in policy["spec"].get("ingress", ())]
        peers = [peer["podSelector"] for rule in rules for peer in rule if "podSelector" in peer]
        for selector in (policy["spec"]["podSelector"], *peers):
            assert selector.get("matchLabels", {}).items() <= existing
            for expression in selector.get("matchExpressions", ()):
                assert {(expression["key"], value) for value in expression["values"]} <= existing


def test_values_have_only_keys_that_the_chart_documents():
    lines = [line.split() for line in CHART.read_text().splitlines() if line and not line.startswith("#")]
    exact = {line[0] for line in lines if len(line) == 1}
    trees = tuple(line[0] for line in lines if len(line) == 2)
    used = {path for path in paths(VALUES) if not any(f"{path}.".startswith(f"{tree}.") for tree in trees)}
    assert used - exact == set()


def test_values_have_the_settings_of_dagster_yaml():
    settings = yaml.safe_load((PROJECT / "containers/dagster.yaml").read_text())
    added = VALUES["additionalInstanceConfig"]
    assert added.keys() <= dagster_instance_config_schema().keys()
    by_keys_of_the_chart = {"telemetry", "storage", "compute_logs", "sensors"}
    assert {name: value for name, value in settings.items() if name not in by_keys_of_the_chart} == added
    assert VALUES["telemetry"] == settings["telemetry"]
    sensors = VALUES["dagsterDaemon"]["sensors"]
    assert {"use_threads": sensors["useThreads"], "num_workers": sensors["numWorkers"]} == settings["sensors"]
    logs = VALUES["computeLogManager"]["config"]["s3ComputeLogManager"]
    of_file = settings["compute_logs"]["config"]
    assert (logs["localDir"], logs["uploadInterval"]) == (of_file["local_dir"], of_file["upload_interval"])
    assert VALUES["postgresql"]["postgresqlScheme"] == settings["storage"]["postgres"]["postgres_db"]["scheme"]


def test_code_location_of_values_is_accepted_by_dagster():
    [deployment] = VALUES["dagster-user-deployments"]["deployments"]
    context: click.Context = grpc_command.make_context("grpc", [*deployment["dagsterApiGrpcArgs"], "--port", "1"])
    assert context.params["module_name"] == "lakehouse.definitions"
