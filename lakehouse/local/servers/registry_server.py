"""Apicurio as a Confluent-compatible schema registry, with its data in an H2 file, behind `registry_proxy`."""

import sys

from lakehouse.local import guard, jars
from lakehouse.local.java import java
from lakehouse.local.processes.description import LOOPBACK, Context, Server, request_json, responds


def server(context: Context) -> Server:
    """Describe the registry. Its global compatibility is BACKWARD, as Confluent's, instead of Apicurio's NONE."""
    folder = context.home.folder("registry")
    api = f"{context.url('registry')}/apis/ccompat/v7"
    settings = {
        "quarkus.http.host": LOOPBACK,
        "quarkus.http.port": 0,  # any free port, which the proxy detects
        # Each connection must begin with a line that browsers cannot send, so they must use the proxy.
        "quarkus.http.proxy.use-proxy-protocol": "true",
        "quarkus.management.host-enabled": "false",
        "quarkus.log.console.darken": 0,
        "quarkus.console.color": "false",
        "quarkus.http.access-log.enabled": "false",  # six lines per batch
        # Otherwise Vert.x creates a world-writable folder.
        "quarkus.vertx.cache-directory": context.home.folder("registry/vertx"),
        "apicurio.datasource.url": f"jdbc:h2:file:{folder}/registry;DB_CLOSE_ON_EXIT=FALSE",
    }
    return Server(
        name="registry",
        command=(
            sys.executable,
            "-m",
            "lakehouse.local.servers.registry_proxy",
            str(context.ports["registry"]),
            *java(
                "-XX:TieredStopAtLevel=1",
                *(f"-D{name}={value}" for name, value in settings.items()),
                "-jar",
                str(jars.unpacked("registry") / "quarkus-run.jar"),
                heap="256m",
                archive="registry",
            ),
        ),
        folder=folder,
        address=api,
        ready=lambda: responds(f"{api}/subjects"),
        env=guard.variables(),
        ports={"registry": context.ports["registry"]},
        provision=lambda env: request_json(f"{api}/config", {"compatibility": "BACKWARD"}, method="PUT"),
    )
