"""The Spark Connect server, whose running Spark serves all runs.

`java` is called directly: spark-submit's launcher requires a module (jdk.incubator.vector) that the bundled Java lacks.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import grpc

from lakehouse.local import jars
from lakehouse.local.java import class_path, java
from lakehouse.local.processes.description import LOOPBACK, Context, Server, for_transforms
from resources.spark.required_settings import AVRO_LIMITS, REQUIRED

SETTINGS = MappingProxyType(
    {
        **{key: required.value for key, required in REQUIRED.items()},
        # Otherwise clients record the caller of each function and probe for IPython: 0.2 s of every small batch.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Spark's own process for Python workers remains after its session has ended.
        "spark.python.daemon.module": "spark.worker_daemon",
        # The default, 200, is for clusters: a MERGE of 1,000 keys into 3 million rows takes 8 s with it, 2 s with 4.
        "spark.sql.shuffle.partitions": "4",
        # All sources but Kafka, which takes 50 % longer with V1: that interface converts each record to an external Row
        # and back.
        "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
        # Consumers that executors keep open, by default 64: a stream needs one for each partition of its topics.
        "spark.kafka.consumer.cache.capacity": "256",
        # The classes that Spark generates and keeps, by default 100. Each topic needs 12 to 40, and a stream of more
        # topics than fit compiles them for every batch.
        "spark.sql.codegen.cache.maxEntries": "1000",
        "spark.sql.sources.v2.bucketing.enabled": "true",
        "spark.sql.iceberg.planning.preserve-data-grouping": "true",
        # Plans contain Kafka's password, so the UI and the event log are off; the redaction in
        # resources/spark/spark.py is for clusters that enable them.
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "false",
    }
)
"""Settings that lakehouse needs on any Spark Connect server (docs/clusters.md). Each session sets its catalogs."""

# Decoding and writing produce much garbage. The serial collector does not return the memory of the young generation,
# whose size is limited therefore; the rest of the heap is returned at each full collection, and what the C library has
# freed each minute (docs/performance.md).
_MEMORY = ("-Xmn200m", "-XX:MinHeapFreeRatio=30", "-XX:MaxHeapFreeRatio=50", "-XX:TrimNativeHeapInterval=60000")

# Packages that Spark accesses by reflection: org.apache.spark.launcher.JavaModuleOptions of Spark 4.1.
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)


CATALOG_LOGINS = ("ICEBERG_CATALOG_CREDENTIAL", "ICEBERG_CATALOG_TOKEN")
"""Variables with the login at a REST catalog, to which settings of sessions refer (rest_backend.py)."""


def server(context: Context, settings: Mapping[str, str] = MappingProxyType({})) -> Server:
    """Describe the server, which runs Spark in its own process.

    Args:
        context: The stack.
        settings: Spark settings that override those of the embedded server: with another `spark.master` it is the
            driver of a cluster.
    """
    folder = context.home.folder("spark")
    sockets = context.home.sockets()
    port = context.ports["spark"]
    embedded = {
        "spark.app.name": "lakehouse",
        "spark.master": "local[*]",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        # The driver deserializes Java objects from its other ports: accept them from this application only.
        "spark.authenticate": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(sockets),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Hadoop sets the mode of the files that it creates, whatever the umask of the process is.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        # At rest, nothing else collects the whole heap, whose memory then returns to the system.
        "spark.cleaner.periodicGC.interval": "2min",
    }
    command = spark_java(
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        options=(
            *_MEMORY,
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
            *AVRO_LIMITS,
            *(f"-D{name}={value}" for name, value in {**embedded, **SETTINGS, **settings}.items()),
        ),
        libraries=jars.paths("spark"),
        heap="2g",
        archive="spark",
    )
    return Server(
        name="spark",
        # Clients that resolve `localhost`, such as PySpark, would send the token to a listener on [::1] first.
        command=(sys.executable, "-P", "-m", "lakehouse.local.processes.reserved", str(port), *command),
        folder=folder,
        address=context.environment["SPARK_REMOTE"],
        ready=lambda: _ready(port),
        # Otherwise each thread of the C library may keep its own free memory.
        env={**context.environment, **spark_environment(), "MALLOC_ARENA_MAX": "2"},
        inherits=lambda: (*for_transforms(), *CATALOG_LOGINS),
        ports={"spark": port},
    )


def spark_java(
    main: str,
    *arguments: str,
    options: Sequence[str] = (),
    libraries: Sequence[Path] = (),
    heap: str,
    archive: str | None = None,
) -> tuple[str, ...]:
    """Return the command line of one of Spark's processes.

    Args:
        main: The class to run.
        arguments: Its arguments.
        options: Options of the JVM.
        libraries: Jars in addition to Spark's.
        heap: Maximum heap, in the format of -Xmx.
        archive: Name of the archive of classes (lakehouse.local.java); None for none.
    """
    return java(
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        *options,
        "-cp",
        class_path([_spark_home() / "jars/*", *libraries]),
        main,
        *arguments,
        heap=heap,
        archive=archive,
    )


def spark_environment() -> dict[str, str]:
    """Return the environment variables of Spark's processes."""
    return {"SPARK_HOME": str(_spark_home()), "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}


def _spark_home() -> Path:
    pyspark = find_spec("pyspark")
    assert pyspark is not None and pyspark.origin is not None, "pyspark is a dependency"
    return Path(pyspark.origin).parent


def _ready(port: int) -> bool:
    with grpc.insecure_channel(f"{LOOPBACK}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=2)
        except grpc.FutureTimeoutError:
            return False
    return True
