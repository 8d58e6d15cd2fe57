"""A Spark Connect server: one warm Spark for every run.

Started by `java` itself: spark-submit's launcher asks for a module (jdk.incubator.vector) that the bundled Java lacks.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from lakehouse.local import inherited, jars
from lakehouse.local.context import LOOPBACK, Context
from lakehouse.local.java import class_path, java
from lakehouse.local.process import Server

MAX_VALUE = 64 * 1024 * 1024
"""Bytes of one value in an Avro record; Kafka's own limit for a message is below that."""

# A message of five bytes may claim to hold a billion items: Avro would make room for them, and end the process.
AVRO_LIMITS = tuple(
    f"-Dorg.apache.avro.limits.{name}={limit}"
    for name, limit in {
        "collectionItems.maxLength": 1_000_000,
        "bytes.maxLength": MAX_VALUE,
        "string.maxLength": MAX_VALUE,
    }.items()
)
"""Options of every JVM that decodes."""

SETTINGS = MappingProxyType(
    {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        # Clients would note who calls each of Spark's functions, and look for IPython: 0.2 s of every small batch.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # 200 by default, for clusters: a MERGE of 1,000 keys into 3 million rows takes 8 s then, and 2 s with 4.
        "spark.sql.shuffle.partitions": "4",
        # All but Kafka. By its old interface each record becomes a row of Python's kind and back: reading takes half
        # as long again.
        "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
        # Consumers that executors keep, of 64 by default: a stream of some topics needs one for each partition.
        "spark.kafka.consumer.cache.capacity": "256",
        "spark.sql.sources.v2.bucketing.enabled": "true",
        "spark.sql.iceberg.planning.preserve-data-grouping": "true",
        # Plans name the password of Kafka. What is not written needs no redaction; that of resources/spark.py is for
        # clusters that turn these on.
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "false",
        "spark.redaction.regex": "(?i)secret|password|token|credential|access[.-]?key|jaas",
        # Executors are JVMs of their own, except in the embedded server.
        "spark.executor.extraJavaOptions": " ".join(AVRO_LIMITS),
    }
)
"""What a Spark Connect server needs to serve lakehouse, wherever it runs (docs/clusters.md). Catalogs are set by each
session."""

# Decoding and writing makes garbage all the time. In a heap as tight as that of an idle server an append takes a third
# longer (docs/performance.md).
_ROOM = ("-Xmn600m", "-XX:MinHeapFreeRatio=30", "-XX:MaxHeapFreeRatio=50")

# What Spark reflects upon: org.apache.spark.launcher.JavaModuleOptions of Spark 4.1.
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


def server(context: Context, settings: Mapping[str, str] = MappingProxyType({})) -> Server:
    """The server, with Spark in its own process.

    Parameters: `settings` go before those of the embedded server: another master makes it the driver of a cluster.
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
        # Whoever reaches a driver's other ports makes it deserialize Java objects: of this process only.
        "spark.authenticate": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(sockets),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = spark_java(
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        options=(
            *_ROOM,
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
            *AVRO_LIMITS,
            *(f"-D{name}={value}" for name, value in {**embedded, **SETTINGS, **settings}.items()),
        ),
        libraries=jars.paths("spark"),
        heap="2g",
    )
    return Server(
        name="spark",
        # Whoever is led to `localhost`, as PySpark's own channel is, would send the token to a listener on [::1] first.
        command=(sys.executable, "-P", "-m", "lakehouse.local.reserved", str(port), *command),
        folder=folder,
        address=context.environment["SPARK_REMOTE"],
        ready=lambda: _ready(port),
        env={**context.environment, **spark_environment()},
        inherits=inherited.for_transforms,
        ports={"spark": port},
    )


def spark_java(
    main: str, *arguments: str, options: Sequence[str] = (), libraries: Sequence[Path] = (), heap: str
) -> tuple[str, ...]:
    """The command line of one of Spark's own processes.

    Parameters: the class to run and its arguments, options of the JVM, jars beside Spark's, and the largest heap.
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
    )


def spark_environment() -> dict[str, str]:
    """What Spark's own processes find in their environment."""
    return {"SPARK_HOME": str(_spark_home()), "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}


def _spark_home() -> Path:
    pyspark = find_spec("pyspark")
    assert pyspark is not None and pyspark.origin is not None, "pyspark is a dependency"
    return Path(pyspark.origin).parent


def _ready(port: int) -> bool:
    import grpc

    with grpc.insecure_channel(f"{LOOPBACK}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=2)
        except grpc.FutureTimeoutError:
            return False
    return True
